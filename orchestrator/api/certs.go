package api

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/atomicfile"
)

// Certs are the files that MakeCert writes.
type Certs struct {
	// CA is the certificate for clients. CAKey is its key, which only MakeCert needs.
	CA, CAKey string
	// Cert and Key belong to the server.
	Cert, Key string
}

// CertFiles names the files that MakeCert writes in dir.
func CertFiles(dir string) Certs {
	return Certs{
		CA: filepath.Join(dir, "ca.pem"), CAKey: filepath.Join(dir, "ca-key.pem"),
		Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem"),
	}
}

const (
	caYears   = 10
	certYears = 2
)

// MakeCert creates a certificate authority in dir unless one exists, and a server certificate signed by it for loopback
// and for the hosts (names or addresses). Only the owner can read the keys. Clients need only Certs.CA.
func MakeCert(dir string, hosts []string, now time.Time) (Certs, error) {
	files := CertFiles(dir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return files, fmt.Errorf("make certificates: %w", err)
	}
	ca, caKey, err := loadOrMakeCA(files, now)
	if err != nil {
		return files, fmt.Errorf("certificate authority in %s: %w", dir, err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return files, fmt.Errorf("make server key: %w", err)
	}
	template, err := certTemplate("outbid", now, certYears)
	if err != nil {
		return files, err
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	// NATS servers of a cluster also present it to each other as clients.
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	for _, host := range append([]string{"localhost", "127.0.0.1", "::1"}, hosts...) {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca, &key.PublicKey, caKey)
	if err != nil {
		return files, fmt.Errorf("sign server certificate: %w", err)
	}
	return files, writePair(files.Cert, files.Key, der, key)
}

func loadOrMakeCA(files Certs, now time.Time) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	if pair, err := tls.LoadX509KeyPair(files.CA, files.CAKey); err == nil {
		key, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
		if !ok {
			return nil, nil, fmt.Errorf("%s does not contain an ECDSA key", files.CAKey)
		}
		return pair.Leaf, key, nil
	} else if !errors.Is(err, os.ErrNotExist) {
		return nil, nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template, err := certTemplate("outbid CA", now, caYears)
	if err != nil {
		return nil, nil, err
	}
	template.IsCA, template.BasicConstraintsValid, template.MaxPathLenZero = true, true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, nil, err
	}
	ca, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, nil, err
	}
	return ca, key, writePair(files.CA, files.CAKey, der, key)
}

func certTemplate(name string, now time.Time, years int) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("make serial number: %w", err)
	}
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: name, Organization: []string{"Outbid"}},
		// One hour earlier, for clients whose clocks are slow.
		NotBefore: now.Add(-time.Hour),
		NotAfter:  now.AddDate(years, 0, 0),
	}, nil
}

func writePair(certFile, keyFile string, der []byte, key *ecdsa.PrivateKey) error {
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return fmt.Errorf("encode key: %w", err)
	}
	if err := writePEM(keyFile, "PRIVATE KEY", keyDER, 0o600); err != nil {
		return err
	}
	return writePEM(certFile, "CERTIFICATE", der, 0o644)
}

// writePEM replaces the file atomically so that a starting server never reads a partial file.
func writePEM(path, kind string, der []byte, mode os.FileMode) error {
	return atomicfile.Write(path, mode, func(w *os.File) error {
		return pem.Encode(w, &pem.Block{Type: kind, Bytes: der})
	})
}

// Certificate is a server's certificate and key, which can be renewed while the server runs.
type Certificate struct {
	certFile, keyFile string
	now               func() time.Time
	pair              atomic.Pointer[tls.Certificate]
}

// LoadCertificate reads a certificate and its key, from MakeCert or elsewhere. A certificate that is not valid at the
// time now() is an error because no client would trust it.
func LoadCertificate(certFile, keyFile string, now func() time.Time) (*Certificate, error) {
	c := &Certificate{certFile: certFile, keyFile: keyFile, now: now}
	if _, err := c.Reload(); err != nil {
		return nil, err
	}
	return c, nil
}

// Reload reads the files again for later connections, and reports whether the certificate changed. After an error the
// previous certificate stays in use.
func (c *Certificate) Reload() (changed bool, err error) {
	pair, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err != nil {
		return false, fmt.Errorf("load TLS certificate: %w; create one with: outbid tls new --dir %s --host NAME", err,
			filepath.Dir(c.certFile))
	}
	if err := c.checkTime(pair.Leaf); err != nil {
		return false, err
	}
	old := c.pair.Swap(&pair)
	return old != nil && !old.Leaf.Equal(pair.Leaf), nil
}

func (c *Certificate) checkTime(leaf *x509.Certificate) error {
	now := c.now()
	switch {
	case now.Before(leaf.NotBefore):
		return fmt.Errorf("TLS certificate %s is not valid before %s, and the time is %s: set this machine's clock, or use another "+
			"certificate", c.certFile, leaf.NotBefore.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	case !now.Before(leaf.NotAfter):
		return fmt.Errorf("TLS certificate %s expired at %s: create another with: outbid tls new --dir %s --host NAME",
			c.certFile, leaf.NotAfter.UTC().Format(time.RFC3339), filepath.Dir(c.certFile))
	}
	return nil
}

// Expires returns when the certificate expires.
func (c *Certificate) Expires() time.Time { return c.pair.Load().Leaf.NotAfter }

// Config returns a TLS configuration for servers; each connection uses the newest certificate.
func (c *Certificate) Config() *tls.Config {
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.pair.Load(), nil },
	}
}

// LoadTLS returns the TLS configuration of a server that does not renew its certificate.
func LoadTLS(certFile, keyFile string) (*tls.Config, error) {
	c, err := LoadCertificate(certFile, keyFile, time.Now)
	if err != nil {
		return nil, err
	}
	return c.Config(), nil
}
