package cli

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
)

// askConsent returns the option without which some providers ignore the scope offline_access.
func askConsent(conf *oauth2.Config) []oauth2.AuthCodeOption {
	if slices.Contains(conf.Scopes, oidc.ScopeOfflineAccess) {
		return []oauth2.AuthCodeOption{oauth2.SetAuthURLParam("prompt", "consent")}
	}
	return nil
}

// deviceFlow prints a link and a code, and waits until the person has entered it. Some providers want PKCE here too.
func (p *signInCommands) deviceFlow(ctx context.Context, conf *oauth2.Config) (*oauth2.Token, error) {
	if conf.Endpoint.DeviceAuthURL == "" {
		return nil, errors.New("the provider does not offer the device flow: run 'outbid login' without --device")
	}
	verifier := oauth2.GenerateVerifier()
	device, err := conf.DeviceAuth(ctx, append(askConsent(conf), oauth2.S256ChallengeOption(verifier))...)
	if err != nil {
		return nil, err
	}
	p.printf("open %s\nand enter the code %s\n", cmp.Or(device.VerificationURIComplete, device.VerificationURI), device.UserCode)
	return conf.DeviceAccessToken(ctx, device, oauth2.VerifierOption(verifier))
}

// codeFlow opens the provider in a browser, and waits until it sends the browser to this process.
func (p *signInCommands) codeFlow(ctx context.Context, conf *oauth2.Config, o loginFlags) (*oauth2.Token, string, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(o.port)))
	if err != nil {
		return nil, "", badInput("--port %d: %w", o.port, err)
	}
	conf.RedirectURL = "http://" + l.Addr().String() + "/callback"
	state, nonce, verifier := rand.Text(), rand.Text(), oauth2.GenerateVerifier()
	back := newCallback(state)
	server := &http.Server{Handler: back, ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	link := conf.AuthCodeURL(state, append(askConsent(conf), oauth2.S256ChallengeOption(verifier), oauth2.SetAuthURLParam("nonce", nonce))...)
	if !o.noBrowser && p.browse != nil && p.browse(ctx, link) == nil {
		p.notef("sign in with the browser that was opened; without one, run 'outbid login --device'")
	} else {
		p.printf("open %s\n", link)
	}
	code, err := back.wait(ctx)
	// The browser must get its page before this process ends.
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	_ = server.Shutdown(closing)
	if ended := <-served; err == nil && !errors.Is(ended, http.ErrServerClosed) {
		err = ended
	}
	if err != nil {
		return nil, "", err
	}
	token, err := conf.Exchange(ctx, code, oauth2.VerifierOption(verifier))
	return token, nonce, err
}

// callback receives the browser that the provider sends back.
type callback struct {
	state string
	codes chan string
	errs  chan error
}

func newCallback(state string) *callback {
	return &callback{state: state, codes: make(chan string, 1), errs: make(chan error, 1)}
}

// ServeHTTP implements http.Handler.
func (c *callback) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	if r.URL.Path != "/callback" || subtle.ConstantTimeCompare([]byte(q.Get("state")), []byte(c.state)) != 1 {
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprintln(w, "This page does not belong to the sign-in that waits here. Run 'outbid login' again.")
		return
	}
	if problem := q.Get("error"); problem != "" {
		offer(c.errs, fmt.Errorf("the provider refused: %s", oneLine(cmp.Or(q.Get("error_description"), problem))))
		fmt.Fprintln(w, "Not signed in. The terminal says why.")
		return
	}
	offer(c.codes, q.Get("code"))
	fmt.Fprintln(w, "You may close this page and return to the terminal.")
}

// offer sends a value unless an earlier one was not received.
func offer[T any](to chan<- T, v T) {
	select {
	case to <- v:
	default:
	}
}

// wait returns the provider's code.
func (c *callback) wait(ctx context.Context) (string, error) {
	select {
	case code := <-c.codes:
		return code, nil
	case err := <-c.errs:
		return "", err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}
