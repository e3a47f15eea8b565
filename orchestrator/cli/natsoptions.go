package cli

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/outbid-dev/outbid/orchestrator/bus"
	"github.com/outbid-dev/outbid/orchestrator/identity"
)

// natsOptions say where NATS is and how to be let in.
type natsOptions struct {
	// url of NATS; empty for the one in this process, which listens on host and port.
	url  string
	host string
	port int
	// anyPort takes a free port if that one is taken.
	anyPort bool
	// keys is the directory of the cluster's keys.
	keys string
	// public is where workers reach NATS, if not at url.
	public string
	// creds and nkey are for a NATS whose users somebody else makes.
	creds, nkey string
	replicas    int
}

// natsFlags are the flags of a command that connects to NATS.
func natsFlags(cmd *cobra.Command, o *natsOptions) {
	f := cmd.Flags()
	f.StringVar(&o.creds, "nats-creds", "", "NATS credentials `FILE`, for a NATS whose users somebody else makes")
	f.StringVar(&o.nkey, "nats-nkey", "", "`FILE` with an NKey seed, for such a NATS")
	_ = cmd.MarkFlagFilename("nats-creds")
	_ = cmd.MarkFlagFilename("nats-nkey")
}

// connect connects to NATS as who, in memory if it is in this process.
func (o natsOptions) connect(ctx context.Context, who *identity.Credentials, embedded *bus.Server, name, caFile string,
	log *slog.Logger,
) (*nats.Conn, error) {
	cfg := bus.ConnConfig{
		URL: o.url, Creds: o.creds, NKey: o.nkey, Name: name, Server: embedded, Logger: log,
	}
	if o.creds == "" && o.nkey == "" {
		cfg.User = who
	}
	if caFile != "" && embedded == nil {
		pem, err := os.ReadFile(caFile)
		if err != nil {
			return nil, badInput("--ca: %w", trimOp(err))
		}
		roots := x509.NewCertPool()
		if !roots.AppendCertsFromPEM(pem) {
			return nil, badInput("--ca %s holds no PEM certificate", caFile)
		}
		cfg.TLS = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}
	}
	return bus.Connect(ctx, cfg)
}

// checkNATSListen reads HOST:PORT and refuses an address beyond loopback without TLS: what trials print and what they
// are ordered to do would travel in the clear.
func checkNATSListen(addr string, secure bool) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(addr)
	if err == nil {
		port, err = strconv.Atoi(text)
	}
	if err != nil || port < 0 || port > 65535 {
		return "", 0, badInput("--nats-listen %q: want HOST:PORT, such as 127.0.0.1:4222", addr)
	}
	if host == "localhost" {
		host = "127.0.0.1"
	}
	if ip := net.ParseIP(host); secure || ip != nil && ip.IsLoopback() {
		return host, port, nil
	}
	return "", 0, badInput("--nats-listen %s: beyond loopback NATS needs a certificate: give --tls-cert and --tls-key; "+
		"make them with 'outbid tls new --host %s'", addr, strings.Trim(host, "[]"))
}
