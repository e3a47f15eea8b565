package cli

import (
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/outbid-dev/outbid/orchestrator/identity"
	"github.com/outbid-dev/outbid/orchestrator/server"
)

// natsCommand groups what is about a NATS server of its own.
func (a *app) natsCommand() *cobra.Command {
	return groupCommand(&cobra.Command{
		Use:   "nats",
		Short: "Tell a NATS server of its own whom to let in",
		Long: `The NATS inside 'outbid up' and 'outbid serve' knows whom to let in by itself. A nats-server of its own includes a file
that 'outbid nats init' writes.`,
		Example: "  outbid nats init --keys keys --include nats/auth.conf",
	}, a.natsInitCommand())
}

func (a *app) natsInitCommand() *cobra.Command {
	var keys, include string
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Make the cluster's keys and what nats-server includes of them",
		Long: `Init makes the cluster's keys, unless the directory holds them already, and writes the file that nats.conf includes:
the operator and the accounts that these keys have signed. The file holds no secret; the keys stay with the machines
that run 'outbid serve', which takes them with --keys.

Run it again, and have nats-server read its configuration anew, after 'outbid worker remove': then NATS knows of those
that were removed too, and lets them in no more.`,
		Example: `  outbid nats init --keys /etc/outbid/keys --include /etc/nats/auth.conf
  outbid serve --nats nats://127.0.0.1:4222 --keys /etc/outbid/keys`,
		Args: exactly(),
		RunE: func(*cobra.Command, []string) error {
			k, err := identity.MakeKeys(keys)
			if err != nil {
				return badInput("--keys: %w", err)
			}
			config, err := k.NATSConfig()
			if err != nil {
				return err
			}
			if err := writeWhole(include, func(w io.Writer) error {
				_, err := w.Write(config)
				return err
			}); err != nil {
				return badInput("--include: %w", trimOp(err))
			}
			// The server may run as another user.
			if err := os.Chmod(include, 0o644); err != nil { //nolint:gosec // it holds no secret
				return badInput("--include: %w", trimOp(err))
			}
			a.printf("keys: %s, for outbid serve --nats URL --keys %s\n", keys, keys)
			a.printf("nats.conf: include %q\n", include)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&keys, "keys", server.KeysDir(defaultData), "`DIR` of the cluster's keys, made if missing")
	f.StringVar(&include, "include", filepath.Join(defaultData, "nats-auth.conf"), "`FILE` to write")
	_ = cmd.MarkFlagDirname("keys")
	_ = cmd.MarkFlagFilename("include")
	return cmd
}
