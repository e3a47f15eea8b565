package cli

import (
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/outbid-dev/outbid/orchestrator/bus"
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
	var keys, include, store string
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Make the cluster's keys and what nats-server includes of them",
		Long: `Init makes the cluster's keys, unless the directory holds them already, and writes the file that nats.conf includes:
the operator and the accounts that these keys have signed. The file holds no secret; the keys stay with the machines
that run 'outbid serve', which takes them with --keys.

With --take-over it also gives these keys the ledger of a nats-server that knew no users or let everybody in by one
token, as versions before wanted it: stop that server, name the store_dir of its jetstream block, and start it with the
new configuration. Earlier versions cannot read the ledger after that. It is for one nats-server; the streams of a
cluster of several are moved with 'nats stream backup' and 'restore'.

Run it again, and have nats-server read its configuration anew, after 'outbid worker remove': then NATS knows of those
that were removed too, and lets them in no more.`,
		Example: `  outbid nats init --keys /etc/outbid/keys --include /etc/nats/auth.conf
  outbid nats init --keys /etc/outbid/keys --include /etc/nats/auth.conf --take-over /var/lib/nats
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
			if store != "" {
				taken, err := bus.TakeOverStreams(store, k.Account())
				if err != nil {
					return badInput("--take-over: %w", err)
				}
				if taken {
					a.printf("the ledger in %s belongs to these keys now\n", store)
				} else {
					a.printf("the ledger in %s belongs to these keys already\n", store)
				}
			}
			a.printf("keys: %s, for outbid serve --nats URL --keys %s\n", keys, keys)
			a.printf("nats.conf: include %q\n", include)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&keys, "keys", server.KeysDir(defaultData), "`DIR` of the cluster's keys, made if missing")
	f.StringVar(&include, "include", filepath.Join(defaultData, "nats-auth.conf"), "`FILE` to write")
	f.StringVar(&store, "take-over", "", "store `DIR` of a stopped nats-server of an earlier version, whose streams these keys get")
	_ = cmd.MarkFlagDirname("keys")
	_ = cmd.MarkFlagDirname("take-over")
	_ = cmd.MarkFlagFilename("include")
	return cmd
}
