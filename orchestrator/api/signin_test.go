package api

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outbid-dev/outbid/orchestrator/oidc"
	"github.com/outbid-dev/outbid/orchestrator/oidc/oidctest"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

const someBindings = `
- {user: root, tenant: "*", role: admin}
- {group: vision, tenant: vision, role: user}
- {group: speech, tenant: speech, role: user}
- {group: staff, tenant: "*", role: viewer}
`

func bindings(t *testing.T, text string) (*FileBindings, string, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "bindings.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	b, err := LoadBindings(path)
	return b, path, err
}

func testSignIn(t *testing.T, p *oidctest.Provider) *SignIn {
	t.Helper()
	v, err := oidc.New(oidc.Config{Issuer: p.URL(), ClientID: oidctest.ClientID, UsernameClaim: "preferred_username", GroupsClaim: "groups"})
	if err != nil {
		t.Fatal(err)
	}
	b, _, err := bindings(t, someBindings)
	if err != nil {
		t.Fatal(err)
	}
	return &SignIn{Verifier: v, Bindings: b, Key: []byte(strings.Repeat("k", 32))}
}

func person(name string, groups ...string) map[string]any {
	return map[string]any{"sub": "id-" + name, "preferred_username": name, "groups": groups}
}

func TestBindingsGiveTenantAndRole(t *testing.T) {
	t.Parallel()
	b, path, err := bindings(t, someBindings)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name         string
		groups       []string
		tenant, role string
		owns, not    string
	}{
		{"root", nil, "*", "admin", "speech", ""},
		{"ann", []string{"vision"}, "vision", "user", "vision", "speech"},
		{"ann", []string{"speech", "vision", "staff"}, "vision", "user", "speech", "text"},
		{"bob", []string{"other", "staff"}, "*", "viewer", "text", ""},
	} {
		who, err := b.Bind(c.name, c.groups)
		if err != nil || who.Name != c.name || who.Tenant != c.tenant || string(who.Role) != c.role {
			t.Errorf("%s in %q: got %+v, %v", c.name, c.groups, who, err)
		}
		if !who.owns(c.owns) || c.not != "" && who.owns(c.not) {
			t.Errorf("%s in %q: owns %s: %v, %s: %v", c.name, c.groups, c.owns, who.owns(c.owns), c.not, who.owns(c.not))
		}
	}
	_, err = b.Bind("eve", []string{"guests", "Vision"})
	if status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), `user "eve"`) || !strings.Contains(err.Error(), `groups "guests", "Vision"`) {
		t.Errorf("got %v", err)
	}
	if _, err := b.Bind("eve", nil); err == nil || !strings.Contains(err.Error(), "is in no group") {
		t.Errorf("got %v", err)
	}

	if err := os.WriteFile(path, []byte("- {group: guests, tenant: vision, role: viewer}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if changed, err := b.Reload(); !changed || err != nil {
		t.Errorf("reload: %v, %v", changed, err)
	}
	if who, err := b.Bind("eve", []string{"guests"}); err != nil || who.Role != RoleViewer {
		t.Errorf("after the reload: %+v, %v", who, err)
	}
	if err := os.WriteFile(path, []byte("- {group: guests, tenant: vision, role: owner}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Reload(); err == nil {
		t.Error("a role that does not exist is accepted")
	}
	if _, err := b.Bind("eve", []string{"guests"}); err != nil {
		t.Errorf("after a bad reload: %v", err)
	}
}

func TestBindingsNameWhatIsWrong(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"- {tenant: vision, role: user}":                      "entry 1: user: must be a user's name",
		"- {user: a, group: b, tenant: vision, role: user}":   "entry 1: user: must not be given with a group",
		"- {user: a, role: user}":                             `entry 1: tenant: must be a tenant's name, or "*"`,
		"- {user: a, tenant: vision}":                         "entry 1: role: must be admin, ",
		"- {user: a, tenant: vision, role: owner}":            `entry 1: role "owner": must be`,
		"- {user: a, tenant: 'a b', role: user}":              `tenant "a b"`,
		"- {user: a, tenant: vision, role: user, rolle: max}": "line 1: field rolle not found",
		"a: b": "must be a list such as",
	} {
		if _, _, err := bindings(t, text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
	}
	if b, _, err := bindings(t, ""); err != nil {
		t.Error(err)
	} else if _, err := b.Bind("ann", nil); err == nil {
		t.Error("an empty file gives a role")
	}
}

// TestTokensOfAProvider calls gRPC, REST and /metrics with tokens of a provider.
func TestTokensOfAProvider(t *testing.T) {
	t.Parallel()
	p := oidctest.New(t, person("ann", "vision"))
	h := serve(t, func(c *Config) { c.Tokens, c.SignIn = testTokens(t), testSignIn(t, p) })
	h.control.add("digits-1", "vision", 1)
	h.control.add("words-2", "speech", 1)
	for name, c := range map[string]struct {
		token string
		want  codes.Code
		text  string
	}{
		"user":           {p.Token(nil), codes.OK, ""},
		"other tenant":   {p.Token(person("bob", "speech")), codes.NotFound, ""},
		"unknown group":  {p.Token(person("eve", "gäste 5%")), codes.PermissionDenied, `user "eve" signed in but has no role here: the user is in the groups "gäste 5%"`},
		"wrong audience": {p.Token(map[string]any{"aud": "other"}), codes.Unauthenticated, "audience"},
		"expired":        {p.Token(map[string]any{"exp": 1}), codes.Unauthenticated, "expired at 1970"},
		"unsigned":       {oidctest.Unsigned(t, person("root")), codes.Unauthenticated, `"none"`},
		"unknown":        {"unknown-unknown-unknown", codes.Unauthenticated, "not known to this server"},
		"of the file":    {token("ann"), codes.OK, ""},
	} {
		err := get(t.Context(), h.dial(t, c.token))
		if status.Code(err) != c.want || c.text != "" && !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: got %v, want %v %q", name, err, c.want, c.text)
		}
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, h.URL()+"/metrics", nil)
		r.Header.Set("Authorization", "Bearer "+c.token)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if ok := c.want == codes.OK || c.want == codes.NotFound; (resp.StatusCode == http.StatusOK) != ok {
			t.Errorf("%s: /metrics answers %s %.100s", name, resp.Status, body)
		}
	}
	resp, err := h.dial(t, p.Token(nil)).GetServerInfo(t.Context(), &outbidv1.GetServerInfoRequest{})
	if err != nil || resp.GetCaller().GetName() != "ann" || resp.GetCaller().GetTenant() != "vision" {
		t.Errorf("the caller is %v, %v", resp.GetCaller(), err)
	}
	if err := pause(t.Context(), h.dial(t, p.Token(nil))); err != nil || h.control.actors[0] != "ann" {
		t.Errorf("pause by %q: %v", h.control.actors, err)
	}
}

func TestServerServesWhileTheProviderIsDown(t *testing.T) {
	t.Parallel()
	p := oidctest.New(t, person("ann", "vision"))
	p.SetDown(true)
	h := serve(t, func(c *Config) { c.Tokens, c.SignIn = testTokens(t), testSignIn(t, p) })
	h.control.add("digits-1", "vision", 1)
	if err := get(t.Context(), h.dial(t, token("ann"))); err != nil {
		t.Errorf("a token of the file: %v", err)
	}
	err := get(t.Context(), h.dial(t, p.Token(nil)))
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "the OpenID provider is not available: issuer "+p.URL()) {
		t.Errorf("got %v", err)
	}
	if _, body := browse(t, &http.Client{}, h.URL()+signInStartPath); !strings.Contains(body, "Not signed in") || !strings.Contains(body, p.URL()) {
		t.Errorf("the page is %s", body)
	}
}

// Without a tokens file only people of the provider are let in.
func TestProviderWithoutTokens(t *testing.T) {
	t.Parallel()
	p := oidctest.New(t, person("ann", "vision"))
	h := serve(t, func(c *Config) { c.SignIn = testSignIn(t, p) })
	if err := info(t.Context(), h.dial(t, "")); status.Code(err) != codes.Unauthenticated {
		t.Errorf("without a token: %v", err)
	}
	if err := info(t.Context(), h.dial(t, p.Token(nil))); err != nil {
		t.Error(err)
	}
	if resp, body := browse(t, &http.Client{}, h.URL()+"/v1/server"); resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("REST without a token: %s %s", resp.Status, body)
	}
	var how signInInfo
	if _, body := browse(t, &http.Client{}, h.URL()+SignInPath); json.Unmarshal([]byte(body), &how) != nil || how.OIDC == nil ||
		how.OIDC.IssuerURL != p.URL() || how.OIDC.ClientID != oidctest.ClientID {
		t.Errorf("how to sign in: %s", body)
	}
}

// browse gets a page as a browser does.
func browse(t *testing.T, client *http.Client, address string) (*http.Response, string) {
	t.Helper()
	r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	return resp, string(body)
}

// browser returns a client that keeps cookies, and stops where stop says.
func browser(t *testing.T, stop func(*url.URL) bool) *http.Client {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &http.Client{Jar: jar, CheckRedirect: func(r *http.Request, _ []*http.Request) error {
		if stop != nil && stop(r.URL) {
			return http.ErrUseLastResponse
		}
		return nil
	}}
}

func TestBrowserSignsInWithTheProvider(t *testing.T) {
	t.Parallel()
	p := oidctest.New(t, person("ann", "vision"))
	h := serve(t, func(c *Config) { c.Tokens, c.SignIn = testTokens(t), testSignIn(t, p) })
	client := browser(t, nil)
	resp, body := browse(t, client, h.URL()+signInStartPath)
	if resp.Request.URL.Path != "/ui/" {
		t.Fatalf("ended at %s: %s", resp.Request.URL, body)
	}
	at, _ := url.Parse(h.URL())
	for _, c := range client.Jar.Cookies(at) {
		if strings.HasSuffix(c.Name, "-sign-in") || strings.Contains(c.Value, "ann") {
			t.Errorf("cookie %s=%s is left", c.Name, c.Value)
		}
	}
	if _, body := browse(t, client, h.URL()+"/v1/server"); !strings.Contains(body, `"name":"ann"`) {
		t.Errorf("the caller is not ann: %s", body)
	}
	// Bindings apply to sessions too.
	h.cfg.SignIn.Bindings.(*FileBindings).entries.Store(&[]binding{}) //nolint:forcetypeassert // testSignIn's
	if resp, body := browse(t, client, h.URL()+"/v1/server"); resp.StatusCode != http.StatusForbidden {
		t.Errorf("without bindings: %s %s", resp.Status, body)
	}
}

func TestSignInChecksStateAndNonce(t *testing.T) {
	t.Parallel()
	p := oidctest.New(t, person("ann", "vision"))
	h := serve(t, func(c *Config) { c.Tokens, c.SignIn = testTokens(t), testSignIn(t, p) })
	back := func() (*http.Client, *url.URL) {
		client := browser(t, func(u *url.URL) bool { return u.Path == signInDonePath })
		resp, _ := browse(t, client, h.URL()+signInStartPath)
		u, err := resp.Location()
		if err != nil {
			t.Fatal(err)
		}
		return client, u
	}
	refuse := func(name string, client *http.Client, u *url.URL, want string) {
		t.Helper()
		resp, body := browse(t, client, u.String())
		if resp.StatusCode != http.StatusForbidden || !strings.Contains(body, want) {
			t.Errorf("%s: %s %s, want %q", name, resp.Status, body, want)
		}
		for _, c := range resp.Cookies() {
			if c.Value != "" {
				t.Errorf("%s: got cookie %s", name, c.Name)
			}
		}
	}
	_, u := back()
	refuse("another browser", browser(t, nil), u, "did not start the sign-in")
	client, u := back()
	q := u.Query()
	q.Set("state", "other")
	u.RawQuery = q.Encode()
	refuse("another state", client, u, "did not start the sign-in")

	client, u = back()
	_, other := back()
	q = u.Query()
	q.Set("code", other.Query().Get("code"))
	u.RawQuery = q.Encode()
	refuse("another person's code", client, u, "code verifier does not match")

	client, u = back()
	u.RawQuery = url.Values{"state": {u.Query().Get("state")}, "error": {"access_denied"}, "error_description": {"<b>no</b>"}}.Encode()
	refuse("an error of the provider", client, u, "the provider refused: &lt;b&gt;no&lt;/b&gt;")

	p.SetClaims(map[string]any{"preferred_username": "ann", "sub": "1", "nonce": "other"})
	client, u = back()
	refuse("another nonce", client, u, "of another sign-in")
	p.SetClaims(person("eve", "guests"))
	client, u = back()
	refuse("without a binding", client, u, "has no role here")
}

func TestBrowserSessionsEnd(t *testing.T) {
	t.Parallel()
	s := testSignIn(t, oidctest.New(t, nil))
	began := time.Unix(1_800_000_000, 0)
	value, err := browserSession{Name: "ann", Groups: []string{"vision"}, Began: began}.encode(s.Key)
	if err != nil {
		t.Fatal(err)
	}
	if who, err := s.browser(value, began.Add(signInLife-time.Second)); err != nil || who.Name != "ann" {
		t.Errorf("%+v, %v", who, err)
	}
	if _, err := s.browser(value, began.Add(signInLife+time.Second)); status.Code(err) != codes.Unauthenticated {
		t.Errorf("an old session: %v", err)
	}
	other, _ := sealJSON(s.Key, "pending", browserSession{Name: "root", Began: began})
	for name, forged := range map[string]string{"changed": value[:len(value)-4] + "AAAA", "of another purpose": signInPrefix + other, "empty": signInPrefix} {
		if _, err := s.browser(forged, began); status.Code(err) != codes.Unauthenticated {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := (*SignIn)(nil).browser(value, began); status.Code(err) != codes.Unauthenticated {
		t.Errorf("without a provider: %v", err)
	}
	many := make([]string, 500)
	for i := range many {
		many[i] = "a-long-name-of-a-group"
	}
	if _, err := (browserSession{Name: "ann", Groups: many}).encode(s.Key); err == nil || !strings.Contains(err.Error(), "500 groups") {
		t.Errorf("500 groups: %v", err)
	}
}

func TestVerifierErrorsKeepTheCallersContext(t *testing.T) {
	t.Parallel()
	p := oidctest.New(t, person("ann", "vision"))
	s := testSignIn(t, p)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Verifier.Verify(gone, p.Token(nil)); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if _, err := s.Verifier.Verify(t.Context(), p.Token(nil)); err != nil {
		t.Errorf("a caller that left affects others: %v", err)
	}
}
