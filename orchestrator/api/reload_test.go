package api

import (
	"crypto/tls"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestTokensAreReadAnew(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "tokens")
	ann, err := MakeToken(path, Principal{Name: "ann", Tenant: "vision", Role: RoleUser})
	if err != nil {
		t.Fatal(err)
	}
	tokens, err := LoadTokens(path)
	if err != nil {
		t.Fatal(err)
	}
	if changed, err := tokens.Reload(); changed || err != nil {
		t.Errorf("nothing was changed: %v, %v", changed, err)
	}
	bob, err := MakeToken(path, Principal{Name: "bob", Tenant: "speech", Role: RoleUser})
	if err != nil {
		t.Fatal(err)
	}
	if changed, err := tokens.Reload(); !changed || err != nil {
		t.Errorf("a token was added: %v, %v", changed, err)
	}
	knows := func(token string) bool { _, ok := tokens.find(token); return ok }
	if !knows(ann) || !knows(bob) {
		t.Error("not both are known")
	}
	if err := os.WriteFile(path, []byte("half a li"), 0o600); err != nil {
		t.Fatal(err)
	}
	if changed, err := tokens.Reload(); changed || err == nil || !knows(ann) {
		t.Errorf("a damaged file: %v, %v; ann is known: %v", changed, err, knows(ann))
	}
	if err := os.WriteFile(path, []byte(bob+" bob speech user\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if changed, err := tokens.Reload(); !changed || err != nil || knows(ann) || !knows(bob) {
		t.Errorf("a token was taken out: %v, %v; ann is known: %v", changed, err, knows(ann))
	}
}

func TestACertificateIsReadAnew(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	files, err := MakeCert(dir, []string{"a.example"}, time.Now().Add(-48*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	cert, err := LoadCertificate(files.Cert, files.Key, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	conf := cert.Config() // servers keep this value
	shown := func() *tls.Certificate {
		c, err := conf.GetCertificate(&tls.ClientHelloInfo{})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	first, end := shown(), cert.Expires()
	if changed, err := cert.Reload(); changed || err != nil {
		t.Errorf("nothing was changed: %v, %v", changed, err)
	}
	if _, err := MakeCert(dir, []string{"b.example"}, time.Now()); err != nil {
		t.Fatal(err)
	}
	if changed, err := cert.Reload(); !changed || err != nil {
		t.Errorf("it was renewed: %v, %v", changed, err)
	}
	if shown().Leaf.Equal(first.Leaf) || !cert.Expires().After(end) || shown().Leaf.VerifyHostname("b.example") != nil {
		t.Error("connections get the old one")
	}
	if err := os.Remove(files.Key); err != nil {
		t.Fatal(err)
	}
	if changed, err := cert.Reload(); changed || err == nil || shown() == nil {
		t.Errorf("its key is gone: %v, %v", changed, err)
	}
}

func TestACertificateOfAnotherTimeIsRefused(t *testing.T) {
	t.Parallel()
	files, err := MakeCert(t.TempDir(), []string{"a.example"}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	at := func(years int) func() time.Time { return func() time.Time { return time.Now().AddDate(years, 0, 0) } }
	if _, err := LoadCertificate(files.Cert, files.Key, at(3)); err == nil || !strings.Contains(err.Error(), "expired at") ||
		!strings.Contains(err.Error(), "outbid tls new") {
		t.Errorf("an expired one: %v", err)
	}
	if _, err := LoadCertificate(files.Cert, files.Key, at(-1)); err == nil || !strings.Contains(err.Error(), "is not valid before") {
		t.Errorf("a certificate that is not valid yet: %v", err)
	}
	cert, err := LoadCertificate(files.Cert, files.Key, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	end := cert.Expires()
	if _, err := MakeCert(filepath.Dir(files.Cert), nil, time.Now().AddDate(-3, 0, 0)); err != nil {
		t.Fatal(err)
	}
	if changed, err := cert.Reload(); changed || err == nil || !cert.Expires().Equal(end) {
		t.Errorf("it was replaced by an expired one: %v, %v, ends %s", changed, err, cert.Expires())
	}
}
