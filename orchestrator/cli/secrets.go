package cli

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/outbid-dev/outbid/orchestrator/api"
)

// keyCommands create what servers and their clients identify themselves with: tokens, certificates and keys.
type keyCommands struct{ *console }

// tokenCommand groups the commands for tokens; issued are those that call a server.
func (kc *keyCommands) tokenCommand(issued ...*cobra.Command) *cobra.Command {
	return groupCommand(&cobra.Command{
		Use:   "token",
		Short: "Create tokens for users and tools",
		Long: `A server that listens beyond loopback requires a token from every client. There are two kinds:

'outbid token new' adds a line to a file on the server's machine, which 'outbid serve --tokens FILE' reads, and reads
again when it changes: remove a line to revoke its token. Such tokens do not expire. The first admin needs one.

'outbid token create' asks a running server for a token of a tool, such as a CI job. Such API tokens expire, can have
scopes, and are listed, rotated and revoked by command. The server stores only their hashes.`,
		Example: `  outbid token new --file tokens --name ada
  outbid token create ci --tenant vision --role user --expires 30d`,
	}, append([]*cobra.Command{kc.tokenNewCommand()}, issued...)...)
}

func (kc *keyCommands) tokenNewCommand() *cobra.Command {
	var file, name, tenant, role string
	cmd := &cobra.Command{
		Use:   "new",
		Short: "Create a token in a file and print it",
		Long: `New creates a token, adds it to the file, and prints it once. Give it to its owner, who sets OUTBID_TOKEN or passes
--token-file.

The role is admin (everything), operator (nodes and workers, no contents), auditor (the audit, no contents),
tenant-admin (a user who also sets the tenant's members), user (everything with the tenant's sweeps), viewer (read
only), viewer-nologs (a viewer without logs, checkpoints and values of environment variables) or metrics (only
/metrics). docs/reference/roles.md lists which role may make which call.`,
		Example: `  outbid token new --file tokens --name ada
  outbid token new --file tokens --name prometheus --tenant '*' --role metrics`,
		Annotations: map[string]string{globalFlags: ""},
		Args:        exactArgs(),
		RunE: func(*cobra.Command, []string) error {
			if name == "" {
				return badInput("--name is missing: name the owner of the token")
			}
			token, err := api.MakeToken(file, api.Principal{Name: name, Tenant: tenant, Role: api.Role(role)})
			if err != nil {
				return badInput("%w", err)
			}
			kc.printf("%s\n", token)
			kc.notef("added %s (tenant %s, role %s) to %s; a running server accepts it within seconds", name, tenant, role, file)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&file, "file", filepath.Join(defaultData, "tokens"), "`FILE` with the tokens")
	f.StringVar(&name, "name", "", "name of the owner, which events record")
	f.StringVar(&tenant, "tenant", "default", "the owner's tenant; '*' for every tenant")
	roles := make([]string, 0, len(api.Roles()))
	for _, r := range api.Roles() {
		roles = append(roles, string(r))
	}
	f.StringVar(&role, "role", string(api.RoleUser), strings.Join(roles, ", "))
	complete(cmd, "role", roles...)
	return cmd
}

// tlsCommand groups the commands for certificates.
func (kc *keyCommands) tlsCommand() *cobra.Command {
	return groupCommand(&cobra.Command{
		Use:   "tls",
		Short: "Create certificates for the server",
		Long: `A server that listens beyond loopback needs a certificate. Use one from your own authority, or create one with
'outbid tls new'.`,
		Annotations: map[string]string{globalFlags: ""},
		Example:     "  outbid tls new --dir tls --host tuner.example.org",
	}, kc.tlsNewCommand())
}

func (kc *keyCommands) tlsNewCommand() *cobra.Command {
	var dir string
	var hosts []string
	cmd := &cobra.Command{
		Use:   "new",
		Short: "Create an authority and a certificate for the server",
		Long: `New creates a certificate authority, unless the directory has one, and a certificate signed by it for the server's
names and addresses. Clients need only ca.pem: outbid --ca ca.pem.`,
		Example: `  outbid tls new --dir tls --host tuner.example.org --host 10.0.0.5
  outbid serve --api 10.0.0.5:7700 --tls-cert tls/cert.pem --tls-key tls/key.pem --tokens tokens`,
		Args: exactArgs(),
		RunE: func(*cobra.Command, []string) error {
			if len(hosts) == 0 {
				return badInput("--host is missing: name the server as clients reach it, such as --host tuner.example.org")
			}
			files, err := api.MakeCert(dir, hosts, kc.now())
			if err != nil {
				return err
			}
			kc.printf("%s\n", fmt.Sprintf("server: outbid serve --tls-cert %s --tls-key %s --tokens FILE\nclients: outbid --ca %s",
				files.Cert, files.Key, files.CA))
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&dir, "dir", filepath.Join(defaultData, "tls"), "`DIR` to write to")
	f.StringSliceVar(&hosts, "host", nil, "name or address of the server; may be repeated")
	_ = cmd.MarkFlagDirname("dir")
	return cmd
}
