package cli

import (
	"context"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/outbid-dev/outbid/orchestrator/api"
	"github.com/outbid-dev/outbid/orchestrator/server"
)

func (a *app) serveCommand() *cobra.Command {
	var o serverFlags
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the server of a cluster",
		Long: `Serve runs the orchestrator without a worker: the ledger, the control loop and the API. NATS runs in the same
process and listens on --nats-listen, or is named with --nats.

With --nats several servers may be started: one leads, those with --standby wait and take over when it is gone. NATS
must sync before it acknowledges ("sync_interval: always" in its configuration).

On its first start it makes the cluster's keys in DATA/keys, unless --keys names another directory: NATS lets in whom
they have signed, and workers take orders of nobody else. Whoever can read them is the server; standbys need the same.
A NATS of its own is told of them by 'outbid nats init'; one whose users somebody else makes takes --nats-creds or
--nats-nkey. Workers join one by one ('outbid worker token').

--policy says who gets which device; docs/choose-a-policy.md helps to choose.

Beyond loopback the API needs --tls-cert, --tls-key and --tokens, NATS a certificate.`,
		Example: `  outbid serve
  outbid serve --nats nats://127.0.0.1:4222 --store 's3://outbid/checkpoints?endpoint=http://127.0.0.1:9000'
  outbid serve --nats nats://127.0.0.1:4222 --standby --data .standby --keys .outbid/keys
  outbid serve --api 10.0.0.5:7700 --nats-listen 10.0.0.5:4222 --tls-cert tls/cert.pem --tls-key tls/key.pem --tokens tokens`,
		Args:              exactly(),
		ValidArgsFunction: cobra.NoFileCompletions,
		Annotations:       map[string]string{ownInterrupts: "drains"},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.settle(cmd.Flags()); err != nil {
				return err
			}
			if a.opts.tokenFile != "" {
				return errJoinTokenGone("serve")
			}
			if o.NATS.URL != "" && cmd.Flags().Changed("nats-listen") {
				return badInput("--nats names a NATS server, --nats-listen starts one here: give only one of them")
			}
			if o.Standby && o.NATS.URL == "" {
				return badInput("--standby wants --nats: the NATS in this process has no other orchestrator")
			}
			if o.NATS.URL == "" {
				o.NATS.AnyPort = !cmd.Flags().Changed("nats-listen")
			}
			return a.untilDone(cmd.Context(), func(ctx context.Context) error {
				return a.runServer(ctx, o.Config, a.greetServe)
			})
		},
	}
	commonFlags(cmd, &o)
	natsFlags(cmd, &o.NATS)
	f := cmd.Flags()
	f.StringVar(&o.NATS.URL, "nats", "", "`URL` of NATS, or several separated by commas; by default it runs in this process")
	f.StringVar(&o.NATS.Listen, "nats-listen", "127.0.0.1:4222", "`HOST:PORT` of the NATS in this process")
	f.IntVar(&o.NATS.Replicas, "nats-replicas", 1, "copies of the ledger in a NATS cluster")
	f.StringVar(&o.NATS.Keys, "keys", "", "`DIR` of the cluster's keys, made if missing (default: DATA/keys)")
	f.StringVar(&o.NATS.Public, "nats-public", "", "`URL` of NATS that workers are told when they join (default: the server's own)")
	f.BoolVar(&o.Standby, "standby", false, "with --nats: wait as long as another orchestrator leads, then take over")
	f.StringVar(&o.Name, "name", "", "name of this orchestrator among those that stand by (default: the machine's)")
	_ = cmd.MarkFlagDirname("keys")
	return cmd
}

// greetServe says where things are and how workers join.
func (a *app) greetServe(cfg server.Config, s *server.Server) {
	keys := cfg.NATS.Keys
	if keys == "" {
		keys = server.KeysDir(cfg.Data)
	}
	a.printf("outbid %s serves at %s\n", a.version, s.URL())
	a.printf("data is in %s, NATS at %s\n", cfg.Data, s.NATSURL())
	a.printf("next: outbid worker --keys %s --nats %s%s\n", keys, s.NATSURL(), authority(cfg))
	a.printf("on another machine: outbid worker join --server %s, with what 'outbid worker token --name NAME' prints here\n", s.URL())
}

// authority is the flag by which workers trust a certificate that 'outbid tls new' made.
func authority(cfg server.Config) string {
	ca := api.CertFiles(filepath.Dir(cfg.TLSCert)).CA
	if _, err := os.Stat(ca); cfg.TLSCert == "" || cfg.NATS.URL != "" || err != nil {
		return ""
	}
	return " --ca " + ca
}

// natsFlags are the flags of a command that connects to NATS.
func natsFlags(cmd *cobra.Command, o *server.NATSConfig) {
	f := cmd.Flags()
	f.StringVar(&o.Creds, "nats-creds", "", "NATS credentials `FILE`, for a NATS whose users somebody else makes")
	f.StringVar(&o.NKey, "nats-nkey", "", "`FILE` with an NKey seed, for such a NATS")
	_ = cmd.MarkFlagFilename("nats-creds")
	_ = cmd.MarkFlagFilename("nats-nkey")
}

// errJoinTokenGone is what a flag of the time when all shared one token gets.
func errJoinTokenGone(command string) error {
	if command == "serve" {
		return badInput("--token-file: there is no join token any more that all workers share: 'serve' makes the cluster's keys in " +
			"DATA/keys (--keys DIR for another place), and each worker joins with a token of its own " +
			"('outbid worker token --name NAME'; see docs/operate/deploy.md)")
	}
	return badInput("--token-file: there is no join token any more that all workers share: on the server run " +
		"'outbid worker token --name NAME > join.token', here 'outbid worker join --server URL --join-token join.token " +
		"--credentials DIR', then 'outbid worker --credentials DIR'")
}
