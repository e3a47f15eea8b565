package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outbid-dev/outbid/orchestrator/oidc"
	"github.com/outbid-dev/outbid/orchestrator/sanitize"
)

// SignIn lets people sign in with an OpenID provider. Without tokens of a file, only they can call the API.
type SignIn struct {
	Verifier *oidc.Verifier
	Bindings Bindings
	// Scopes are asked for at sign-in; nil means those that the provider offers of the usual ones.
	Scopes []string
	// CA has the PEM certificates that clients must trust to reach the provider, or is nil if the system trusts it.
	CA []byte
	// Key seals the sessions of browsers. Servers of one cluster have the same.
	Key []byte
}

// bearer returns the caller of a bearer token: one of the tokens file, or of the identity provider.
func (i *interceptor) bearer(ctx context.Context, token string) (Principal, error) {
	if who, ok := i.tokens.find(token); ok {
		return who, nil
	}
	if i.signIn == nil || !oidc.IsToken(token) {
		return Principal{}, status.Error(codes.Unauthenticated, "the token is not known to this server")
	}
	who, err := i.signIn.Verifier.Verify(ctx, token)
	if err != nil {
		return Principal{}, signInError(err)
	}
	return i.signIn.Bindings.Bind(who.Name, who.Groups)
}

// maxSignInError limits an error's text, which can quote the provider.
const maxSignInError = 500

// signInError tells a caller whose token could not be checked from one whose token is not valid.
func signInError(err error) error {
	code := codes.Unauthenticated
	if errors.Is(err, oidc.ErrUnavailable) {
		code = codes.Unavailable
	}
	return status.Error(code, sanitize.Line(err.Error(), maxSignInError))
}

// signInInfo tells clients how to sign in.
type signInInfo struct {
	// OIDC is nil if the server accepts tokens of its file only.
	OIDC *oidcInfo `json:"oidc"`
}

type oidcInfo struct {
	IssuerURL string   `json:"issuer_url"`
	ClientID  string   `json:"client_id"`
	Scopes    []string `json:"scopes,omitempty"`
	CA        string   `json:"ca,omitempty"`
}

// SignInPath answers every caller with how to sign in.
const SignInPath = "/v1/sign-in"

// info answers SignInPath.
func (s *SignIn) info(w http.ResponseWriter, _ *http.Request) {
	var answer signInInfo
	if s != nil {
		answer.OIDC = &oidcInfo{IssuerURL: s.Verifier.Issuer(), ClientID: s.Verifier.ClientID(), Scopes: s.Scopes, CA: string(s.CA)}
	}
	writeJSON(w, http.StatusOK, answer)
}

// signInLife is how long a browser stays signed in. Then the provider is asked again whether the person and the groups
// still exist.
const signInLife = 12 * time.Hour

// signInPrefix begins the cookies of people who signed in with the provider.
const signInPrefix = "oidc."

// browserSession is a person who signed in with the provider in a browser.
type browserSession struct {
	Name   string    `json:"name"`
	Groups []string  `json:"groups"`
	Began  time.Time `json:"began"`
}

// maxCookie is the longest value of a cookie that browsers keep.
const maxCookie = 3800

// encode returns the cookie's value.
func (b browserSession) encode(key []byte) (string, error) {
	sealed, err := sealJSON(key, "session", b)
	if err != nil {
		return "", err
	}
	if len(sealed) > maxCookie {
		return "", status.Errorf(codes.FailedPrecondition, "the %d groups of %q do not fit into a cookie: let the provider send only the "+
			"groups that matter here, or use a token", len(b.Groups), b.Name)
	}
	return signInPrefix + sealed, nil
}

// browser returns whose session a cookie has.
func (s *SignIn) browser(value string, now time.Time) (Principal, error) {
	ended := status.Error(codes.Unauthenticated, "the session has ended: sign in again")
	sealed, ok := strings.CutPrefix(value, signInPrefix)
	var b browserSession
	if !ok || s == nil || openJSON(s.Key, "session", sealed, &b) != nil || now.Sub(b.Began).Abs() > signInLife {
		return Principal{}, ended
	}
	return s.Bindings.Bind(b.Name, b.Groups)
}

// check reports what is missing.
func (s *SignIn) check() error {
	if s != nil && (s.Verifier == nil || s.Bindings == nil || len(s.Key) == 0) {
		return fmt.Errorf("api: SignIn needs Verifier, Bindings and Key")
	}
	return nil
}
