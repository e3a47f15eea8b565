package endtoend

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/oidc"
	"github.com/outbid-dev/outbid/orchestrator/oidc/oidctest"
	"github.com/outbid-dev/outbid/orchestrator/oidc/saved"
)

// idp is an OpenID provider with the client outbid-cli, ann of the group vision, and eve of no group.
type idp struct {
	issuer string
	// stop takes it down, rotate replaces its keys; it is up afterwards.
	stop, rotate func()
	// is chooses the person if the provider shows no forms, else nil.
	is func(name string)
}

// signInTest is a server with a provider, and a person's configuration directory.
type signInTest struct {
	*testing.T
	idp    idp
	server *server
	dir    string
}

// TestSignIn uses the provider for tests; the following tests use real ones.
func TestSignIn(t *testing.T) {
	t.Parallel()
	p := oidctest.New(t, nil)
	testSignIn(t, idp{
		issuer: p.URL(), stop: func() { p.SetDown(true) },
		rotate: func() { p.SetDown(false); p.Rotate(t) },
		is: func(name string) {
			p.SetClaims(map[string]any{"sub": "id-" + name, "preferred_username": name, "groups": map[string][]string{"ann": {"vision"}}[name]})
		},
	})
}

// TestSignInOIDCProvider runs with OUTBID_OIDC_PROVIDER, a folder in which npm installed oidc-provider.
func TestSignInOIDCProvider(t *testing.T) {
	t.Parallel()
	modules := os.Getenv("OUTBID_OIDC_PROVIDER")
	if modules == "" {
		t.Skip("OUTBID_OIDC_PROVIDER is not set; make test-sign-in sets it")
	}
	script, err := filepath.Abs("testdata/oidcprovider/provider.mjs")
	if err != nil {
		t.Fatal(err)
	}
	port := freePort(t)
	begin := func() *proc {
		p := newProc(t, modules, "node", script)
		p.cmd.Env = append(os.Environ(), "PORT="+port)
		if err := p.cmd.Start(); err != nil {
			t.Fatal(err)
		}
		p.watch([]string{"provider"})
		p.until("issuer http")
		return p
	}
	running := begin()
	testSignIn(t, idp{
		issuer: "http://127.0.0.1:" + port, stop: func() { running.kill() }, rotate: func() { running = begin() },
	})
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// testSignIn signs in to a server in every way, then takes the provider down and rotates its keys.
func testSignIn(t *testing.T, p idp) {
	t.Helper()
	dir := t.TempDir()
	bindings := filepath.Join(dir, "bindings.yaml")
	if err := os.WriteFile(bindings, []byte("- {group: vision, tenant: vision, role: user}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := &signInTest{T: t, idp: p, dir: dir}
	s.server = serve(t, dir, "serve", "--nats-listen", "127.0.0.1:0", "--oidc-issuer-url", p.issuer, "--oidc-client-id", oidctest.ClientID,
		"--oidc-username-claim", "preferred_username", "--oidc-groups-claim", "groups", "--oidc-bindings", bindings)
	if text, code := s.outbid("whoami"); code != 1 || !strings.Contains(text, "run 'outbid login'") {
		t.Errorf("before the sign-in: %d %s", code, text)
	}
	s.login("ann", "--no-browser", "signed in to "+s.server.Info.API+" as ann (tenant vision, role user)")
	token := s.whoami()
	s.checkTokens(token)
	if text, _ := s.outbid("logout"); !strings.Contains(text, "signed out") {
		t.Errorf("logout: %s", text)
	}
	s.login("eve", "--device", `user "eve" signed in but has no role here: the user is in no group`)
	s.login("ann", "--device", "as ann (tenant vision, role user)")
	s.browse()

	p.stop()
	if text, code := s.outbid("whoami"); code != 0 {
		t.Errorf("with known keys while the provider is down: %s", text)
	}
	if text, code := s.outbid("login", "--device"); code == 0 || !strings.Contains(text, "the OpenID provider is not available: issuer "+p.issuer) {
		t.Errorf("login while the provider is down: %d %s", code, text)
	}
	p.rotate()
	s.login("ann", "--no-browser", "as ann (tenant vision, role user)")
	if s.whoami() == token {
		t.Error("the token did not change")
	}
}

// outbid runs a command for the person.
func (s *signInTest) outbid(args ...string) (string, int) {
	s.Helper()
	p := s.begin(args...)
	<-p.ended
	text, _ := p.out.text()
	return text, p.cmd.ProcessState.ExitCode()
}

func (s *signInTest) begin(args ...string) *proc {
	s.Helper()
	path, err := binary()
	if err != nil {
		s.Fatal(err)
	}
	p := newProc(s, s.dir, path, append([]string{"--server", s.server.Info.API}, args...)...)
	p.cmd.Env = append(os.Environ(), "HOME="+s.dir, "XDG_CONFIG_HOME="+s.dir, "OUTBID_TOKEN=")
	if err := p.cmd.Start(); err != nil {
		s.Fatal(err)
	}
	p.watch(args)
	return p
}

// login runs `outbid login`, signs in as a person, and checks the last line of its output.
func (s *signInTest) login(name, how, want string) {
	s.Helper()
	if s.idp.is != nil {
		s.idp.is(name)
	}
	p := s.begin("login", how)
	p.until("open http")
	text, _ := p.out.text()
	link := regexp.MustCompile(`open (http\S+)`).FindStringSubmatch(text)[1]
	if s.idp.is == nil || how != "--device" {
		s.signIn(oidctest.Browser(), link, name)
	}
	select {
	case <-p.ended:
	case <-time.After(patience):
		s.Fatal("login did not end")
	}
	if text, _ := p.out.text(); !strings.Contains(text, want) {
		s.Errorf("login %s of %s: got %s, want %q", how, name, text, want)
	}
}

// whoami checks that the server knows the person as ann, and returns the saved token.
func (s *signInTest) whoami() string {
	s.Helper()
	text, _ := s.outbid("whoami", "-o", "json")
	var who struct{ Name, Tenant, Role, Source, Issuer string }
	if err := json.Unmarshal([]byte(text), &who); err != nil || who.Name != "ann" || who.Tenant != "vision" || who.Role != "user" ||
		who.Source != "sign-in" || who.Issuer != s.idp.issuer {
		s.Errorf("whoami: %s", text)
	}
	path, err := saved.Path(filepath.Join(s.dir, "outbid", "sign-in"), s.server.Info.API)
	if err != nil {
		s.Fatal(err)
	}
	found, err := saved.Load(path)
	if err != nil || found.Refresh == "" {
		s.Fatalf("no sign-in with a refresh token at %s: %v", path, err)
	}
	late := func() time.Time { return found.Expires().Add(-time.Second) }
	fresh, err := saved.Token(s.Context(), path, late)
	if err != nil {
		s.Errorf("the token was not refreshed: %v", err)
	}
	if after, err := saved.Load(path); err != nil || after.IDToken != fresh || after.Refresh == found.Refresh {
		s.Errorf("the refreshed token was not saved: %v", err)
	}
	return fresh
}

// checkTokens checks what a verifier refuses of a provider's own tokens.
func (s *signInTest) checkTokens(token string) {
	s.Helper()
	verify := func(client string, now func() time.Time, token string) error {
		v, err := oidc.New(oidc.Config{Issuer: s.idp.issuer, ClientID: client, UsernameClaim: "preferred_username", GroupsClaim: "groups", Now: now})
		if err != nil {
			s.Fatal(err)
		}
		_, err = v.Verify(s.Context(), token)
		return err
	}
	parts := strings.Split(token, ".")
	unsigned := "eyJhbGciOiJub25lIn0." + parts[1] + "."
	tomorrow := func() time.Time { return time.Now().Add(24 * time.Hour) }
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"valid":          {verify(oidctest.ClientID, nil, token), ""},
		"wrong audience": {verify("other", nil, token), `expected audience "other"`},
		"expired":        {verify(oidctest.ClientID, tomorrow, token), "the token expired at"},
		"unsigned":       {verify(oidctest.ClientID, nil, unsigned), `the token is signed with "none"`},
		"changed":        {verify(oidctest.ClientID, nil, parts[0]+"."+parts[1]+"."+strings.Repeat("A", len(parts[2]))), "verifies its signature"},
	} {
		if c.err == nil != (c.want == "") || c.err != nil && !strings.Contains(c.err.Error(), c.want) {
			s.Errorf("%s: got %v, want %q", name, c.err, c.want)
		}
	}
	r, _ := http.NewRequestWithContext(s.Context(), http.MethodGet, s.server.Info.API+"/metrics", nil)
	r.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		s.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		s.Errorf("/metrics: %s", resp.Status)
	}
}

// browse signs in to the dashboard.
func (s *signInTest) browse() {
	s.Helper()
	client := oidctest.Browser()
	if at, page := s.signIn(client, s.server.Info.API+"/ui/session/start", "ann"); at != s.server.Info.API+"/ui/" {
		s.Fatalf("the browser is at %s: %s", at, page)
	}
	resp, err := client.Get(s.server.Info.API + "/v1/server")
	if err != nil {
		s.Fatal(err)
	}
	defer resp.Body.Close()
	if body, _ := io.ReadAll(resp.Body); !strings.Contains(string(body), `"name":"ann"`) {
		s.Errorf("the dashboard's caller: %s %s", resp.Status, body)
	}
}

// signIn opens a link and sends the provider's forms as a person does. It returns where that ended.
func (s *signInTest) signIn(client *http.Client, link, name string) (at, page string) {
	s.Helper()
	at, page, err := oidctest.SignIn(client, link, name)
	if err != nil {
		s.Fatal(err)
	}
	return at, page
}
