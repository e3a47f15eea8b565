// Package podstest signs ServiceAccount tokens like a Kubernetes API server, for tests.
package podstest

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"maps"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/outbid-dev/outbid/orchestrator/oidc/oidctest"
)

// URL is the issuer of tokens.
const URL = "https://kubernetes.default.svc"

// Issuer signs tokens with an RSA key, like the API server.
type Issuer struct{ key *rsa.PrivateKey }

// New returns an Issuer.
func New(t testing.TB) *Issuer {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	return &Issuer{key}
}

// PEM returns the public key.
func (i *Issuer) PEM(t testing.TB) []byte {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(i.key.Public())
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
}

// Token returns the token of a pod of the ServiceAccount team/worker, with changes to its claims. A change to nil removes
// a claim.
func (i *Issuer) Token(t testing.TB, pod, uid, node string, issued time.Time, changes map[string]any) string {
	t.Helper()
	claims := map[string]any{
		"iss": URL, "aud": []string{"outbid"}, "sub": "system:serviceaccount:team:worker", "jti": rand.Text(),
		"iat": issued.Unix(), "nbf": issued.Unix(), "exp": issued.Add(time.Hour).Unix(),
		"kubernetes.io": map[string]any{
			"namespace": "team", "serviceaccount": map[string]any{"name": "worker", "uid": "a-1"},
			"pod": map[string]any{"name": pod, "uid": uid}, "node": map[string]any{"name": node, "uid": "n-1"},
		},
	}
	maps.Copy(claims, changes)
	for name, value := range changes {
		if value == nil {
			delete(claims, name)
		}
	}
	return oidctest.Sign(t, claims, jose.RS256, i.key, "")
}
