// Package oidctest is an OpenID provider for tests. It signs in one person without questions, counts requests, rotates
// its keys and can be taken down. The real providers are in the package endtoend.
package oidctest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// ClientID is the client that the provider knows.
const ClientID = "outbid-cli"

// Provider is a running provider.
type Provider struct {
	t      testing.TB
	server *httptest.Server

	mu sync.Mutex
	// key signs tokens; keys are published.
	key   *ecdsa.PrivateKey
	keyID string
	keys  []jose.JSONWebKey
	// claims are those of the person who signs in.
	claims map[string]any
	life   time.Duration
	down   bool
	counts map[string]int
	// grants are codes, device codes and refresh tokens that were given out.
	grants map[string]grant
}

// grant is what a code stands for.
type grant struct {
	challenge, nonce, redirect string
	// pending is how many more times a device has to ask.
	pending int
}

// New starts a provider that signs in a person with these claims.
func New(t testing.TB, claims map[string]any) *Provider {
	t.Helper()
	p := newProvider(t, claims)
	p.server.Start()
	t.Cleanup(p.server.Close)
	return p
}

// NewTLS starts a provider as New does, at an address and with a certificate.
func NewTLS(t testing.TB, address string, cert tls.Certificate, claims map[string]any) *Provider {
	t.Helper()
	p := newProvider(t, claims)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	_ = p.server.Listener.Close()
	p.server.Listener = listener
	p.server.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
	p.server.StartTLS()
	t.Cleanup(p.server.Close)
	return p
}

// newProvider returns a provider that is not started.
func newProvider(t testing.TB, claims map[string]any) *Provider {
	t.Helper()
	p := &Provider{t: t, claims: claims, life: 5 * time.Minute, counts: map[string]int{}, grants: map[string]grant{}}
	p.Rotate(t)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", p.discovery)
	mux.HandleFunc("GET /keys", p.publish)
	mux.HandleFunc("GET /auth", p.authorize)
	mux.HandleFunc("POST /device", p.device)
	mux.HandleFunc("POST /token", p.token)
	p.server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p.count(r.URL.Path) {
			http.Error(w, "down for a test", http.StatusServiceUnavailable)
			return
		}
		mux.ServeHTTP(w, r)
	}))
	return p
}

func (p *Provider) count(path string) (down bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.counts[path]++
	return p.down
}

// URL returns the issuer.
func (p *Provider) URL() string { return p.server.URL }

// Count returns how many requests a path had.
func (p *Provider) Count(path string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.counts[path]
}

// SetDown makes the provider refuse requests, or answer again.
func (p *Provider) SetDown(down bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = down
}

// SetLife changes how long tokens are valid.
func (p *Provider) SetLife(life time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.life = life
}

// SetClaims changes the person who signs in.
func (p *Provider) SetClaims(claims map[string]any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.claims = claims
}

// Rotate replaces the signing key; the old one is not published any more.
func (p *Provider) Rotate(t testing.TB) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.key, p.keyID = key, rand.Text()
	p.keys = []jose.JSONWebKey{{Key: key.Public(), KeyID: p.keyID, Algorithm: string(jose.ES256), Use: "sig"}}
}

// Token returns a signed token with the person's claims and changes to them. A change to nil removes a claim.
func (p *Provider) Token(changes map[string]any) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sign(changes)
}

// Refresh returns a refresh token, which can be used once.
func (p *Provider) Refresh() string { return p.give(grant{}) }

func (p *Provider) sign(changes map[string]any) string {
	now := time.Now()
	claims := map[string]any{"iss": p.server.URL, "aud": ClientID, "iat": now.Unix(), "exp": now.Add(p.life).Unix()}
	maps.Copy(claims, p.claims)
	for name, value := range changes {
		if claims[name] = value; value == nil {
			delete(claims, name)
		}
	}
	return Sign(p.t, claims, jose.ES256, p.key, p.keyID)
}

// Sign returns a token of claims, or fails the test and returns "".
func Sign(t testing.TB, claims map[string]any, algorithm jose.SignatureAlgorithm, key any, keyID string) string {
	t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: jose.JSONWebKey{Key: key, KeyID: keyID}}, nil)
	if err != nil {
		t.Error(err)
		return ""
	}
	data, err := json.Marshal(claims)
	if err != nil {
		t.Error(err)
		return ""
	}
	signed, err := signer.Sign(data)
	if err != nil {
		t.Error(err)
		return ""
	}
	token, err := signed.CompactSerialize()
	if err != nil {
		t.Error(err)
	}
	return token
}

// Unsigned returns a token of the algorithm none.
func Unsigned(t testing.TB, claims map[string]any) string {
	t.Helper()
	data, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	encode := base64.RawURLEncoding.EncodeToString
	return encode([]byte(`{"alg":"none","typ":"JWT"}`)) + "." + encode(data) + "."
}

func (p *Provider) discovery(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusOK, map[string]any{
		"issuer": p.server.URL, "authorization_endpoint": p.server.URL + "/auth", "token_endpoint": p.server.URL + "/token",
		"device_authorization_endpoint": p.server.URL + "/device", "jwks_uri": p.server.URL + "/keys",
		"id_token_signing_alg_values_supported": []string{"ES256"}, "scopes_supported": []string{"openid", "profile", "groups", "offline_access"},
	})
}

func (p *Provider) publish(w http.ResponseWriter, _ *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	answer(w, http.StatusOK, map[string]any{"keys": p.keys})
}

// authorize sends the browser back with a code.
func (p *Provider) authorize(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	if q.Get("client_id") != ClientID || q.Get("code_challenge_method") != "S256" {
		http.Error(w, "want client "+ClientID+" and PKCE", http.StatusBadRequest)
		return
	}
	code := p.give(grant{challenge: q.Get("code_challenge"), nonce: q.Get("nonce"), redirect: q.Get("redirect_uri")})
	back, err := url.Parse(q.Get("redirect_uri"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	back.RawQuery = url.Values{"code": {code}, "state": {q.Get("state")}}.Encode()
	http.Redirect(w, r, back.String(), http.StatusFound)
}

func (p *Provider) device(w http.ResponseWriter, r *http.Request) {
	code := p.give(grant{challenge: r.FormValue("code_challenge"), pending: 1})
	answer(w, http.StatusOK, map[string]any{
		"device_code": code, "user_code": "ABCD-EFGH", "verification_uri": p.server.URL + "/activate",
		"verification_uri_complete": p.server.URL + "/activate?user_code=ABCD-EFGH", "expires_in": 60, "interval": 1,
	})
}

func (p *Provider) give(g grant) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	code := rand.Text()
	p.grants[code] = g
	return code
}

// token exchanges a code, a device code or a refresh token. Each can be used once.
func (p *Provider) token(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	code := r.FormValue("code") + r.FormValue("device_code") + r.FormValue("refresh_token")
	g, ok := p.grants[code]
	switch sum := sha256.Sum256([]byte(r.FormValue("code_verifier"))); {
	case !ok:
		problem(w, "invalid_grant", "the grant is not known, or was used before")
		return
	case g.pending > 0:
		g.pending--
		p.grants[code] = g
		problem(w, "authorization_pending", "")
		return
	case g.challenge != "" && g.challenge != base64.RawURLEncoding.EncodeToString(sum[:]):
		problem(w, "invalid_grant", "the code verifier does not match")
		return
	case g.redirect != r.FormValue("redirect_uri"):
		problem(w, "invalid_grant", fmt.Sprintf("redirect_uri: want %q", g.redirect))
		return
	}
	delete(p.grants, code)
	refresh := rand.Text()
	p.grants[refresh] = grant{}
	changes := map[string]any{}
	if _, ok := p.claims["nonce"]; !ok && g.nonce != "" {
		changes["nonce"] = g.nonce
	}
	answer(w, http.StatusOK, map[string]any{
		"access_token": rand.Text(), "token_type": "Bearer", "expires_in": int(p.life.Seconds()),
		"id_token": p.sign(changes), "refresh_token": refresh,
	})
}

func problem(w http.ResponseWriter, code, text string) {
	answer(w, http.StatusBadRequest, map[string]any{"error": code, "error_description": text})
}

func answer(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body)
}
