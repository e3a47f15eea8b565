package api

import (
	"encoding/json"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

const aToken = "outbid_0123456789abcdefghij"

func testSessions(t *testing.T, now *time.Time, secure bool) *sessions {
	t.Helper()
	tokens, err := ParseTokens(strings.NewReader(aToken+" ann vision user\n"), "tokens")
	if err != nil {
		t.Fatal(err)
	}
	return &sessions{tokens: tokens, secure: secure, now: func() time.Time { return *now }}
}

func (s *sessions) begin(t *testing.T, token string) *http.Response {
	t.Helper()
	w := httptest.NewRecorder()
	body, _ := json.Marshal(map[string]string{"token": token})
	s.signIn(w, httptest.NewRequest(http.MethodPost, "http://127.0.0.1:7700"+SessionPath, strings.NewReader(string(body))))
	return w.Result()
}

// seen returns the Authorization that a request with a cookie has behind admit, and the cookie that it is answered with.
func (s *sessions) seen(c *http.Cookie, header string) (string, *http.Cookie) {
	r := httptest.NewRequest(http.MethodGet, "http://127.0.0.1:7700/v1/sweeps", nil)
	if c != nil {
		r.AddCookie(c)
	}
	if header != "" {
		r.Header.Set("Authorization", header)
	}
	w := httptest.NewRecorder()
	var got string
	s.admit(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.Header.Get("Authorization") })).ServeHTTP(w, r)
	for _, c := range w.Result().Cookies() { //nolint:bodyclose // of a recorder
		return got, c
	}
	return got, nil
}

// A session stands for its token until nothing used it for 12 hours, 7 days are over, it was changed, or the token is gone.
func TestASessionStandsForItsToken(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	s := testSessions(t, &now, true)
	resp := s.begin(t, aToken) //nolint:bodyclose // of a recorder
	c := resp.Cookies()[0]
	if resp.StatusCode != http.StatusOK || !strings.HasPrefix(c.Name, "__Host-outbid-7700") || !c.HttpOnly || !c.Secure || c.SameSite != http.SameSiteStrictMode {
		t.Fatalf("%d %+v", resp.StatusCode, c)
	}
	header, _ := s.seen(c, "")
	if strings.Contains(header, aToken) || strings.Contains(c.Value, aToken) {
		t.Fatal("the cookie holds the token")
	}
	who, err := s.tokens.sessionHolder(strings.TrimPrefix(header, sessionScheme+" "), now)
	if err != nil || who.Name != "ann" || who.Role != RoleUser {
		t.Fatalf("%+v, %v", who, err)
	}
	if got, _ := s.seen(nil, header); got != "" {
		t.Errorf("a client may send the scheme of sessions itself: %q", got)
	}
	if got, _ := s.seen(c, "Bearer other"); got != "Bearer other" {
		t.Errorf("a header is replaced by %q", got)
	}
	for i := range c.Value {
		changed := []byte(c.Value)
		changed[i] = map[bool]byte{true: 'B', false: 'A'}[changed[i] == 'A']
		forged := *c
		if forged.Value = string(changed); i == len(changed)-1 {
			continue // its last bits are padding
		}
		if got, _ := s.seen(&forged, ""); got != "" {
			t.Errorf("byte %d may be changed", i)
		}
	}
	now = now.Add(11 * time.Hour)
	_, renewed := s.seen(c, "")
	if renewed == nil {
		t.Fatal("it is not renewed")
	}
	now = now.Add(2 * time.Hour)
	if got, _ := s.seen(c, ""); got != "" {
		t.Error("a cookie that was not used for 13 hours counts")
	}
	if got, _ := s.seen(renewed, ""); got == "" {
		t.Error("a renewed cookie does not count")
	}
	for range 20 {
		now = now.Add(10 * time.Hour)
		if _, next := s.seen(renewed, ""); next != nil {
			renewed = next
		}
	}
	if got, _ := s.seen(renewed, ""); got != "" {
		t.Error("a session lasts longer than 7 days")
	}
	gone, err := ParseTokens(strings.NewReader("outbid_another_token_0123456789 bob vision user\n"), "tokens")
	if err != nil {
		t.Fatal(err)
	}
	c = s.begin(t, aToken).Cookies()[0] //nolint:bodyclose // of a recorder
	s.tokens.entries.Store(gone.entries.Load())
	s.tokens.join()
	if got, _ := s.seen(c, ""); got != "" {
		t.Error("the session of a removed token counts")
	}
}

func TestSigningInNeedsAToken(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	s := testSessions(t, &now, false)
	for token, want := range map[string]int{"": http.StatusUnauthorized, "outbid_unknown_0123456789": http.StatusUnauthorized, " " + aToken + "\n": http.StatusOK} {
		resp := s.begin(t, token) //nolint:bodyclose // of a recorder
		if resp.StatusCode != want || (want == http.StatusOK) != (len(resp.Cookies()) == 1) {
			t.Errorf("%q: %d, %v", token, resp.StatusCode, resp.Cookies())
		}
	}
}

// A browser signs in, reads and acts with its cookie, and signs out, over HTTP. A page of another origin cannot use the cookie.
func TestABrowserSignsIn(t *testing.T) {
	t.Parallel()
	h := serve(t, func(c *Config) { c.Tokens = testTokens(t) })
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	browser := &http.Client{Jar: jar}
	ask := func(method, path, body, site string) int {
		r, err := http.NewRequestWithContext(t.Context(), method, "http://"+h.Addr()+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Sec-Fetch-Site", site)
		resp, err := browser.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		return resp.StatusCode
	}
	for _, step := range []struct {
		name, method, path, body, site string
		want                           int
	}{
		{"the pages need no token", http.MethodGet, "/ui/sweeps", "", "same-origin", http.StatusOK},
		{"the API does", http.MethodGet, "/v1/sweeps", "", "same-origin", http.StatusUnauthorized},
		{"another origin cannot sign in", http.MethodPost, SessionPath, `{"token": "` + token("ann") + `"}`, "cross-site", http.StatusForbidden},
		{"an unknown token", http.MethodPost, SessionPath, `{"token": "unknown-unknown-unknown"}`, "same-origin", http.StatusUnauthorized},
		{"a token", http.MethodPost, SessionPath, `{"token": "` + token("ann") + `"}`, "same-origin", http.StatusOK},
		{"it reads", http.MethodGet, "/v1/sweeps", "", "same-origin", http.StatusOK},
		{"its role counts", http.MethodGet, "/v1/ledger", "", "same-origin", http.StatusForbidden},
		{"another origin cannot act", http.MethodPost, "/v1/sweeps", "{}", "cross-site", http.StatusForbidden},
		{"it signs out", http.MethodDelete, SessionPath, "", "same-origin", http.StatusNoContent},
		{"and reads no longer", http.MethodGet, "/v1/sweeps", "", "same-origin", http.StatusUnauthorized},
	} {
		if got := ask(step.method, step.path, step.body, step.site); got != step.want {
			t.Errorf("%s: %s %s: %d, want %d", step.name, step.method, step.path, got, step.want)
		}
	}
}
