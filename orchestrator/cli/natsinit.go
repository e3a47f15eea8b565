package cli

import (
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/outbid-dev/outbid/orchestrator/identity"
	"github.com/outbid-dev/outbid/orchestrator/server"
)

// natsCommand groups the commands for a separate NATS server.
func (kc *keyCommands) natsCommand() *cobra.Command {
	return groupCommand(&cobra.Command{
		Use:   "nats",
		Short: "Configure the users of a separate NATS server",
		Long: `The NATS inside 'outbid up' and 'outbid serve' needs no configuration. A separate nats-server includes a file that
'outbid nats init' writes.`,
		Annotations: map[string]string{globalFlags: ""},
		Example:     "  outbid nats init --keys keys --include nats/auth.conf",
	}, kc.natsInitCommand())
}

func (kc *keyCommands) natsInitCommand() *cobra.Command {
	var keys, include string
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Create the cluster's keys and the file that nats-server includes",
		Long: `Init creates the cluster's keys, unless the directory has them, and writes the file that nats.conf includes: the
operator and the accounts that these keys signed. The file does not contain secrets. The keys stay on the machines that
run 'outbid serve --keys DIR'.

After 'outbid worker remove' run it again, and reload the configuration of nats-server, so that NATS rejects the
removed workers.`,
		Example: `  outbid nats init --keys /etc/outbid/keys --include /etc/nats/auth.conf
  outbid serve --nats nats://127.0.0.1:4222 --keys /etc/outbid/keys`,
		Args: exactArgs(),
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
			// The NATS server may run as another user.
			if err := os.Chmod(include, 0o644); err != nil { //nolint:gosec // it does not contain secrets
				return badInput("--include: %w", trimOp(err))
			}
			kc.printf("keys: %s, for outbid serve --nats URL --keys %s\n", keys, keys)
			kc.printf("nats.conf: include %q\n", include)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&keys, "keys", server.KeysDir(defaultData), "`DIR` of the cluster's keys, created if missing")
	f.StringVar(&include, "include", filepath.Join(defaultData, "nats-auth.conf"), "`FILE` to write")
	_ = cmd.MarkFlagDirname("keys")
	_ = cmd.MarkFlagFilename("include")
	return cmd
}
