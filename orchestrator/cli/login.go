package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/oauth2"

	"github.com/outbid-dev/outbid/orchestrator/api"
	"github.com/outbid-dev/outbid/orchestrator/oidc"
	"github.com/outbid-dev/outbid/orchestrator/oidc/saved"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// signInCommands sign people in with the server's identity provider, and out.
type signInCommands struct {
	*client
	// browse opens a URL in this machine's browser.
	browse func(ctx context.Context, link string) error
}

// loginTime is how long a person may take at the provider.
const loginTime = 10 * time.Minute

// loginFlags has the flags of login.
type loginFlags struct {
	device, noBrowser bool
	port              int
}

func (p *signInCommands) loginCommand() *cobra.Command {
	var o loginFlags
	cmd := &cobra.Command{
		Use:   "login",
		Short: "Sign in with the server's identity provider",
		Long: `Login opens the server's OpenID provider in this machine's browser and waits until you have signed in. With --device it
prints a link and a code instead, for a browser on another machine.

The token is kept in ~/.config/outbid/sign-in for this server, readable only by you, and refreshed when it expires. All
commands and the Python SDK use it unless a token is given (--token, --token-file or OUTBID_TOKEN).`,
		Example: `  outbid login
  outbid login --device
  outbid --server https://tuner.example.org:7700 login`,
		Args:              exactArgs(),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.port < 0 || o.port > 65535 {
				return badInput("--port %d: want a port, or 0 for a free one", o.port)
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), loginTime)
			defer cancel()
			err := p.login(ctx, o)
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return fmt.Errorf("nobody signed in within %s: run 'outbid login' again", loginTime)
			}
			return err
		},
	}
	f := cmd.Flags()
	f.BoolVar(&o.device, "device", false, "print a link and a code for a browser on any machine")
	f.BoolVar(&o.noBrowser, "no-browser", false, "print the link instead of opening it")
	f.IntVar(&o.port, "port", 0, "`PORT` of 127.0.0.1 to which the provider sends the browser; 0 chooses a free one, which some providers refuse")
	return cmd
}

// login signs in and saves the token, once the server has accepted it.
func (p *signInCommands) login(ctx context.Context, o loginFlags) error {
	t, err := p.findServer()
	if err != nil {
		return err
	}
	path, err := p.signInPath(t.url)
	if err != nil {
		return err
	}
	how, err := p.signInInfo(ctx, t)
	if err != nil {
		return err
	}
	verifier, err := oidc.New(oidc.Config{Issuer: how.IssuerURL, ClientID: how.ClientID, CA: []byte(how.CA)})
	if err != nil {
		return err
	}
	ctx = verifier.Context(ctx)
	conf, err := verifier.OAuth(ctx, how.Scopes, true)
	if err != nil {
		return err
	}
	var answer *oauth2.Token
	nonce := ""
	if o.device {
		answer, err = p.deviceFlow(ctx, conf)
	} else {
		answer, nonce, err = p.codeFlow(ctx, conf, o)
	}
	if err != nil {
		return providerError(how.IssuerURL, err)
	}
	_, token, err := verifier.VerifyAnswer(ctx, answer, nonce)
	if err != nil {
		return err
	}
	who, err := p.callerOf(ctx, t, token)
	if err != nil {
		return err
	}
	provider, err := verifier.Provider(ctx)
	if err != nil {
		return err
	}
	var more struct {
		Revoke string `json:"revocation_endpoint"`
	}
	_ = provider.Claims(&more)
	err = saved.Save(path, saved.SignIn{
		Server: t.url, Issuer: how.IssuerURL, Client: how.ClientID, CA: how.CA, TokenURL: conf.Endpoint.TokenURL, RevokeURL: more.Revoke,
		IDToken: token, Refresh: answer.RefreshToken,
	})
	if err != nil {
		return err
	}
	p.printf("signed in to %s as %s (tenant %s, role %s)\n", t.url, who.GetName(), who.GetTenant(), who.GetRole())
	if answer.RefreshToken == "" {
		s := saved.SignIn{IDToken: token}
		p.notef("the provider gave no refresh token: sign in again after %s", s.Expires().Local().Format("15:04"))
	}
	return nil
}

// howToSignIn is the provider of a server.
type howToSignIn struct {
	IssuerURL string   `json:"issuer_url"`
	ClientID  string   `json:"client_id"`
	Scopes    []string `json:"scopes"`
	CA        string   `json:"ca"`
}

// signInInfo asks the server for its provider.
func (p *signInCommands) signInInfo(ctx context.Context, t target) (howToSignIn, error) {
	client, err := oidc.Client(p.caFile(), nil)
	if err != nil {
		return howToSignIn{}, badInput("--ca: %w", err)
	}
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(t.url, "/")+api.SignInPath, nil)
	if err != nil {
		return howToSignIn{}, badInput("server URL %q (from %s): want http://HOST:PORT or https://HOST:PORT", t.url, t.from)
	}
	resp, err := client.Do(req)
	if err != nil {
		return howToSignIn{}, &exitError{code: exitUnreachable, msg: t.unreachable(err.Error()), err: err}
	}
	defer resp.Body.Close()
	var answer struct {
		OIDC *howToSignIn `json:"oidc"`
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&answer); err != nil || resp.StatusCode != http.StatusOK {
		return howToSignIn{}, fmt.Errorf("the server at %s does not say how to sign in (%s): is it an older version?", t.url, resp.Status)
	}
	if answer.OIDC == nil {
		return howToSignIn{}, fmt.Errorf("the server at %s has no identity provider (serve --oidc-issuer-url): use a token, with "+
			"--token-file FILE or OUTBID_TOKEN", t.url)
	}
	return *answer.OIDC, nil
}

// callerOf returns whom the server takes the holder of a token for.
func (p *signInCommands) callerOf(ctx context.Context, t target, token string) (*outbidv1.Caller, error) {
	t.token, t.signIn = token, ""
	conn, err := dial(t, p.caFile(), func() {})
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	info, err := outbidv1.NewOutbidServiceClient(conn).GetServerInfo(ctx, &outbidv1.GetServerInfoRequest{})
	return info.GetCaller(), err
}

// providerError explains an error of the provider.
func providerError(issuer string, err error) error {
	refused, ok := errors.AsType[*oauth2.RetrieveError](err)
	if !ok {
		return err
	}
	detail := strings.TrimSpace(refused.ErrorCode + " " + refused.ErrorDescription)
	if detail == "" {
		detail = refused.Error()
	}
	return fmt.Errorf("the provider %s refused: %s", issuer, oneLine(detail))
}

// signInPath returns the file of a server's sign-in.
func (cl *client) signInPath(server string) (string, error) {
	dir := saved.Dir(cl.getenv)
	if dir == "" {
		return "", badInput("cannot keep the sign-in: set HOME or XDG_CONFIG_HOME")
	}
	path, err := saved.Path(dir, server)
	if err != nil {
		return "", badInput("%w", err)
	}
	return path, nil
}

// savedSignIn returns the file of a server's sign-in, or "" without one.
func (cl *client) savedSignIn(server string) string {
	path, err := cl.signInPath(server)
	if err != nil {
		return ""
	}
	if _, err := saved.Load(path); errors.Is(err, saved.ErrNone) {
		return ""
	}
	return path
}
