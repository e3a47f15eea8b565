package api

import (
	"cmp"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"html/template"
	"net/http"
	"time"

	"golang.org/x/oauth2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outbid-dev/outbid/orchestrator/dashboard"
)

// The dashboard signs in with the authorization-code flow and PKCE: the browser goes to signInStartPath, the provider
// sends it to signInDonePath.
const (
	signInStartPath = SessionPath + "/start"
	signInDonePath  = SessionPath + "/done"
	// signInTime is how long a person may take at the provider.
	signInTime = 10 * time.Minute
)

// pendingSignIn is what a browser keeps, encrypted, while the person is at the provider.
type pendingSignIn struct {
	State    string    `json:"state"`
	Nonce    string    `json:"nonce"`
	Verifier string    `json:"verifier"`
	Began    time.Time `json:"began"`
}

// pendingCookie returns the cookie of a pending sign-in. Unlike a session's it is sent when the provider's page sends
// the browser back.
func (s *sessions) pendingCookie(r *http.Request, value string, life time.Duration) *http.Cookie {
	c := s.cookie(r, value, life)
	c.Name += "-sign-in"
	c.SameSite = http.SameSiteLaxMode
	return c
}

// oauth returns the configuration of a sign-in, which ends at this server's signInDonePath.
func (s *sessions) oauth(r *http.Request) (*oauth2.Config, error) {
	if s.provider == nil {
		return nil, status.Error(codes.FailedPrecondition, "this server has no identity provider (serve --oidc-issuer-url): sign in with a token")
	}
	conf, err := s.provider.Verifier.OAuth(r.Context(), s.provider.Scopes, false)
	if err != nil {
		return nil, signInError(err)
	}
	scheme := "http://"
	if s.secure {
		scheme = "https://"
	}
	conf.RedirectURL = scheme + r.Host + signInDonePath
	return conf, nil
}

// startSignIn sends the browser to the provider.
func (s *sessions) startSignIn(w http.ResponseWriter, r *http.Request) {
	conf, err := s.oauth(r)
	if err != nil {
		signInPage(w, err)
		return
	}
	p := pendingSignIn{State: rand.Text(), Nonce: rand.Text(), Verifier: oauth2.GenerateVerifier(), Began: s.now()}
	sealed, err := sealJSON(s.provider.Key, "pending", p)
	if err != nil {
		signInPage(w, err)
		return
	}
	http.SetCookie(w, s.pendingCookie(r, sealed, signInTime))
	w.Header().Set("Cache-Control", "no-store")
	http.Redirect(w, r, conf.AuthCodeURL(p.State, oauth2.S256ChallengeOption(p.Verifier), oauth2.SetAuthURLParam("nonce", p.Nonce)), http.StatusFound)
}

// finishSignIn exchanges the provider's code for a session.
func (s *sessions) finishSignIn(w http.ResponseWriter, r *http.Request) {
	value, who, err := s.exchange(r)
	if s.record != nil {
		s.record(r, who, err)
	}
	http.SetCookie(w, s.pendingCookie(r, "", -time.Second))
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Referrer-Policy", "no-referrer")
	if err != nil {
		signInPage(w, err)
		return
	}
	http.SetCookie(w, s.cookie(r, value, signInLife))
	http.Redirect(w, r, dashboard.Path, http.StatusFound)
}

// exchange returns the cookie of a session for the code in a request, and whose it is, as far as that is known.
func (s *sessions) exchange(r *http.Request) (cookie string, person Principal, err error) {
	conf, err := s.oauth(r)
	if err != nil {
		return "", person, err
	}
	p, err := s.pending(r)
	if err != nil {
		return "", person, err
	}
	q := r.URL.Query()
	if problem := q.Get("error"); problem != "" {
		return "", person, status.Errorf(codes.PermissionDenied, "the provider refused: %s", cmp.Or(q.Get("error_description"), problem))
	}
	verifier := s.provider.Verifier
	ctx := verifier.Context(r.Context())
	answer, err := conf.Exchange(ctx, q.Get("code"), oauth2.VerifierOption(p.Verifier))
	if refused, ok := errors.AsType[*oauth2.RetrieveError](err); ok {
		return "", person, status.Errorf(codes.Unauthenticated, "the provider refused the code: %s", cmp.Or(refused.ErrorDescription, refused.ErrorCode, refused.Error()))
	}
	if err != nil {
		return "", person, status.Errorf(codes.Unavailable, "the provider did not answer: %v", err)
	}
	who, _, err := verifier.VerifyAnswer(ctx, answer, p.Nonce)
	if err != nil {
		return "", person, signInError(err)
	}
	if person, err = s.provider.Bindings.Bind(who.Name, who.Groups); err != nil {
		return "", Principal{Name: who.Name}, err
	}
	cookie, err = browserSession{Name: who.Name, Groups: who.Groups, Began: s.now()}.encode(s.provider.Key)
	return cookie, person, err
}

// pending returns the sign-in that the browser started, if the request's state is the one that was sent with it.
func (s *sessions) pending(r *http.Request) (p pendingSignIn, err error) {
	again := status.Error(codes.Unauthenticated, "this browser did not start the sign-in, or started it more than 10 minutes ago: start again")
	c, err := r.Cookie(s.pendingCookie(r, "", 0).Name)
	if err != nil || openJSON(s.provider.Key, "pending", c.Value, &p) != nil || s.now().Sub(p.Began).Abs() > signInTime {
		return p, again
	}
	if subtle.ConstantTimeCompare([]byte(p.State), []byte(r.URL.Query().Get("state"))) != 1 {
		return p, again
	}
	return p, nil
}

// signInPage shows an error to a person whose browser came from the provider.
func signInPage(w http.ResponseWriter, err error) {
	page := template.Must(template.New("").Parse(`<!doctype html><meta charset="utf-8"><title>Outbid: not signed in</title>
<h1>Not signed in</h1><p>{{.Message}}</p><p><a href="{{.Path}}">Try again</a></p>
`))
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	code := http.StatusForbidden
	if status.Code(err) == codes.Unavailable {
		code = http.StatusServiceUnavailable
	}
	w.WriteHeader(code)
	_ = page.Execute(w, struct{ Message, Path string }{status.Convert(err).Message(), dashboard.Path})
}
