package api

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func (s *sessions) redeem(code string) *http.Response {
	w := httptest.NewRecorder()
	body, _ := json.Marshal(map[string]string{"code": code})
	s.signIn(w, httptest.NewRequest(http.MethodPost, "http://127.0.0.1:7700"+SessionPath, strings.NewReader(string(body))))
	return w.Result()
}

// A code signs in once, within a minute, as the holder of its token.
func TestACodeSignsInOnce(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	s := testSessions(t, &now, false)
	code := NewSignInCode(aToken, now)
	if strings.Contains(code, aToken) {
		t.Fatal("the code holds the token")
	}
	first := s.redeem(code) //nolint:bodyclose // of a recorder
	if first.StatusCode != http.StatusOK || len(first.Cookies()) != 1 {
		t.Fatalf("the code is refused: %d", first.StatusCode)
	}
	header, _ := s.seen(first.Cookies()[0], "")
	if who, err := s.tokens.sessionHolder(strings.TrimPrefix(header, sessionScheme+" "), now); err != nil || who.Name != "ann" {
		t.Fatalf("%+v, %v", who, err)
	}
	for name, refused := range map[string]string{
		"used":             code,
		"old":              NewSignInCode(aToken, now.Add(-SignInCodeLife-time.Second)),
		"of the future":    NewSignInCode(aToken, now.Add(SignInCodeLife+time.Second)),
		"of another token": NewSignInCode("outbid_other", now),
		"changed":          "A" + NewSignInCode(aToken, now)[1:],
		"cut":              NewSignInCode(aToken, now)[:20],
		"of nothing":       "!",
	} {
		if got := s.redeem(refused); got.StatusCode != http.StatusUnauthorized || len(got.Cookies()) != 0 { //nolint:bodyclose // of a recorder
			t.Errorf("a code that is %s: %d", name, got.StatusCode)
		}
	}
	now = now.Add(3 * SignInCodeLife)
	s.redeem(NewSignInCode(aToken, now)) //nolint:bodyclose // of a recorder
	if len(s.used.until) != 1 {
		t.Errorf("%d codes are remembered, of which one can still be used", len(s.used.until))
	}
}
