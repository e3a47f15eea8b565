package saved_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/oidc/oidctest"
	"github.com/outbid-dev/outbid/orchestrator/oidc/saved"
)

// signIn saves a sign-in whose token expires at a time.
func signIn(t *testing.T, p *oidctest.Provider, expires time.Time, refresh string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "outbid", "sign-in", "http_127.0.0.1_7700.json")
	err := saved.Save(path, saved.SignIn{
		Server: "http://127.0.0.1:7700", Issuer: p.URL(), Client: oidctest.ClientID, TokenURL: p.URL() + "/token",
		IDToken: p.Token(map[string]any{"exp": expires.Unix()}), Refresh: refresh,
	})
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func TestPathNamesTheServer(t *testing.T) {
	t.Parallel()
	for server, want := range map[string]string{
		"http://127.0.0.1:7700":              "http_127.0.0.1_7700.json",
		"https://Tuner.Example.org/":         "https_tuner.example.org_443.json",
		"http://[::1]:80":                    "http_--1_80.json",
		"http://tuner/../../x":               "http_tuner_80.json",
		"https://tuner.example.org:7700/a/b": "https_tuner.example.org_7700.json",
	} {
		got, err := saved.Path("d", server)
		if err != nil || got != filepath.Join("d", want) {
			t.Errorf("%s: got %s, %v", server, got, err)
		}
	}
	for _, server := range []string{"tuner:7700", "", "ftp://tuner", "http://"} {
		if _, err := saved.Path("d", server); err == nil || !strings.Contains(err.Error(), "must be http://HOST:PORT") {
			t.Errorf("%q: got %v", server, err)
		}
	}
}

func TestDirFollowsTheEnvironment(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ xdg, home, want string }{
		{"/x", "/h", "/x/outbid/sign-in"},
		{"", "/h", "/h/.config/outbid/sign-in"},
		{"relative", "/h", "/h/.config/outbid/sign-in"},
		{"", "", ""},
	} {
		env := map[string]string{"XDG_CONFIG_HOME": c.xdg, "HOME": c.home}
		if got := saved.Dir(func(name string) string { return env[name] }); got != c.want {
			t.Errorf("%+v: got %q", c, got)
		}
	}
}

func TestOnlyTheOwnerCanRead(t *testing.T) {
	t.Parallel()
	path := signIn(t, oidctest.New(t, nil), time.Now().Add(time.Hour), "r")
	for name, want := range map[string]os.FileMode{path: 0o600, filepath.Dir(path): 0o700} {
		info, err := os.Stat(name)
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: mode %v, %v", name, info.Mode(), err)
		}
	}
}

func TestTokenIsRefreshedOnce(t *testing.T) {
	t.Parallel()
	p := oidctest.New(t, map[string]any{"sub": "ann"})
	now := time.Now()
	path := signIn(t, p, now.Add(29*time.Second), p.Refresh())
	before, err := saved.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			token, err := saved.Token(t.Context(), path, time.Now)
			if err != nil || token == before.IDToken {
				t.Errorf("got the old token, %v", err)
			}
		})
	}
	group.Wait()
	if n := p.Count("/token"); n != 1 {
		t.Errorf("refreshed %d times, want once", n)
	}
	after, err := saved.Load(path)
	if err != nil || after.Refresh == before.Refresh || !after.Expires().After(now.Add(4*time.Minute)) {
		t.Errorf("saved %+v, %v", after, err)
	}
}

func TestTokenWhileTheProviderIsDown(t *testing.T) {
	t.Parallel()
	p := oidctest.New(t, nil)
	p.SetDown(true)
	now := time.Now()
	path := signIn(t, p, now.Add(10*time.Second), p.Refresh())
	if token, err := saved.Token(t.Context(), path, func() time.Time { return now }); err != nil || token == "" {
		t.Errorf("a token that is still valid: %v", err)
	}
	_, err := saved.Token(t.Context(), path, func() time.Time { return now.Add(time.Minute) })
	if err == nil || !strings.Contains(err.Error(), "the sign-in to http://127.0.0.1:7700: refresh: "+p.URL()+"/token answers 503") {
		t.Errorf("an expired token: %v", err)
	}
}

func TestTokenOfASignInThatEnded(t *testing.T) {
	t.Parallel()
	p := oidctest.New(t, nil)
	for refresh, want := range map[string]string{
		"used": "the sign-in has ended: the provider refused to refresh it: invalid_grant",
		"":     "the provider gave no refresh token",
	} {
		path := signIn(t, p, time.Now().Add(-time.Minute), refresh)
		if _, err := saved.Token(t.Context(), path, time.Now); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "outbid login") {
			t.Errorf("%q: got %v", refresh, err)
		}
	}
	path := signIn(t, p, time.Now().Add(time.Hour), "r")
	if err := saved.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := saved.Token(t.Context(), path, time.Now); !errors.Is(err, saved.ErrNone) {
		t.Errorf("after the removal: %v", err)
	}
	if err := saved.Remove(path); !errors.Is(err, saved.ErrNone) {
		t.Errorf("a second removal: %v", err)
	}
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := saved.Load(path); err == nil || !strings.Contains(err.Error(), "is damaged") {
		t.Errorf("a damaged file: %v", err)
	}
}
