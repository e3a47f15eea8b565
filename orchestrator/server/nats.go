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

// NATSConfig says where NATS is and how to be let in.
type NATSConfig struct {
	// URL of NATS, or several separated by commas; empty for the one in the server's process.
	URL string
	// Listen is the HOST:PORT of the NATS in the server's process, by default a free port of 127.0.0.1. Beyond loopback it
	// takes a certificate.
	Listen string
	// AnyPort takes a free port if the one of Listen is taken.
	AnyPort bool
	// Keys is the directory of the cluster's keys, made if missing; by default Data/keys.
	Keys string
	// Public is where workers are told to reach NATS when they join; by default the server's own.
	Public string
	// Creds and NKey are files for a NATS whose users somebody else makes.
	Creds, NKey string
	// CA is a PEM file of the authority that signed the certificate of NATS; by default the system's authorities.
	CA string
	// Replicas is how many copies of the ledger a NATS cluster keeps; 0 is 1.
	Replicas int

	// host and port are what Listen says.
	host string
	port int
}

// connect connects to NATS as who, in memory if it is in this process.
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

// readAuthority reads the PEM file of an authority that signs certificates.
func readAuthority(caFile string) ([]byte, error) {
	pem, err := os.ReadFile(caFile)
	if err != nil {
		return nil, badField("NATS.CA", "%w", trimOp(err))
	}
	if !x509.NewCertPool().AppendCertsFromPEM(pem) {
		return nil, badValue("NATS.CA", caFile, "it holds no PEM certificate")
	}
	return pem, nil
}

// checkListen reads Listen and refuses an address beyond loopback without TLS: what trials print and what they are
// ordered to do would travel in the clear.
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
