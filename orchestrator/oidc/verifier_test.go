package oidc_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/outbid-dev/outbid/orchestrator/oidc"
	"github.com/outbid-dev/outbid/orchestrator/oidc/oidctest"
)

// ann is the person of these tests.
func ann() map[string]any {
	return map[string]any{
		"sub": "7f0", "preferred_username": "ann", "email": "ann@example.org", "email_verified": true, "groups": []string{"vision", "staff"},
	}
}

// clock is a time that tests set.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func newVerifier(t *testing.T, cfg oidc.Config) *oidc.Verifier {
	t.Helper()
	if cfg.ClientID == "" {
		cfg.ClientID = oidctest.ClientID
	}
	v, err := oidc.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestVerifyReturnsNameAndGroups(t *testing.T) {
	t.Parallel()
	p := oidctest.New(t, ann())
	for claim, want := range map[string]string{"": "7f0", "preferred_username": "ann", "email": "ann@example.org"} {
		v := newVerifier(t, oidc.Config{Issuer: p.URL(), UsernameClaim: claim, GroupsClaim: "groups"})
		who, err := v.Verify(t.Context(), p.Token(nil))
		if err != nil {
			t.Fatal(err)
		}
		if who.Name != want || who.Subject != "7f0" || !slices.Equal(who.Groups, []string{"vision", "staff"}) {
			t.Errorf("claim %q: got %q, subject %q, groups %q", claim, who.Name, who.Subject, who.Groups)
		}
	}
	v := newVerifier(t, oidc.Config{Issuer: p.URL()})
	who, err := v.Verify(t.Context(), p.Token(map[string]any{"kubernetes.io": map[string]any{"namespace": "team"}}))
	var in struct{ Namespace string }
	if has, claimErr := who.Claim("kubernetes.io", &in); err != nil || claimErr != nil || !has || in.Namespace != "team" || who.Groups != nil {
		t.Errorf("got %v %v, claim %v %+v, groups %q", err, claimErr, has, in, who.Groups)
	}
	if has, err := who.Claim("absent", &in); has || err != nil {
		t.Errorf("absent claim: got %v, %v", has, err)
	}
}

func TestVerifyRefuses(t *testing.T) {
	t.Parallel()
	p := oidctest.New(t, ann())
	other := oidctest.New(t, ann())
	now := time.Now().Unix()
	whole := map[string]any{"iss": p.URL(), "aud": oidctest.ClientID, "sub": "7f0", "exp": now + 60}
	secret := oidctest.Sign(t, whole, jose.HS256, []byte(strings.Repeat("k", 32)), "")
	for name, c := range map[string]struct{ token, want string }{
		"wrong audience":   {p.Token(map[string]any{"aud": "other"}), `expected audience "outbid-cli" got ["other"]`},
		"expired":          {p.Token(map[string]any{"exp": now - 1}), "the token expired at "},
		"not yet valid":    {p.Token(map[string]any{"nbf": now + 3600}), "not before"},
		"unsigned":         {oidctest.Unsigned(t, whole), `the token is signed with "none": must be one of RS256`},
		"shared secret":    {secret, `the token is signed with "HS256"`},
		"other issuer":     {p.Token(map[string]any{"iss": other.URL()}), "issued by a different provider"},
		"foreign key":      {other.Token(map[string]any{"iss": p.URL()}), "none of the 1 keys at "},
		"no name":          {p.Token(map[string]any{"preferred_username": nil}), `username claim "preferred_username": the token does not have it; it has "aud"`},
		"name no string":   {p.Token(map[string]any{"preferred_username": 7}), `username claim "preferred_username": must be a string, got 7`},
		"name with escape": {p.Token(map[string]any{"preferred_username": "a\x1b[2J"}), "printable"},
		"long name":        {p.Token(map[string]any{"preferred_username": strings.Repeat("a", 257)}), "at most 256 bytes, got 257"},
		"groups no list":   {p.Token(map[string]any{"groups": map[string]any{}}), `groups claim "groups": must be a list of strings, got {}`},
		"no token":         {"abc", "the token is not valid"},
	} {
		v := newVerifier(t, oidc.Config{Issuer: p.URL(), UsernameClaim: "preferred_username", GroupsClaim: "groups"})
		_, err := v.Verify(t.Context(), c.token)
		if err == nil || !strings.Contains(err.Error(), c.want) || errors.Is(err, oidc.ErrUnavailable) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
	v := newVerifier(t, oidc.Config{Issuer: p.URL(), UsernameClaim: "email"})
	if _, err := v.Verify(t.Context(), p.Token(map[string]any{"email_verified": false})); err == nil || !strings.Contains(err.Error(), "email_verified must be true") {
		t.Errorf("unverified e-mail address: got %v", err)
	}
}

func TestVerifyAcceptsOneGroupAsText(t *testing.T) {
	t.Parallel()
	p := oidctest.New(t, ann())
	v := newVerifier(t, oidc.Config{Issuer: p.URL(), GroupsClaim: "groups"})
	who, err := v.Verify(t.Context(), p.Token(map[string]any{"groups": "vision"}))
	if err != nil || !slices.Equal(who.Groups, []string{"vision"}) {
		t.Errorf("got %q, %v", who.Groups, err)
	}
}

func TestProviderThatIsDown(t *testing.T) {
	t.Parallel()
	p := oidctest.New(t, ann())
	p.SetDown(true)
	at := &clock{now: time.Now()}
	v := newVerifier(t, oidc.Config{Issuer: p.URL(), Now: at.Now})
	token := p.Token(map[string]any{"exp": at.Now().Add(time.Hour).Unix()})
	for range 3 {
		_, err := v.Verify(t.Context(), token)
		if !errors.Is(err, oidc.ErrUnavailable) || !strings.Contains(err.Error(), p.URL()) || !strings.Contains(err.Error(), "503") {
			t.Fatalf("got %v", err)
		}
	}
	if n := p.Count("/.well-known/openid-configuration"); n != 1 {
		t.Errorf("asked %d times within one pause, want 1", n)
	}
	p.SetDown(false)
	at.add(6 * time.Second)
	if _, err := v.Verify(t.Context(), token); err != nil {
		t.Fatal(err)
	}

	// Known keys remain in use while the provider is down, also when they are due.
	p.SetDown(true)
	for range 4 {
		at.add(10 * time.Minute)
		if _, err := v.Verify(t.Context(), token); err != nil {
			t.Fatalf("with known keys: %v", err)
		}
	}
	old := token
	p.Rotate(t)
	at.add(6 * time.Second)
	if _, err := v.Verify(t.Context(), p.Token(map[string]any{"exp": at.Now().Add(time.Hour).Unix()})); !errors.Is(err, oidc.ErrUnavailable) {
		t.Errorf("a new key while the provider is down: got %v", err)
	}
	if _, err := v.Verify(t.Context(), old); err != nil {
		t.Errorf("the known key after an unknown one: %v", err)
	}
}

func TestKeyRotation(t *testing.T) {
	t.Parallel()
	p := oidctest.New(t, ann())
	at := &clock{now: time.Now()}
	v := newVerifier(t, oidc.Config{Issuer: p.URL(), Now: at.Now})
	old := p.Token(map[string]any{"exp": at.Now().Add(time.Hour).Unix()})
	if _, err := v.Verify(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	p.Rotate(t)
	at.add(6 * time.Second)
	if _, err := v.Verify(t.Context(), p.Token(nil)); err != nil {
		t.Errorf("a new key: %v", err)
	}
	if _, err := v.Verify(t.Context(), old); err == nil {
		t.Error("the withdrawn key is still accepted")
	}
	before := p.Count("/keys")
	foreign := oidctest.New(t, ann())
	for range 20 {
		if _, err := v.Verify(t.Context(), foreign.Token(map[string]any{"iss": p.URL()})); err == nil {
			t.Fatal("a foreign key is accepted")
		}
	}
	if n := p.Count("/keys") - before; n > 1 {
		t.Errorf("20 tokens with unknown keys caused %d requests", n)
	}

	// A withdrawn key is forgotten even if no token has an unknown key.
	last := p.Token(map[string]any{"exp": at.Now().Add(time.Hour).Unix()})
	p.Rotate(t)
	at.add(11 * time.Minute)
	if _, err := v.Verify(t.Context(), last); err == nil {
		t.Error("a key that was withdrawn 11 minutes ago is accepted")
	}
}

func TestVerifyFromManyCallersAsksOnce(t *testing.T) {
	t.Parallel()
	p := oidctest.New(t, ann())
	v := newVerifier(t, oidc.Config{Issuer: p.URL()})
	var group sync.WaitGroup
	for range 16 {
		group.Go(func() {
			if _, err := v.Verify(context.Background(), p.Token(nil)); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if a, b := p.Count("/.well-known/openid-configuration"), p.Count("/keys"); a != 1 || b != 1 {
		t.Errorf("discovery %d times, keys %d times; want once each", a, b)
	}
}

func TestStaticKeys(t *testing.T) {
	t.Parallel()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	set, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "a"}}})
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	issuer := "https://kubernetes.default.svc"
	claims := map[string]any{"iss": issuer, "aud": []string{"outbid"}, "sub": "system:serviceaccount:team:worker", "exp": time.Now().Add(time.Minute).Unix()}
	for name, data := range map[string][]byte{"JWKS": set, "PEM": pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})} {
		keys, err := oidc.StaticKeys(data)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		v, err := oidc.NewWithKeys(oidc.Config{Issuer: issuer, ClientID: "outbid"}, keys)
		if err != nil {
			t.Fatal(err)
		}
		who, err := v.Verify(t.Context(), oidctest.Sign(t, claims, jose.ES256, key, "a"))
		if err != nil || who.Name != "system:serviceaccount:team:worker" {
			t.Errorf("%s: got %q, %v", name, who.Name, err)
		}
		foreign, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if _, err := v.Verify(t.Context(), oidctest.Sign(t, claims, jose.ES256, foreign, "a")); err == nil {
			t.Errorf("%s: a foreign key is accepted", name)
		}
	}
	for _, bad := range []string{"", "{}", "text", "{", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"} {
		if _, err := oidc.StaticKeys([]byte(bad)); err == nil {
			t.Errorf("%q is accepted as keys", bad)
		}
	}
}

func TestNewRefusesConfigurations(t *testing.T) {
	t.Parallel()
	empty := filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		cfg  oidc.Config
		want string
	}{
		{oidc.Config{Issuer: "login.example.org", ClientID: "a"}, "must be https://HOST"},
		{oidc.Config{Issuer: "http://login.example.org", ClientID: "a"}, "must begin with https://"},
		{oidc.Config{Issuer: "https://login.example.org"}, "client ID: must be"},
		{oidc.Config{Issuer: "https://login.example.org", ClientID: "a", CAFile: empty}, "must contain a PEM certificate"},
		{oidc.Config{Issuer: "https://login.example.org", ClientID: "a", CAFile: empty + "x"}, "CA file: "},
	} {
		if _, err := oidc.New(c.cfg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: got %v, want %q", c.cfg, err, c.want)
		}
	}
}

func TestIsToken(t *testing.T) {
	t.Parallel()
	p := oidctest.New(t, ann())
	if !oidc.IsToken(p.Token(nil)) || oidc.IsToken("outbid_abcdefghijklmnop") || oidc.IsToken("eyJ.a") {
		t.Error("tokens are not told apart")
	}
}
