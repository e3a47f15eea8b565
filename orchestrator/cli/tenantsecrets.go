package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

func (tn *tenantCommands) secretCommand() *cobra.Command {
	return groupCommand(&cobra.Command{
		Use:   "secret",
		Short: "Store secrets for the environment of trials",
		Long: `A secret is a named value of a tenant, such as a token of a tracking service. A sweep names it, and its trials find the
value in their environment:

  program:
    env: {WANDB_API_KEY: {secret: wandb}}

The server stores it encrypted and outside the ledger. No command, call or log shows the value again, and workers
replace it by *** in the output of trials. Every token that may submit sweeps for the tenant may set, list and remove
its secrets.`,
		Example: "  outbid secret set wandb --from-file wandb.key",
	}, tn.secretSetCommand(), tn.secretListCommand(), tn.secretRemoveCommand())
}

func (tn *tenantCommands) secretSetCommand() *cobra.Command {
	var tenant, file, variable string
	cmd := &cobra.Command{
		Use:   "set NAME",
		Short: "Store a secret or replace its value",
		Long: `Set reads the value from standard input; on a terminal it asks for it without echo. It removes one trailing newline.
The value has at most 32 KiB. It cannot be an argument, because other users of the machine can see arguments.

Trials that start later get the new value; running trials keep the value that they started with.`,
		Example: `  outbid secret set wandb
  outbid secret set wandb --from-file wandb.key
  outbid secret set wandb --from-env WANDB_API_KEY --tenant vision`,
		Args:              exactArgs("NAME"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			value, err := tn.secretValue(args[0], file, variable)
			if err != nil {
				return err
			}
			c, err := tn.connect()
			if err != nil {
				return err
			}
			defer c.close()
			got, err := c.SetSecret(cmd.Context(), &outbidv1.SetSecretRequest{Tenant: tenant, Name: args[0], Value: value})
			if err != nil {
				return err
			}
			s := got.GetSecret()
			tn.printf("secret %s of tenant %s is set\n", s.GetName(), s.GetTenant())
			tn.notef("use it in a sweep with env: {VARIABLE: {secret: %s}}", s.GetName())
			return nil
		},
	}
	f := cmd.Flags()
	tenantFlag(cmd, &tenant)
	f.StringVar(&file, "from-file", "", "read the value from `FILE`")
	f.StringVar(&variable, "from-env", "", "take the value of the environment variable `VAR`")
	cmd.MarkFlagsMutuallyExclusive("from-file", "from-env")
	return cmd
}

func tenantFlag(cmd *cobra.Command, tenant *string) {
	cmd.Flags().StringVar(tenant, "tenant", "", "`NAME` of the tenant (default: yours)")
}

// secretValue reads a secret's value from the source that the flags select.
func (tn *tenantCommands) secretValue(name, file, variable string) (string, error) {
	var value string
	switch {
	case variable != "":
		if value = tn.getenv(variable); value == "" {
			return "", badInput("--from-env: the environment variable %s is not set or is empty", variable)
		}
		return value, nil
	case file == "" && tn.term.in:
		return tn.askSecret(name)
	case file == "":
		file = "-"
	}
	data, err := tn.readFile(file)
	if err != nil {
		return "", err
	}
	value = strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r")
	if value == "" {
		return "", badInput("the value is empty: give it on standard input, with --from-file or with --from-env")
	}
	return value, nil
}

// askSecret asks for a value on the terminal without echo.
func (tn *tenantCommands) askSecret(name string) (string, error) {
	in, ok := tn.stdin.(*os.File)
	if !ok {
		return "", badInput("standard input is not a terminal; use --from-file or --from-env")
	}
	_, _ = fmt.Fprintf(tn.stderr, "value of %s (not shown): ", name)
	typed, err := term.ReadPassword(int(in.Fd()))
	_, _ = io.WriteString(tn.stderr, "\n")
	if err != nil {
		return "", fmt.Errorf("read the value: %w", err)
	}
	if len(typed) == 0 {
		return "", badInput("the value is empty")
	}
	return string(typed), nil
}

// secretView is a secret as commands print it.
type secretView struct {
	Name   string    `json:"name"`
	Tenant string    `json:"tenant"`
	SetAt  time.Time `json:"set_at"`
	SetBy  string    `json:"set_by"`
}

func (tn *tenantCommands) secretListCommand() *cobra.Command {
	var out format
	var tenant string
	cmd := &cobra.Command{
		Use:               "list",
		Aliases:           []string{"ls"},
		Short:             "List the names of a tenant's secrets",
		Long:              `List shows the names of a tenant's secrets, when each was set and by which token, but never a value.`,
		Example:           "  outbid secret ls --tenant vision",
		Args:              exactArgs(),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := tn.connect()
			if err != nil {
				return err
			}
			defer c.close()
			got, err := c.ListSecrets(cmd.Context(), &outbidv1.ListSecretsRequest{Tenant: tenant})
			if err != nil {
				return err
			}
			return tn.printSecrets(out, got.GetSecrets())
		},
	}
	outputFlag(cmd, &out)
	tenantFlag(cmd, &tenant)
	return cmd
}

func (tn *tenantCommands) printSecrets(out format, list []*outbidv1.Secret) error {
	l := newLister(tn.stdout, out, []string{"NAME", "TENANT", "SET", "BY"}, func(v secretView) []string {
		return []string{clean(v.Name), clean(v.Tenant), v.SetAt.In(tn.now().Location()).Format(time.DateTime), clean(v.SetBy)}
	})
	l.table.width = tn.columns()
	for _, s := range list {
		if err := l.add(secretView{s.GetName(), s.GetTenant(), s.GetSetAt().AsTime(), s.GetSetBy()}); err != nil {
			return err
		}
	}
	return l.close("no secrets; set one with 'outbid secret set NAME'")
}

func (tn *tenantCommands) secretRemoveCommand() *cobra.Command {
	var tenant string
	cmd := &cobra.Command{
		Use:     "remove NAME",
		Aliases: []string{"rm"},
		Short:   "Remove a secret",
		Long: `Remove deletes a secret with its value. Running trials keep the value that they started with. A trial that needs it and
starts later fails with a reason that names the secret: set it again, or change the sweep.`,
		Example:           "  outbid secret rm wandb",
		Args:              exactArgs("NAME"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := tn.connect()
			if err != nil {
				return err
			}
			defer c.close()
			if _, err := c.DeleteSecret(cmd.Context(), &outbidv1.DeleteSecretRequest{Tenant: tenant, Name: args[0]}); err != nil {
				return err
			}
			tn.printf("secret %s is removed\n", args[0])
			return nil
		},
	}
	tenantFlag(cmd, &tenant)
	return cmd
}
