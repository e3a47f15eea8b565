package cli

import (
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/outbid-dev/outbid/orchestrator/api"
)

// tokenCommand groups what is about tokens.
func (a *app) tokenCommand() *cobra.Command {
	return groupCommand(&cobra.Command{
		Use:   "token",
		Short: "Make tokens for people and tools",
		Long: `A server that listens beyond loopback asks everybody for a token. Tokens are kept in a file, one a line, which
'outbid serve --tokens FILE' reads, and reads again when it changes: take a line out and its token opens nothing.`,
		Example: "  outbid token new --file tokens --name ada",
	}, a.tokenNewCommand())
}

func (a *app) tokenNewCommand() *cobra.Command {
	var file, name, tenant, role string
	cmd := &cobra.Command{
		Use:   "new",
		Short: "Make a token and print it",
		Long: `New makes a token, adds it to the file, and prints it: that is the only time it is shown apart from the file.
Give it to its owner, who sets OUTBID_TOKEN or passes --token-file.

The role is admin (everything), user (everything with the tenant's sweeps), viewer (may only look), viewer-nologs (a
viewer that sees no logs, no checkpoints and no values of environment variables) or metrics (may only read /metrics).`,
		Example: `  outbid token new --file tokens --name ada
  outbid token new --file tokens --name prometheus --tenant '*' --role metrics`,
		Args: exactly(),
		RunE: func(*cobra.Command, []string) error {
			if name == "" {
				return badInput("--name is missing: say whose token it is")
			}
			token, err := api.MakeToken(file, api.Principal{Name: name, Tenant: tenant, Role: api.Role(role)})
			if err != nil {
				return badInput("%w", err)
			}
			a.printf("%s\n", token)
			a.notef("added %s (tenant %s, role %s) to %s; a server that runs with it lets it in within seconds", name, tenant, role, file)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&file, "file", filepath.Join(defaultData, "tokens"), "`FILE` of the tokens")
	f.StringVar(&name, "name", "", "whose token it is, as events record it")
	f.StringVar(&tenant, "tenant", "default", "the owner's tenant; '*' for every tenant")
	f.StringVar(&role, "role", string(api.RoleUser), "admin, user, viewer, viewer-nologs or metrics")
	roles := make([]string, 0, len(api.Roles()))
	for _, r := range api.Roles() {
		roles = append(roles, string(r))
	}
	complete(cmd, "role", roles...)
	return cmd
}

// tlsCommand groups what is about certificates.
func (a *app) tlsCommand() *cobra.Command {
	return groupCommand(&cobra.Command{
		Use:   "tls",
		Short: "Make certificates for the server",
		Long: `A server that listens beyond loopback needs a certificate. Use one of your own authority, or make one with
'outbid tls new'.`,
		Example: "  outbid tls new --dir tls --host tuner.example.org",
	}, a.tlsNewCommand())
}

func (a *app) tlsNewCommand() *cobra.Command {
	var dir string
	var hosts []string
	cmd := &cobra.Command{
		Use:   "new",
		Short: "Make an authority and a certificate for the server",
		Long: `New makes a certificate authority, unless there is one in the directory, and a certificate of it for the
server's names and addresses. Clients need ca.pem alone: outbid --ca ca.pem.`,
		Example: `  outbid tls new --dir tls --host tuner.example.org --host 10.0.0.5
  outbid serve --api 10.0.0.5:7700 --tls-cert tls/cert.pem --tls-key tls/key.pem --tokens tokens`,
		Args: exactly(),
		RunE: func(*cobra.Command, []string) error {
			if len(hosts) == 0 {
				return badInput("--host is missing: name the server as clients reach it, such as --host tuner.example.org")
			}
			files, err := api.MakeCert(dir, hosts, a.now())
			if err != nil {
				return err
			}
			a.printf("%s\n", fmt.Sprintf("server: outbid serve --tls-cert %s --tls-key %s --tokens FILE\nclients: outbid --ca %s",
				files.Cert, files.Key, files.CA))
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&dir, "dir", filepath.Join(defaultData, "tls"), "`DIR` to write to")
	f.StringSliceVar(&hosts, "host", nil, "name or address of the server; may be given several times")
	_ = cmd.MarkFlagDirname("dir")
	return cmd
}
