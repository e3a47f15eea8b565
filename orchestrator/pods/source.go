package pods

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/outbid-dev/outbid/orchestrator/oidc"
)

// DefaultAudience is the audience of tokens by default.
const DefaultAudience = "outbid"

// Source says where the issuer's keys are.
type Source struct {
	// Issuer is the claim iss of tokens; by default that of this pod's own token.
	Issuer string
	// Keys is a file or URL of a JSON Web Key Set, or a file of PEM public keys. By default the keys come from the API
	// server of this process's cluster, which accepts this pod's ServiceAccount.
	Keys string
	// CAFile has the authorities for an https URL in Keys; "" means those of the system.
	CAFile string
	// Audience is the audience of tokens; by default DefaultAudience.
	Audience string
	// Accounts are the ServiceAccounts whose pods may join, as NAMESPACE/NAME.
	Accounts []string
}

// ownDir has the files that a pod needs to reach its API server.
const ownDir = "/var/run/secrets/kubernetes.io/serviceaccount"

// Open returns the Admission for a source, or ErrAccounts. It reads files, and sends no request.
func Open(s Source) (*Admission, error) { return open(s, ownDir, os.Getenv) }

func open(s Source, own string, getenv func(string) string) (*Admission, error) {
	if err := checkAccounts(s.Accounts); err != nil {
		return nil, err
	}
	cfg := Config{Issuer: s.Issuer, Audience: cmp.Or(s.Audience, DefaultAudience), Accounts: s.Accounts}
	var err error
	if cfg.Issuer == "" {
		if cfg.Issuer, err = issuerOf(filepath.Join(own, "token")); err != nil {
			return nil, fmt.Errorf("issuer: must be the issuer of tokens, because this process is not in a pod with a token of its own: %w", err)
		}
	}
	switch {
	case s.Keys == "":
		cfg.Keys, err = apiServerKeys(own, getenv)
	case strings.HasPrefix(s.Keys, "https://") || strings.HasPrefix(s.Keys, "http://"):
		var client *http.Client
		if client, err = oidc.Client(s.CAFile, nil); err == nil {
			cfg.Keys = oidc.RemoteKeys(s.Keys, client, nil)
		}
	default:
		var data []byte
		if data, err = os.ReadFile(s.Keys); err == nil {
			cfg.Keys, err = oidc.StaticKeys(data)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("keys: %w", err)
	}
	return New(cfg)
}

// issuerOf returns the issuer of a token in a file that the kubelet wrote.
func issuerOf(path string) (string, error) {
	data, err := os.ReadFile(path) //nolint:gosec // a file of the pod
	if err != nil {
		return "", err
	}
	parts := strings.Split(strings.TrimSpace(string(data)), ".")
	if len(parts) != 3 {
		return "", fmt.Errorf("%s does not contain a token", path)
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return "", fmt.Errorf("%s does not contain a token: %w", path, err)
	}
	var own struct {
		Issuer string `json:"iss"`
	}
	if err := json.Unmarshal(payload, &own); err != nil || own.Issuer == "" {
		return "", fmt.Errorf("the token in %s has no issuer", path)
	}
	return own.Issuer, nil
}

// apiServerKeys returns the keys that the API server of this pod's cluster publishes. Every ServiceAccount may read
// them by default (the role system:service-account-issuer-discovery).
func apiServerKeys(own string, getenv func(string) string) (oidc.KeySet, error) {
	base, client, err := apiServer(own, getenv)
	if errors.Is(err, errNoPod) {
		return nil, fmt.Errorf("must be a file or URL, because %w", err)
	}
	if err != nil {
		return nil, err
	}
	return oidc.RemoteKeys(base+"/openid/v1/jwks", client, nil), nil
}

// asPod sends requests with the token in a file, which the kubelet replaces before it expires.
type asPod struct {
	token string
	next  http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (a *asPod) RoundTrip(r *http.Request) (*http.Response, error) {
	data, err := os.ReadFile(a.token)
	if err != nil {
		return nil, err
	}
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(data)))
	return a.next.RoundTrip(r)
}
