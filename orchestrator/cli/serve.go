package cli

import (
	"context"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/outbid-dev/outbid/orchestrator/api"
	"github.com/outbid-dev/outbid/orchestrator/pods"
	"github.com/outbid-dev/outbid/orchestrator/server"
	"github.com/outbid-dev/outbid/orchestrator/settings"
)

// serverCommands start servers: serve and up.
type serverCommands struct {
	*process
	edition Edition
	// checkServe checks the configuration of serve, after its flags are set.
	checkServe func() error
}

func (sv *serverCommands) serveCommand() *cobra.Command {
	var o serverFlags
	var auditLog string
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the server of a cluster",
		Long: `Serve runs the orchestrator without a worker: the ledger, the control loop and the API. NATS runs in the same
process and listens on --nats-listen, or is named with --nats.

With --nats several servers can run: one leads, those with --standby wait and take over when it is gone. NATS must sync
before it acknowledges ("sync_interval: always" in its configuration).

The first start creates the cluster's keys in DATA/keys, or in the directory of --keys. NATS admits only clients that
these keys signed, and workers accept only orders signed by them. Anyone who can read them can act as the server;
standbys need the same keys. Configure a separate NATS with 'outbid nats init'; for a NATS with separately managed
users give --nats-creds or --nats-nkey. Workers join one by one ('outbid worker token'). In a Kubernetes pod,
--service-accounts admits pods with a projected ServiceAccount token, without further flags.

--policy selects the policy that gives devices to trials; docs/choose-a-policy.md helps to choose. Further flags, for
identity providers and Kubernetes, are in docs/reference/cli.md.

Beyond loopback the API requires --tls-cert, --tls-key and --tokens, and NATS requires a certificate.

With --oidc-issuer-url people sign in with an OpenID provider, in the dashboard and with 'outbid login', and --tokens is
optional. --oidc-bindings gives each user or group a tenant and a role (docs/operate/sign-in.md).`,
		Example: `  outbid serve
  outbid serve --nats nats://127.0.0.1:4222 --store 's3://outbid/checkpoints?endpoint=http://127.0.0.1:9000'
  outbid serve --nats nats://127.0.0.1:4222 --standby --data .standby --keys .outbid/keys
  outbid serve --api 10.0.0.5:7700 --nats-listen 10.0.0.5:4222 --tokens tokens --tls-cert tls/cert.pem --tls-key tls/key.pem`,
		Args:              exactArgs(),
		ValidArgsFunction: cobra.NoFileCompletions,
		Annotations:       map[string]string{ownInterrupts: "drains", globalFlags: "ca " + globalLog},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if sv.opts.tokenFile != "" {
				return badInput("--token-file: is for commands that call a server; --tokens names the tokens that this server accepts")
			}
			return sv.serve(cmd, &o, auditLog)
		},
	}
	sv.commonFlags(cmd, &o)
	natsFlags(cmd, &o.NATS)
	oidcFlags(cmd, &o.OIDC)
	f := cmd.Flags()
	clusterFlags(f, &o.NATS)
	f.BoolVar(&o.Standby, "standby", false, "with --nats: wait while another server leads, then take over")
	f.StringVar(&auditLog, "audit-log", "", "append each record of the audit to `FILE` as a line of JSON; - is standard output")
	f.StringVar(&o.Name, "name", "", "unique name of this server among standbys (default: the machine's)")
	_ = cmd.MarkFlagDirname("keys")
	_ = cmd.MarkFlagFilename("audit-log")
	serviceAccountFlags(cmd, &o.ServiceAccounts, &o.LeaderLabel)
	sv.checkServe = func() error {
		if err := o.prepareServe(f); err != nil {
			return err
		}
		return o.Check()
	}
	return sv.configurable(cmd)
}

// serve runs a server until it ends.
func (sv *serverCommands) serve(cmd *cobra.Command, o *serverFlags, auditLog string) error {
	if err := o.prepareServe(cmd.Flags()); err != nil {
		return err
	}
	closeAudit, err := sv.openAuditLog(auditLog, &o.Config)
	if err != nil {
		return err
	}
	defer closeAudit()
	return sv.untilDone(cmd.Context(), func(ctx context.Context) error {
		log, err := sv.logger()
		if err != nil {
			return err
		}
		o.Reload = sv.reloads(ctx, func() ([]settings.Setting, error) {
			fresh := &serverCommands{process: &process{client: &client{console: sv.console, getenv: sv.getenv}}, edition: sv.edition}
			return fresh.settingsOfNew(fresh.serveCommand(), sv.configFile(cmd))
		}, log)
		return sv.runServer(ctx, o.Config, sv.greetServe)
	})
}

// prepareServe parses the flags of serve.
func (o *serverFlags) prepareServe(flags *pflag.FlagSet) error {
	if err := o.parse(flags); err != nil {
		return err
	}
	if o.NATS.URL != "" && flags.Changed("nats-listen") {
		return badInput("--nats names a NATS server, --nats-listen starts one here: give only one of them")
	}
	if o.Standby && o.NATS.URL == "" {
		return badInput("--standby requires --nats: the NATS in this process does not serve another orchestrator")
	}
	if o.NATS.URL == "" {
		o.NATS.AnyPort = !flags.Changed("nats-listen")
	}
	return nil
}

// openAuditLog opens the file that --audit-log names for the server's configuration.
func (sv *serverCommands) openAuditLog(path string, cfg *server.Config) (closeFile func(), err error) {
	switch path {
	case "":
		return func() {}, nil
	case "-":
		cfg.AuditLog = sv.stdout
		return func() {}, nil
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, badInput("--audit-log: %w", err)
	}
	cfg.AuditLog = f
	return func() { _ = f.Close() }, nil
}

// serviceAccountFlags adds the flags for workers in Kubernetes pods.
func serviceAccountFlags(cmd *cobra.Command, s *pods.Source, label *string) {
	f := cmd.Flags()
	f.StringSliceVar(&s.Accounts, "service-accounts", nil, "`ACCOUNTS` whose Kubernetes pods may join, as NAMESPACE/NAME,...")
	f.StringVar(label, "leader-label", "", "`NAME=VALUE` that labels this Kubernetes pod while it leads")
	f.StringVar(&s.Audience, "service-account-audience", pods.DefaultAudience, "audience of their tokens")
	f.StringVar(&s.Issuer, "service-account-issuer", "", "`URL` of their issuer (default: this pod's)")
	f.StringVar(&s.Keys, "service-account-jwks", "", "`FILE` or URL of its keys (default: this pod's API server)")
	f.StringVar(&s.CAFile, "service-account-ca", "", "PEM `FILE` of the authority for that URL")
	_ = cmd.MarkFlagFilename("service-account-jwks")
	_ = cmd.MarkFlagFilename("service-account-ca")
	markRare(cmd, "service-accounts", "leader-label", "service-account-audience", "service-account-issuer", "service-account-jwks", "service-account-ca")
}

// clusterFlags adds the flags that only a server of a cluster has.
func clusterFlags(f *pflag.FlagSet, o *server.NATSConfig) {
	f.StringVar(&o.URL, "nats", "", "`URL` of NATS, or several separated by commas; by default it runs in this process")
	f.StringVar(&o.Listen, "nats-listen", "127.0.0.1:4222", "`HOST:PORT` of the NATS in this process")
	f.IntVar(&o.Replicas, "nats-replicas", 1, "copies of the ledger in a NATS cluster")
	f.StringVar(&o.Keys, "keys", "", "`DIR` of the cluster's keys, created if missing (default: DATA/keys)")
	f.StringVar(&o.Public, "nats-public", "", "`URL` of NATS for workers that join (default: the server's)")
}

// greetServe prints the server's addresses and how workers join.
func (sv *serverCommands) greetServe(cfg server.Config, s *server.Server) {
	keys := cfg.NATS.Keys
	if keys == "" {
		keys = server.KeysDir(cfg.Data)
	}
	sv.printf("outbid %s serves at %s\n", sv.version, s.URL())
	sv.printf("data is in %s, NATS at %s, the dashboard at %s\n", cfg.Data, s.NATSURL(), pageURL(s.URL(), ""))
	sv.printf("next: outbid worker --keys %s --nats %s%s\n", keys, s.NATSURL(), caFlag(cfg))
	sv.printf("on another machine: outbid worker join --server %s, with the output of 'outbid worker token --name NAME' here\n", s.URL())
}

// caFlag returns the flag that makes workers trust a certificate of 'outbid tls new'.
func caFlag(cfg server.Config) string {
	ca := api.CertFiles(filepath.Dir(cfg.TLSCert)).CA
	if _, err := os.Stat(ca); cfg.TLSCert == "" || cfg.NATS.URL != "" || err != nil {
		return ""
	}
	return " --ca " + ca
}

// natsFlags adds the flags of commands that connect to NATS.
func natsFlags(cmd *cobra.Command, o *server.NATSConfig) {
	f := cmd.Flags()
	f.StringVar(&o.Creds, "nats-creds", "", "NATS credentials `FILE`, for a NATS with separately managed users")
	f.StringVar(&o.NKey, "nats-nkey", "", "`FILE` with an NKey seed, for a NATS with separately managed users")
	_ = cmd.MarkFlagFilename("nats-creds")
	_ = cmd.MarkFlagFilename("nats-nkey")
}
