package identity

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"

	"github.com/nats-io/nkeys"
)

// ErrSignature says that a signature is missing or not of the key that it should be of.
var ErrSignature = errors.New("not signed by whom it should be")

// What is signed begins with what it is, so that a signature is good for one thing only. NATS has clients sign a random
// word that it makes up, with the same key: that must never begin so.
const (
	messageMark  = "outbid message v1\n"
	functionMark = "outbid function v1\n"
	marks        = "outbid "
)

// Key is a key of its own for a user: it signs what is said to NATS and over it.
type Key struct {
	pair    nkeys.KeyPair
	private ed25519.PrivateKey // of the pair, which would derive it anew for every signature: a third of its time
	public  string
}

// NewKey makes a key.
func NewKey() (*Key, error) {
	pair, err := nkeys.CreateUser()
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	return newKey(pair)
}

func newKey(pair nkeys.KeyPair) (*Key, error) {
	text, err := pair.PublicKey()
	if err != nil {
		return nil, fmt.Errorf("read a key: %w", err)
	}
	seed, err := pair.Seed()
	if err != nil {
		return nil, fmt.Errorf("read a key: %w", err)
	}
	_, raw, err := nkeys.DecodeSeed(seed)
	if err != nil {
		return nil, fmt.Errorf("read a key: %w", err)
	}
	return &Key{pair: pair, private: ed25519.NewKeyFromSeed(raw), public: text}, nil
}

// Public is the public half, as text.
func (k *Key) Public() string { return k.public }

// Sign signs a message on a subject. It is signed once, as it is encoded.
func (k *Key) Sign(subject string, data []byte) string {
	return base64.RawURLEncoding.EncodeToString(ed25519.Sign(k.private, messageText(subject, data)))
}

// SignFunction signs that the server accepted a function, by the SHA-256 of its blob in hex.
func (k *Key) SignFunction(blob string) []byte {
	return ed25519.Sign(k.private, []byte(functionMark+blob))
}

// signNonce signs what NATS asks a client to sign, which must not be anything that Outbid would sign.
func (k *Key) signNonce(nonce []byte) ([]byte, error) {
	if bytes.HasPrefix(nonce, []byte(marks)) {
		return nil, errors.New("NATS asks for a signature under something that is no nonce: it is not signed")
	}
	return ed25519.Sign(k.private, nonce), nil
}

// messageText is what is signed of a message: its subject names the node, its content the boot, term and numbers.
func messageText(subject string, data []byte) []byte {
	sum := sha256.Sum256(data)
	text := make([]byte, 0, len(messageMark)+len(subject)+1+len(sum))
	text = append(append(text, messageMark...), subject...)
	return append(append(text, '\n'), sum[:]...)
}

// Verifier checks the signatures of one public key.
type Verifier struct {
	pair   nkeys.KeyPair
	public string
}

// NewVerifier makes a verifier of a user's public key.
func NewVerifier(public string) (*Verifier, error) {
	if !nkeys.IsValidPublicUserKey(public) {
		return nil, fmt.Errorf("%q is no public key of a NATS user", public)
	}
	pair, err := nkeys.FromPublicKey(public)
	if err != nil {
		return nil, fmt.Errorf("public key %q: %w", public, err)
	}
	return &Verifier{pair: pair, public: public}, nil
}

// Public is the key whose signatures are checked.
func (v *Verifier) Public() string { return v.public }

// Message checks the signature of a message on a subject; the error is ErrSignature.
func (v *Verifier) Message(subject string, data []byte, signature string) error {
	if signature == "" {
		return fmt.Errorf("%w: it has no signature", ErrSignature)
	}
	raw, err := base64.RawURLEncoding.DecodeString(signature)
	if err != nil || v.pair.Verify(messageText(subject, data), raw) != nil {
		return ErrSignature
	}
	return nil
}

// Function checks that the server accepted a function; the error is ErrSignature.
func (v *Verifier) Function(blob string, signature []byte) error {
	if v.pair.Verify([]byte(functionMark+blob), signature) != nil {
		return ErrSignature
	}
	return nil
}
