package oidc

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
)

// ErrUnavailable means that a token could not be checked because the provider did not answer. The token may be valid.
var ErrUnavailable = errors.New("the OpenID provider is not available")

// Config is the configuration of a Verifier.
type Config struct {
	// Issuer is the URL of the provider, exactly as it is in tokens' claim iss.
	Issuer string
	// ClientID must be in the audience of tokens.
	ClientID string
	// UsernameClaim is the claim with the caller's name; "" means sub.
	UsernameClaim string
	// GroupsClaim is the claim with the names of the caller's groups, or "" if tokens have none.
	GroupsClaim string
	// CAFile has the authorities that sign the provider's certificate; "" means the system's authorities.
	CAFile string
	// CA has such authorities in PEM; it is used if CAFile is "".
	CA []byte
	// Now returns the time; nil means time.Now.
	Now func() time.Time
}

// algorithms returns the signatures that a Verifier accepts: those with a public key. A token cannot choose "none", nor an
// algorithm whose key is a shared secret.
func algorithms() []string {
	return []string{
		oidc.RS256, oidc.RS384, oidc.RS512, oidc.ES256, oidc.ES384, oidc.ES512, oidc.PS256, oidc.PS384, oidc.PS512, oidc.EdDSA,
	}
}

const (
	// askTimeout bounds a request to the provider, for which calls of the API wait.
	askTimeout = 5 * time.Second
	// retryAfter is how long after a failed discovery the next one starts.
	retryAfter = 5 * time.Second
)

// Verifier checks tokens. Create it with New or NewWithKeys.
type Verifier struct {
	cfg    Config
	client *http.Client
	// keys are given, or nil if the provider names them.
	keys KeySet

	// mu guards the fields below. A discovery holds it, so that concurrent callers wait for one request.
	mu       sync.Mutex
	provider *oidc.Provider
	found    *oidc.IDTokenVerifier
	failed   error
	failedAt time.Time
}

// New returns a Verifier that finds the provider's keys by discovery. It sends no request.
func New(cfg Config) (*Verifier, error) {
	if u, err := url.Parse(cfg.Issuer); err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return nil, fmt.Errorf("issuer URL %q: must be https://HOST or https://HOST/PATH", cfg.Issuer)
	} else if u.Scheme == "http" && !isLoopback(u.Hostname()) {
		return nil, fmt.Errorf("issuer URL %q: must begin with https:// because it is not a loopback address", cfg.Issuer)
	}
	return create(cfg, nil)
}

// NewWithKeys returns a Verifier that uses these keys without discovery. The issuer does not have to be a URL that
// can be reached, such as https://kubernetes.default.svc outside the cluster.
func NewWithKeys(cfg Config, keys KeySet) (*Verifier, error) {
	if cfg.Issuer == "" {
		return nil, errors.New("issuer: must be the issuer of tokens, got nothing")
	}
	return create(cfg, keys)
}

func create(cfg Config, keys KeySet) (*Verifier, error) {
	if cfg.ClientID == "" {
		return nil, errors.New("client ID: must be the audience of tokens, got nothing")
	}
	cfg.UsernameClaim = cmp.Or(cfg.UsernameClaim, "sub")
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	client, err := Client(cfg.CAFile, cfg.CA)
	if err != nil {
		return nil, err
	}
	v := &Verifier{cfg: cfg, client: client, keys: keys}
	if keys != nil {
		v.found = v.verifier(keys)
	}
	return v, nil
}

func (v *Verifier) verifier(keys KeySet) *oidc.IDTokenVerifier {
	return oidc.NewVerifier(v.cfg.Issuer, keys, &oidc.Config{
		ClientID: v.cfg.ClientID, SupportedSigningAlgs: algorithms(), Now: v.cfg.Now,
	})
}

// Client returns an HTTP client that trusts the authorities in a PEM file or, if caFile is "", those in ca. With neither
// it trusts the system's authorities.
func Client(caFile string, ca []byte) (*http.Client, error) {
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12},
		ForceAttemptHTTP2: true, IdleConnTimeout: time.Minute, MaxIdleConns: 4,
	}
	if caFile != "" {
		var err error
		if ca, err = os.ReadFile(caFile); err != nil {
			return nil, fmt.Errorf("CA file: %w", err)
		}
	}
	if caFile != "" || len(ca) > 0 {
		transport.TLSClientConfig.RootCAs = x509.NewCertPool()
		if !transport.TLSClientConfig.RootCAs.AppendCertsFromPEM(ca) {
			return nil, fmt.Errorf("CA file %s: must contain a PEM certificate, found none", caFile)
		}
	}
	return &http.Client{Transport: transport, Timeout: askTimeout}, nil
}

// Issuer returns the issuer whose tokens are accepted.
func (v *Verifier) Issuer() string { return v.cfg.Issuer }

// ClientID returns the audience of accepted tokens.
func (v *Verifier) ClientID() string { return v.cfg.ClientID }

// Provider returns what the provider says about itself, from the first successful discovery. Its error wraps
// ErrUnavailable.
func (v *Verifier) Provider(ctx context.Context) (*oidc.Provider, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if err := v.discover(ctx); err != nil {
		return nil, err
	}
	if v.provider == nil {
		return nil, fmt.Errorf("issuer %s: its keys were given, so it was not looked up", v.cfg.Issuer)
	}
	return v.provider, nil
}

// discover finds the provider if that did not succeed before. The caller holds mu.
func (v *Verifier) discover(ctx context.Context) error {
	if v.found != nil {
		return nil
	}
	if v.failed != nil && v.cfg.Now().Sub(v.failedAt) < retryAfter {
		return v.failed
	}
	asking, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	provider, err := oidc.NewProvider(oidc.ClientContext(asking, v.client), v.cfg.Issuer)
	if ctx.Err() != nil {
		return ctx.Err() // the caller left; that says nothing about the provider
	}
	if err == nil {
		var more struct {
			Keys string `json:"jwks_uri"`
		}
		if err = provider.Claims(&more); err == nil {
			v.provider, v.found = provider, v.verifier(RemoteKeys(more.Keys, v.client, v.cfg.Now))
			v.failed = nil
			return nil
		}
	}
	v.failed = fmt.Errorf("%w: issuer %s: %w", ErrUnavailable, v.cfg.Issuer, err)
	v.failedAt = v.cfg.Now()
	return v.failed
}

// Verify checks a token's signature, issuer, audience and times, and returns whose it is. The error wraps
// ErrUnavailable if the provider's keys cannot be read now.
func (v *Verifier) Verify(ctx context.Context, token string) (Identity, error) {
	v.mu.Lock()
	err := v.discover(ctx)
	found := v.found
	v.mu.Unlock()
	if err != nil {
		return Identity{}, err
	}
	// go-oidc does not wrap the error of a KeySet, so it is kept here.
	var keysError error
	checked, err := found.Verify(context.WithValue(ctx, keysErrorKey{}, &keysError), token)
	if keysError != nil {
		return Identity{}, fmt.Errorf("%w: issuer %s: %w", ErrUnavailable, v.cfg.Issuer, keysError)
	}
	if err != nil {
		return Identity{}, explain(err, token)
	}
	var claims map[string]json.RawMessage
	if err := checked.Claims(&claims); err != nil {
		return Identity{}, fmt.Errorf("read the token's claims: %w", err)
	}
	who := Identity{Issuer: checked.Issuer, Subject: checked.Subject, Expires: checked.Expiry, Nonce: checked.Nonce, claims: claims}
	if who.Name, err = username(claims, v.cfg.UsernameClaim); err != nil {
		return Identity{}, err
	}
	if who.Groups, err = groups(claims, v.cfg.GroupsClaim); err != nil {
		return Identity{}, err
	}
	return who, nil
}

// keysErrorKey is the context key of a *error that a KeySet sets if it could not read the keys.
type keysErrorKey struct{}
