package identity

import (
	"crypto/ecdh"
	"crypto/hkdf"
	"crypto/hpke"
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/nats-io/nkeys"
)

// What keys are derived and messages sealed for, so that each is good for one thing only.
const (
	secretsKeyInfo = "outbid secrets at rest v1"
	sealedInfo     = "outbid secrets sealed v1\n"
)

// secretsKeyBytes is the size of an AES-256 key.
const secretsKeyBytes = 32

// SecretsKey derives the key that tenants' secrets are encrypted with at rest. It depends on the seed of the cluster's account
// alone, so that every orchestrator that has the cluster's keys derives the same.
func (k *Keys) SecretsKey() ([]byte, error) {
	seed, err := k.account.Seed()
	if err != nil {
		return nil, fmt.Errorf("derive the key of secrets: %w", err)
	}
	_, raw, err := nkeys.DecodeSeed(seed)
	if err != nil {
		return nil, fmt.Errorf("derive the key of secrets: %w", err)
	}
	key, err := hkdf.Key(sha256.New, raw, nil, secretsKeyInfo, secretsKeyBytes)
	if err != nil {
		return nil, fmt.Errorf("derive the key of secrets: %w", err)
	}
	return key, nil
}

// SealKey opens what was sealed for one process. It lives in that process alone.
type SealKey struct{ private hpke.PrivateKey }

// NewSealKey makes a key.
func NewSealKey() (*SealKey, error) {
	private, err := kem().GenerateKey()
	if err != nil {
		return nil, fmt.Errorf("make a key for secrets: %w", err)
	}
	return &SealKey{private}, nil
}

// Public returns the public half, which Seal takes. A nil key has none.
func (k *SealKey) Public() []byte {
	if k == nil {
		return nil
	}
	return k.private.PublicKey().Bytes()
}

// Open returns what Seal sealed for this key and node.
func (k *SealKey) Open(node string, sealed []byte) ([]byte, error) {
	if k == nil {
		return nil, errors.New("open a sealed message: this process has no key")
	}
	plain, err := hpke.Open(k.private, hpke.HKDFSHA256(), hpke.ChaCha20Poly1305(), []byte(sealedInfo+node), sealed)
	if err != nil {
		return nil, fmt.Errorf("open a sealed message: %w", err)
	}
	return plain, nil
}

// Seal encrypts data so that only the process of a node that has the private half of a key reads it.
func Seal(public []byte, node string, data []byte) ([]byte, error) {
	key, err := kem().NewPublicKey(public)
	if err != nil {
		return nil, fmt.Errorf("seal a message for %s: %w", node, err)
	}
	sealed, err := hpke.Seal(key, hpke.HKDFSHA256(), hpke.ChaCha20Poly1305(), []byte(sealedInfo+node), data)
	if err != nil {
		return nil, fmt.Errorf("seal a message for %s: %w", node, err)
	}
	return sealed, nil
}

func kem() hpke.KEM { return hpke.DHKEM(ecdh.X25519()) }
