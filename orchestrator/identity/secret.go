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

// The purposes of derived keys and sealed messages, so that each is valid for only one purpose.
const (
	secretsKeyInfo = "outbid secrets at rest v1"
	sealedInfo     = "outbid secrets sealed v1\n"
	sessionInfo    = "outbid browser sessions v1"
)

// secretsKeyBytes is the size of an AES-256 key.
const secretsKeyBytes = 32

// SecretsKey derives the key that encrypts stored secrets. It depends only on the seed of the cluster's account, so
// every server with the cluster's keys derives the same key.
func (k *Keys) SecretsKey() ([]byte, error) {
	return k.derive("secrets", secretsKeyInfo)
}

// SessionKey derives the key that encrypts the cookies of browsers. Every server with the cluster's keys derives the
// same key.
func (k *Keys) SessionKey() ([]byte, error) {
	return k.derive("sessions", sessionInfo)
}

// derive returns an AES-256 key for one purpose. what names it in errors.
func (k *Keys) derive(what, purpose string) ([]byte, error) {
	seed, err := k.account.Seed()
	if err != nil {
		return nil, fmt.Errorf("derive the key of %s: %w", what, err)
	}
	_, raw, err := nkeys.DecodeSeed(seed)
	if err != nil {
		return nil, fmt.Errorf("derive the key of %s: %w", what, err)
	}
	key, err := hkdf.Key(sha256.New, raw, nil, purpose, secretsKeyBytes)
	if err != nil {
		return nil, fmt.Errorf("derive the key of %s: %w", what, err)
	}
	return key, nil
}

// SealKey opens messages sealed for one process. It exists only in that process.
type SealKey struct{ private hpke.PrivateKey }

// NewSealKey creates a key.
func NewSealKey() (*SealKey, error) {
	private, err := kem().GenerateKey()
	if err != nil {
		return nil, fmt.Errorf("make a key for secrets: %w", err)
	}
	return &SealKey{private}, nil
}

// Public returns the public key for Seal, or nil for a nil key.
func (k *SealKey) Public() []byte {
	if k == nil {
		return nil
	}
	return k.private.PublicKey().Bytes()
}

// Open decrypts a message that was sealed for this key and node.
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

// Seal encrypts data so that only the process of a node with the private key can read it.
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
