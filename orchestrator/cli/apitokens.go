package cli

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/outbid-dev/outbid/orchestrator/api"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// apiTokenCommands create and manage the API tokens of a server.
type apiTokenCommands struct{ *client }

func (at *apiTokenCommands) commands() []*cobra.Command {
	return []*cobra.Command{at.createCommand(), at.listCommand(), at.rotateCommand(), at.revokeCommand()}
}

// defaultExpires is the default life of an API token.
const defaultExpires = "90d"

func (at *apiTokenCommands) createCommand() *cobra.Command {
	var tenant, role, expires string
	var scopes []string
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Create an API token for a tool and print it",
		Long: `Create asks the server for an API token and prints it once; the server keeps only its hash. Events and the audit
record the tool as TENANT/NAME. Scopes restrict what the token may do within its role: read (sweeps, nodes), content
(logs, checkpoints), write (submit and control), tenant (members), nodes (cordon, workers), audit, ledger.

It requires the role admin, or tenant-admin for the roles tenant-admin, user, viewer and viewer-nologs of its tenant.`,
		Example: `  outbid token create ci --tenant vision --role user --expires 30d
  outbid token create board --tenant '*' --role viewer --scope read`,
		Args:              exactArgs("NAME"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			life, err := parseLife(expires)
			if err != nil {
				return badInput("--expires: %w", err)
			}
			c, err := at.connect()
			if err != nil {
				return err
			}
			defer c.close()
			got, err := c.CreateToken(cmd.Context(), &outbidv1.CreateTokenRequest{
				Tenant: tenant, Name: args[0], Role: role, Scopes: scopes, Life: durationpb.New(life),
			})
			if err != nil {
				return err
			}
			at.showToken(got.GetToken(), got.GetInfo())
			return nil
		},
	}
	f := cmd.Flags()
	tenantFlag(cmd, &tenant)
	f.StringVar(&role, "role", string(api.RoleUser), "a role; see docs/reference/roles.md")
	f.StringVar(&expires, "expires", defaultExpires, "how long it is valid, such as 12h or 90d; at most 366d")
	f.StringSliceVar(&scopes, "scope", nil, "`SCOPE` of the token; may be repeated (default: everything that its role may)")
	complete(cmd, "scope", api.Scopes()...)
	return cmd
}

// showToken prints a new token and its use.
func (at *apiTokenCommands) showToken(token string, info *outbidv1.APIToken) {
	at.printf("%s\n", token)
	at.notef("%s of tenant %s, role %s, expires %s; it is not shown again", clean(info.GetName()), clean(info.GetTenant()), clean(info.GetRole()),
		info.GetExpires().AsTime().In(at.now().Location()).Format(time.DateTime))
}

// parseLife parses a duration that may end in d for days.
func parseLife(text string) (time.Duration, error) {
	if days, found := strings.CutSuffix(text, "d"); found {
		if n, err := strconv.ParseFloat(days, 64); err == nil && n > 0 && n < 1e5 {
			return time.Duration(n * 24 * float64(time.Hour)), nil
		}
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("%q: must be a duration such as 12h or 90d", text)
	}
	return d, nil
}

// apiTokenView is an API token as commands print it.
type apiTokenView struct {
	Name      string     `json:"name"`
	Tenant    string     `json:"tenant"`
	Role      string     `json:"role"`
	Scopes    []string   `json:"scopes"`
	Created   time.Time  `json:"created"`
	CreatedBy string     `json:"created_by"`
	Expires   time.Time  `json:"expires"`
	LastUsed  *time.Time `json:"last_used"`
}

func (at *apiTokenCommands) listCommand() *cobra.Command {
	var out format
	var tenant string
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List API tokens",
		Long: `List shows the API tokens of your tenant, or of every tenant for admins: their roles, scopes, when they expire and when
they were last used. Tokens of the tokens file are not among them.`,
		Example:           "  outbid token ls -o json | jq '.[] | select(.last_used == null)'",
		Args:              exactArgs(),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := at.connect()
			if err != nil {
				return err
			}
			defer c.close()
			got, err := c.ListTokens(cmd.Context(), &outbidv1.ListTokensRequest{Tenant: tenant})
			if err != nil {
				return err
			}
			return at.printTokens(out, got.GetTokens())
		},
	}
	outputFlag(cmd, &out)
	cmd.Flags().StringVar(&tenant, "tenant", "", "`NAME` of the tenant (default: yours; for admins every tenant)")
	return cmd
}

func (at *apiTokenCommands) printTokens(out format, list []*outbidv1.APIToken) error {
	l := newLister(at.stdout, out, []string{"NAME", "TENANT", "ROLE", "SCOPES", "EXPIRES", "LAST USED", "BY"}, func(v apiTokenView) []string {
		when := func(t time.Time) string { return t.In(at.now().Location()).Format(time.DateTime) }
		expires, used := when(v.Expires), "never"
		if !at.now().Before(v.Expires) {
			expires = "expired"
		}
		if v.LastUsed != nil {
			used = when(*v.LastUsed)
		}
		return []string{clean(v.Name), clean(v.Tenant), clean(v.Role), clean(strings.Join(v.Scopes, " ")), expires, used, clean(v.CreatedBy)}
	})
	l.table.width, l.table.spare = at.columns(), []string{"BY", "SCOPES"}
	for _, m := range list {
		v := apiTokenView{
			Name: m.GetName(), Tenant: m.GetTenant(), Role: m.GetRole(), Scopes: append([]string{}, m.GetScopes()...), Created: m.GetCreated().AsTime(),
			CreatedBy: m.GetCreatedBy(), Expires: m.GetExpires().AsTime(), LastUsed: viewTime(m.GetLastUsed()),
		}
		if err := l.add(v); err != nil {
			return err
		}
	}
	return l.close("no API tokens; create one with 'outbid token create NAME'")
}

func (at *apiTokenCommands) rotateCommand() *cobra.Command {
	var tenant, expires string
	var overlap time.Duration
	cmd := &cobra.Command{
		Use:   "rotate NAME",
		Short: "Replace an API token by another",
		Long: `Rotate prints another token with the same name, role and scopes. The old one stops working at once, or after --overlap,
so that the tool can change over. Without --overlap the sessions of the old token end too.`,
		Example:           "  outbid token rotate ci --tenant vision --overlap 1h",
		Args:              exactArgs("NAME"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			life, err := parseLife(expires)
			if err != nil {
				return badInput("--expires: %w", err)
			}
			c, err := at.connect()
			if err != nil {
				return err
			}
			defer c.close()
			got, err := c.RotateToken(cmd.Context(), &outbidv1.RotateTokenRequest{
				Tenant: tenant, Name: args[0], Life: durationpb.New(life), Overlap: durationpb.New(overlap),
			})
			if err != nil {
				return err
			}
			at.showToken(got.GetToken(), got.GetInfo())
			return nil
		},
	}
	tenantFlag(cmd, &tenant)
	cmd.Flags().StringVar(&expires, "expires", defaultExpires, "how long the new token is valid, such as 12h or 90d; at most 366d")
	cmd.Flags().DurationVar(&overlap, "overlap", 0, "how long the old token stays valid; at most 168h")
	return cmd
}

func (at *apiTokenCommands) revokeCommand() *cobra.Command {
	var tenant string
	cmd := &cobra.Command{
		Use:   "revoke NAME",
		Short: "Remove an API token",
		Long: `Revoke removes an API token. The next call with it is denied, and its sessions in browsers end. Open streams continue
until they end.`,
		Example:           "  outbid token revoke ci --tenant vision",
		Args:              exactArgs("NAME"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := at.connect()
			if err != nil {
				return err
			}
			defer c.close()
			if _, err := c.RevokeToken(cmd.Context(), &outbidv1.RevokeTokenRequest{Tenant: tenant, Name: args[0]}); err != nil {
				return err
			}
			at.printf("token %s is revoked\n", args[0])
			return nil
		},
	}
	tenantFlag(cmd, &tenant)
	return cmd
}
