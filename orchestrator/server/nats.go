package server

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

	"github.com/outbid-dev/outbid/orchestrator/bus"
	"github.com/outbid-dev/outbid/orchestrator/identity"
)

// NATSConfig locates NATS and has the credentials for it.
type NATSConfig struct {
	// URL of NATS, or several separated by commas; empty for the one in the server's process.
	URL string
	// Listen is the HOST:PORT of the NATS in the server's process, by default a free port of 127.0.0.1. Beyond loopback
	// it requires a certificate.
	Listen string
	// AnyPort chooses a free port if that of Listen is taken.
	AnyPort bool
	// Keys is the directory of the cluster's keys, created if missing; by default Data/keys.
	Keys string
	// Public is the URL of NATS for workers that join; by default the server's own.
	Public string
	// Creds and NKey are files for a NATS with separately managed users.
	Creds, NKey string
	// CA is a PEM file with the authority of NATS's certificate; by default the system's authorities.
	CA string
	// Replicas is the number of copies of the ledger in a NATS cluster; 0 means 1.
	Replicas int

	// host and port are parsed from Listen.
	host string
	port int
}

// connect connects to NATS with the given credentials; in memory if NATS is in this process.
func (o NATSConfig) connect(ctx context.Context, who *identity.Credentials, embedded *bus.Server, name string,
	log *slog.Logger,
) (*nats.Conn, error) {
	cfg := bus.ConnConfig{
		URL: o.URL, Creds: o.Creds, NKey: o.NKey, Name: name, Server: embedded, Logger: log,
	}
	if o.Creds == "" && o.NKey == "" {
		cfg.User = who
	}
	if o.CA != "" && embedded == nil {
		pem, err := readAuthority(o.CA)
		if err != nil {
			return nil, err
		}
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(pem)
		cfg.TLS = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}
	}
	return bus.Connect(ctx, cfg)
}

// readAuthority reads the PEM file of a certificate authority.
func readAuthority(caFile string) ([]byte, error) {
	pem, err := os.ReadFile(caFile)
	if err != nil {
		return nil, badField("NATS.CA", "%w", trimOp(err))
	}
	if !x509.NewCertPool().AppendCertsFromPEM(pem) {
		return nil, badValue("NATS.CA", caFile, "does not contain a PEM certificate")
	}
	return pem, nil
}

// checkListen parses Listen, and rejects an address beyond loopback without TLS, because orders and the output of
// trials would be sent unencrypted.
func (o *NATSConfig) checkListen(secure bool) error {
	host, text, err := net.SplitHostPort(o.Listen)
	if err == nil {
		o.port, err = strconv.Atoi(text)
	}
	if err != nil || o.port < 0 || o.port > 65535 {
		return badValue("NATS.Listen", o.Listen, "want HOST:PORT, such as 127.0.0.1:4222")
	}
	if host == "localhost" {
		host = "127.0.0.1"
	}
	o.host = host
	if ip := net.ParseIP(host); secure || ip != nil && ip.IsLoopback() {
		return nil
	}
	return badValue("NATS.Listen", o.Listen, "beyond loopback NATS needs a certificate and its key; make them with "+
		"'outbid tls new --host %s'", strings.Trim(host, "[]"))
}
