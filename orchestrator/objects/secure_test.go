package objects_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/outbid-dev/outbid/orchestrator/objects"
	"github.com/outbid-dev/outbid/orchestrator/objects/objectstest"
)

// certificateDir has the certificate and key of a local server, signed by an authority that this process trusts.
var certificateDir string

// ownAuthority creates an authority, and server.crt and server.key signed by it in a directory. It returns the
// authority's certificate.
func ownAuthority(dir string) ([]byte, error) {
	authority := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "an authority of a test"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	server := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "localhost"}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	root, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	rootDER, rootErr := x509.CreateCertificate(rand.Reader, authority, authority, &root.PublicKey, root)
	serverDER, serverErr := x509.CreateCertificate(rand.Reader, server, authority, &key.PublicKey, root)
	keyDER, keyErr := x509.MarshalPKCS8PrivateKey(key)
	if err := errors.Join(rootErr, serverErr, keyErr); err != nil {
		return nil, err
	}
	encode := func(kind string, der []byte) []byte { return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}) }
	return encode("CERTIFICATE", rootDER), errors.Join(
		os.WriteFile(filepath.Join(dir, "server.crt"), encode("CERTIFICATE", serverDER), 0o600),
		os.WriteFile(filepath.Join(dir, "server.key"), encode("PRIVATE KEY", keyDER), 0o600),
	)
}

// TestVersityOverTLS runs the suite with a real TLS server and a private authority, directly and through signatures.
func TestVersityOverTLS(t *testing.T) {
	t.Parallel()
	m := objectstest.StartVersityTLS(t, filepath.Join(certificateDir, "server.crt"), filepath.Join(certificateDir, "server.key"))
	urls := objectstest.URLs(m.Endpoint)
	objectstest.Run(t, func(t *testing.T) objects.Store {
		return signedThrough(t, urls())
	})
}

// TestAnUnknownAuthorityIsRefused checks that an untrusted certificate is rejected with a one-line message that has a
// solution.
func TestAnUnknownAuthorityIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, err := ownAuthority(dir); err != nil { // another one
		t.Fatal(err)
	}
	cert, err := tls.LoadX509KeyPair(filepath.Join(dir, "server.crt"), filepath.Join(dir, "server.key"))
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError) // it logs who rejects it
	server.StartTLS()
	t.Cleanup(server.Close)
	for err == nil && t.Context().Err() == nil { // on a busy machine it may take longer than openTimeout
		_, err = objects.Open(t.Context(), "s3://bucket?region=us-east-1&endpoint="+server.URL)
	}
	if err == nil || errors.Is(err, objects.ErrUnavailable) || !strings.Contains(err.Error(), "SSL_CERT_FILE") {
		t.Errorf("%v; want what to do about the certificate", err)
	}
}

// withoutCredentials removes the credentials of other tests.
func withoutCredentials(t *testing.T) {
	t.Helper()
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY", "AWS_SECRET_KEY", "MINIO_ROOT_USER", "MINIO_ROOT_PASSWORD"} {
		t.Setenv(name, "")
	}
	t.Setenv("HOME", t.TempDir())
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", filepath.Join(t.TempDir(), "none"))
}

// TestCredentialsOfAFileAndOfAnInstance checks that credentials come from a file or from the instance's role if the
// environment does not have any, and that a real server accepts them.
func TestCredentialsOfAFileAndOfAnInstance(t *testing.T) {
	m := objectstest.StartVersity(t)
	urls := objectstest.URLs(m.Endpoint)
	t.Run("none", func(t *testing.T) {
		withoutCredentials(t)
		if _, err := objects.Open(t.Context(), urls()); err == nil || !strings.Contains(err.Error(), "set AWS_ACCESS_KEY_ID") {
			t.Errorf("without credentials: %v", err)
		}
	})
	t.Run("file", func(t *testing.T) {
		withoutCredentials(t)
		path := filepath.Join(t.TempDir(), "credentials")
		text := "[default]\naws_access_key_id = " + user + "\naws_secret_access_key = " + password + "\n"
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		t.Setenv("AWS_SHARED_CREDENTIALS_FILE", path)
		if err := open(t, urls()).Check(t.Context()); err != nil {
			t.Error(err)
		}
	})
	answer := `{"Code":"Success","AccessKeyId":"` + user + `","SecretAccessKey":"` + password + `","Token":"","Expiration":"` +
		time.Now().Add(time.Hour).UTC().Format(time.RFC3339) + `"}`
	t.Run("instance", func(t *testing.T) {
		withoutCredentials(t)
		const role = "/latest/meta-data/iam/security-credentials/"
		service := serving(t, map[string]string{"/latest/api/token": "a token", role: "worker", role + "worker": answer})
		t.Setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", service)
		if err := open(t, urls()).Check(t.Context()); err != nil {
			t.Error(err)
		}
	})
	t.Run("container", func(t *testing.T) {
		withoutCredentials(t)
		t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", serving(t, map[string]string{"/role": answer})+"/role")
		if err := open(t, urls()).Check(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// serving answers paths with texts.
func serving(t *testing.T, texts map[string]string) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if text, ok := texts[r.URL.Path]; ok {
			_, _ = w.Write([]byte(text))
			return
		}
		http.NotFound(w, r)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// TestNothingListsButList checks that frequent operations never list a bucket: each is one request, or one for each
// part or range of an object.
func TestNothingListsButList(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var seen []string
	fake := gofakes3.New(s3mem.New()).Server()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		kind := r.Method
		if r.URL.Query().Has("list-type") || r.URL.Query().Has("prefix") {
			kind = "list"
		}
		seen = append(seen, kind)
		mu.Unlock()
		fake.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	s := open(t, objectstest.URLs(server.URL)())
	ctx := t.Context()
	path := filepath.Join(t.TempDir(), "file")
	big := strings.Repeat("x", 40<<20)
	for _, c := range []struct {
		what     string
		requests int
		do       func() error
	}{
		{"put", 1, func() error { return s.Put(ctx, "a/b", strings.NewReader("text"), 4) }},
		{"put in three parts", 5, func() error { return s.Put(ctx, "a/large", strings.NewReader(big), int64(len(big))) }},
		{"get a file", 1, func() error { _, _, err := objects.GetFile(ctx, s, "a/b", path); return err }},
		{"put a file", 1, func() error { _, _, err := objects.PutFile(ctx, s, "a/c", path); return err }},
		{"stat", 1, func() error { _, err := s.Stat(ctx, "a/b"); return err }},
		{"read in place", 1, func() error {
			r := objects.NewRanged(ctx, s, "a/large", int64(len(big)))
			defer r.Close()
			for off := int64(0); off < int64(len(big)); off += 1 << 20 {
				if _, err := r.ReadAt(make([]byte, 1<<20), off); err != nil {
					return err
				}
			}
			return nil
		}},
		{"delete", 1, func() error { return s.Delete(ctx, "a/b") }},
		{"delete what is not there", 1, func() error { return s.Delete(ctx, "a/b") }},
	} {
		mu.Lock()
		seen = nil
		mu.Unlock()
		if err := c.do(); err != nil {
			t.Errorf("%s: %v", c.what, err)
		}
		mu.Lock()
		if len(seen) != c.requests || strings.Contains(strings.Join(seen, " "), "list") {
			t.Errorf("%s took the requests %v; want %d, and no list", c.what, seen, c.requests)
		}
		mu.Unlock()
	}
}
