package saved

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outbid-dev/outbid/orchestrator/oidc"
)

const (
	// early is how long before its end an ID token is refreshed.
	early = 30 * time.Second
	// maxAnswer is the largest accepted answer of a provider.
	maxAnswer = 1 << 20
)

// errEnded means that the provider does not extend the sign-in.
var errEnded = errors.New("the sign-in has ended")

// Token returns the ID token of a file, and refreshes it first if it expires soon. If the provider does not answer, a
// token that has not expired is returned.
func Token(ctx context.Context, path string, now func() time.Time) (string, error) {
	s, err := Load(path)
	if err != nil {
		return "", err
	}
	if now().Add(early).Before(s.Expires()) {
		return s.IDToken, nil
	}
	// Providers accept a refresh token once, so processes take turns.
	unlock, err := lock(path)
	if err != nil {
		return "", err
	}
	defer unlock()
	if s, err = Load(path); err != nil || now().Add(early).Before(s.Expires()) {
		return s.IDToken, err
	}
	fresh, err := refresh(ctx, s)
	if err != nil {
		if now().Before(s.Expires()) {
			return s.IDToken, nil
		}
		return "", fmt.Errorf("the sign-in to %s: %w; run 'outbid login'", s.Server, err)
	}
	return fresh.IDToken, Save(path, fresh)
}

func lock(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("refresh the sign-in: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil { //nolint:gosec // a file descriptor
		return nil, errors.Join(fmt.Errorf("refresh the sign-in: %w", err), f.Close())
	}
	return func() { _ = f.Close() }, nil
}

// refresh gets a new ID token.
func refresh(ctx context.Context, s SignIn) (SignIn, error) {
	if s.Refresh == "" {
		return s, fmt.Errorf("%w: its token expired at %s, and the provider gave no refresh token", errEnded, s.Expires().UTC().Format(time.RFC3339))
	}
	var got struct {
		IDToken     string `json:"id_token"`
		Refresh     string `json:"refresh_token"`
		Error       string `json:"error"`
		Description string `json:"error_description"`
	}
	code, err := post(ctx, s, s.TokenURL, url.Values{
		"grant_type": {"refresh_token"}, "refresh_token": {s.Refresh}, "client_id": {s.Client},
	}, &got)
	switch {
	case err != nil:
		return s, err
	case code == http.StatusBadRequest || code == http.StatusUnauthorized:
		return s, fmt.Errorf("%w: the provider refused to refresh it: %s", errEnded, strings.Join([]string{got.Error, got.Description}, " "))
	case code != http.StatusOK:
		return s, fmt.Errorf("refresh: %s answers %d", s.TokenURL, code)
	case got.IDToken == "":
		return s, fmt.Errorf("%w: the provider refreshes without an ID token", errEnded)
	}
	s.IDToken = got.IDToken
	if got.Refresh != "" {
		s.Refresh = got.Refresh
	}
	return s, nil
}

// Revoke asks the provider to forget the refresh token, if it has an address for that.
func Revoke(ctx context.Context, s SignIn) error {
	if s.RevokeURL == "" || s.Refresh == "" {
		return nil
	}
	var ignored any
	code, err := post(ctx, s, s.RevokeURL, url.Values{"token": {s.Refresh}, "token_type_hint": {"refresh_token"}, "client_id": {s.Client}}, &ignored)
	if err == nil && code >= http.StatusBadRequest {
		err = fmt.Errorf("%s answers %d", s.RevokeURL, code)
	}
	return err
}

// post sends a form, and decodes the answer into v if it is JSON.
func post(ctx context.Context, s SignIn, to string, form url.Values, v any) (code int, err error) {
	client, err := oidc.Client("", []byte(s.CA))
	if err != nil {
		return 0, err
	}
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to, strings.NewReader(form.Encode()))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Accept", "application/json")
	answer, err := client.Do(req)
	if err != nil {
		return 0, fmt.Errorf("the provider does not answer: %w", err)
	}
	defer answer.Body.Close()
	_ = json.NewDecoder(io.LimitReader(answer.Body, maxAnswer)).Decode(v)
	return answer.StatusCode, nil
}
