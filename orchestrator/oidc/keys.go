package oidc

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"
)

// KeySet has the public keys that verify tokens.
type KeySet = oidc.KeySet

const (
	// keysLife is how long keys are used before they are read again, so that a key that the provider withdrew does not
	// stay valid. If the provider does not answer then, the keys stay in use.
	keysLife = 10 * time.Minute
	// keysPause is the shortest time from a request that brought no new key to the next one, so that tokens with unknown
	// keys cannot cause many.
	keysPause = 5 * time.Second
	// maxKeys is the largest accepted size of a key set.
	maxKeys = 1 << 20
)

// StaticKeys returns the keys of a JSON Web Key Set, or of PEM public keys such as those of kube-apiserver's
// --service-account-key-file.
func StaticKeys(data []byte) (KeySet, error) {
	set := &oidc.StaticKeySet{}
	if strings.HasPrefix(strings.TrimSpace(string(data)), "{") {
		list, err := parseKeys(data)
		if err != nil {
			return nil, err
		}
		for _, key := range list {
			set.PublicKeys = append(set.PublicKeys, key.Key)
		}
	}
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		key, err := parsePublic(block)
		if err != nil {
			return nil, err
		}
		set.PublicKeys = append(set.PublicKeys, key)
	}
	if len(set.PublicKeys) == 0 {
		return nil, errors.New("keys: must be a JSON Web Key Set or PEM public keys, found no key")
	}
	return set, nil
}

// parsePublic returns the public key, or that of a certificate, in a PEM block.
func parsePublic(block *pem.Block) (crypto.PublicKey, error) {
	switch block.Type {
	case "PUBLIC KEY":
		return x509.ParsePKIXPublicKey(block.Bytes)
	case "RSA PUBLIC KEY":
		return x509.ParsePKCS1PublicKey(block.Bytes)
	case "CERTIFICATE":
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		return cert.PublicKey, nil
	}
	return nil, fmt.Errorf("keys: a PEM block must be PUBLIC KEY, RSA PUBLIC KEY or CERTIFICATE, got %s", block.Type)
}

// parseKeys returns the keys of a JSON Web Key Set that can verify signatures. Others are skipped.
func parseKeys(data []byte) ([]jose.JSONWebKey, error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(data, &set); err != nil {
		return nil, fmt.Errorf("keys: must be a JSON Web Key Set: %w", err)
	}
	var list []jose.JSONWebKey
	for _, raw := range set.Keys {
		var key jose.JSONWebKey
		if json.Unmarshal(raw, &key) != nil || key.Use == "enc" {
			continue
		}
		switch key.Key.(type) {
		case *rsa.PublicKey, *ecdsa.PublicKey, ed25519.PublicKey:
			list = append(list, key)
		}
	}
	return list, nil
}

// remoteKeys are the keys at a URL. They are read again when a token has an unknown key and after keysLife.
type remoteKeys struct {
	url    string
	client *http.Client
	now    func() time.Time

	// asking is held during a request, so that callers with unknown keys wait for one request.
	asking sync.Mutex
	// mu guards last.
	mu   sync.Mutex
	last reading
}

// reading is the state of the keys after a request.
type reading struct {
	keys []jose.JSONWebKey
	// at is the time of keys.
	at time.Time
	// asked is the time of the last request if it brought no new key or is running, else zero. err is its error.
	asked time.Time
	err   error
}

// isDue reports whether a request may be sent now.
func (r reading) isDue(now time.Time) bool { return r.asked.IsZero() || now.Sub(r.asked) >= keysPause }

// RemoteKeys returns the keys of a JSON Web Key Set at a URL. A nil client means the default client, a nil now time.Now.
func RemoteKeys(url string, client *http.Client, now func() time.Time) KeySet {
	if client == nil {
		client = &http.Client{Timeout: askTimeout}
	}
	if now == nil {
		now = time.Now
	}
	return &remoteKeys{url: url, client: client, now: now}
}

// VerifySignature implements KeySet.
func (r *remoteKeys) VerifySignature(ctx context.Context, token string) ([]byte, error) {
	signed, err := jose.ParseSignedCompact(token, joseAlgorithms())
	if err != nil {
		return nil, err
	}
	keys, err := r.current(ctx, false)
	if payload, ok := verifyWith(keys, signed); ok {
		return payload, nil
	}
	if err == nil {
		keys, err = r.current(ctx, true)
		if payload, ok := verifyWith(keys, signed); ok {
			return payload, nil
		}
	}
	if err != nil {
		if kept, ok := ctx.Value(keysErrorKey{}).(*error); ok {
			*kept = err
		}
		return nil, err
	}
	return nil, fmt.Errorf("none of the %d keys at %s verifies its signature", len(keys), r.url)
}

func joseAlgorithms() []jose.SignatureAlgorithm {
	var list []jose.SignatureAlgorithm
	for _, name := range algorithms() {
		list = append(list, jose.SignatureAlgorithm(name))
	}
	return list
}

// verifyWith returns a token's payload if one of the keys verifies it.
func verifyWith(keys []jose.JSONWebKey, signed *jose.JSONWebSignature) ([]byte, bool) {
	if len(signed.Signatures) != 1 {
		return nil, false
	}
	id := signed.Signatures[0].Header.KeyID
	for _, key := range keys {
		if id != "" && key.KeyID != "" && key.KeyID != id {
			continue
		}
		if payload, err := signed.Verify(key.Key); err == nil {
			return payload, true
		}
	}
	return nil, false
}

// current returns the keys. It reads them if they are old, or if unknown is set because none verifies a token. The
// error is of the last request; keys of an earlier one are returned too. While one caller waits for old keys to be read
// again, others use the old ones.
func (r *remoteKeys) current(ctx context.Context, unknown bool) ([]jose.JSONWebKey, error) {
	last, now := r.state(), r.now()
	if last.keys != nil && !unknown && (now.Sub(last.at) < keysLife || !last.isDue(now)) {
		return last.keys, last.err
	}
	r.asking.Lock()
	defer r.asking.Unlock()
	seen := last.at
	if last = r.state(); last.at != seen || !last.isDue(r.now()) {
		return last.keys, last.err // read while this caller waited, or too early
	}
	last.asked = r.now()
	r.set(last)
	keys, err := r.request(ctx)
	last.asked, last.err = r.now(), err
	if err == nil {
		isNew := !slices.EqualFunc(keys, last.keys, isSameKey)
		last.keys, last.at = keys, last.asked
		if isNew {
			last.asked = time.Time{}
		}
	}
	r.set(last)
	return last.keys, last.err
}

func isSameKey(a, b jose.JSONWebKey) bool {
	key, ok := a.Key.(interface{ Equal(x crypto.PublicKey) bool })
	return a.KeyID == b.KeyID && ok && key.Equal(b.Key)
}

func (r *remoteKeys) state() reading {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last
}

func (r *remoteKeys) set(last reading) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = last
}

// request reads the keys. It continues when the caller leaves, because others wait for it too.
func (r *remoteKeys) request(ctx context.Context) ([]jose.JSONWebKey, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url, nil)
	if err != nil {
		return nil, fmt.Errorf("read keys: %w", err)
	}
	answer, err := r.client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("read keys: %w", err)
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(io.LimitReader(answer.Body, maxKeys))
	if err != nil {
		return nil, fmt.Errorf("read keys from %s: %w", r.url, err)
	}
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("read keys from %s: the answer is %s", r.url, answer.Status)
	}
	return parseKeys(data)
}

// quoteSorted lists names in order, quoted.
func quoteSorted(list []string) string {
	slices.Sort(list)
	for i, name := range list {
		list[i] = strconv.Quote(name)
	}
	return strings.Join(list, ", ")
}
