package identity

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"sync"

	"github.com/nats-io/nkeys"
)

// ErrSignature means that a signature is missing or was not made by the expected key.
var ErrSignature = errors.New("not signed by the expected key")

// Signed texts start with their purpose, so that a signature is valid for only one purpose. NATS makes clients sign a
// random nonce with the same key, which must never start like this.
const (
	messageMark  = "outbid message v1\n"
	functionMark = "outbid function v1\n"
	marks        = "outbid "
)

// Key is the key of a user: it signs NATS's nonces and messages.
type Key struct {
	pair    nkeys.KeyPair
	private ed25519.PrivateKey // from the pair, which would derive it again for every signature: a third of its time
	public  string
	// functions caches the signatures of functions, because the orders of every trial contain one.
	functions remembered
	// made has the signatures of this process's keys; it may be nil.
	made *made
}

// NewKey creates a key.
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

// Public returns the public key as text.
func (k *Key) Public() string { return k.public }

// Sign signs an encoded message on a subject.
func (k *Key) Sign(subject string, data []byte) string {
	text := messageText(subject, data)
	signature := ed25519.Sign(k.private, text)
	k.made.note(k.public, text, signature)
	return base64.RawURLEncoding.EncodeToString(signature)
}

// SignFunction signs that the server accepted a function, given by the hex SHA-256 of its blob.
func (k *Key) SignFunction(blob string) []byte {
	signature, found := k.functions.get(blob)
	if !found {
		signature = string(ed25519.Sign(k.private, []byte(functionMark+blob)))
		k.functions.add(blob, signature)
	}
	return []byte(signature)
}

// signNonce signs NATS's nonce, which must not be a text that Outbid would sign.
func (k *Key) signNonce(nonce []byte) ([]byte, error) {
	if bytes.HasPrefix(nonce, []byte(marks)) {
		return nil, errors.New("refused to sign for NATS: the text to sign is not a nonce")
	}
	return ed25519.Sign(k.private, nonce), nil
}

// messageText returns the text to sign for a message. Its subject names the node, and its content has the boot, term
// and numbers.
func messageText(subject string, data []byte) []byte {
	sum := sha256.Sum256(data)
	text := make([]byte, 0, len(messageMark)+len(subject)+1+len(sum))
	text = append(append(text, messageMark...), subject...)
	return append(append(text, '\n'), sum[:]...)
}

// Verifier verifies the signatures of one public key.
type Verifier struct {
	pair   nkeys.KeyPair
	public string
	// functions has the functions with verified signatures.
	functions remembered
	// made has the signatures of this process's keys; it may be nil.
	made *made
}

// NewVerifier returns a verifier for a user's public key.
func NewVerifier(public string) (*Verifier, error) {
	if !nkeys.IsValidPublicUserKey(public) {
		return nil, fmt.Errorf("%q is not a NATS user public key", public)
	}
	pair, err := nkeys.FromPublicKey(public)
	if err != nil {
		return nil, fmt.Errorf("public key %q: %w", public, err)
	}
	return &Verifier{pair: pair, public: public}, nil
}

// Public returns the public key.
func (v *Verifier) Public() string { return v.public }

// Message verifies the signature of a message on a subject. The error is ErrSignature.
func (v *Verifier) Message(subject string, data []byte, signature string) error {
	if signature == "" {
		return fmt.Errorf("%w: it has no signature", ErrSignature)
	}
	raw, err := base64.RawURLEncoding.DecodeString(signature)
	if err != nil {
		return ErrSignature
	}
	if text := messageText(subject, data); !v.made.has(v.public, text, raw) && v.pair.Verify(text, raw) != nil {
		return ErrSignature
	}
	return nil
}

// Function verifies that the server accepted a function. The error is ErrSignature.
func (v *Verifier) Function(blob string, signature []byte) error {
	if known, found := v.functions.get(blob); found && known == string(signature) {
		return nil
	}
	if v.pair.Verify([]byte(functionMark+blob), signature) != nil {
		return ErrSignature
	}
	v.functions.add(blob, string(signature))
	return nil
}

// rememberedAtMost limits the cached signatures of functions.
const rememberedAtMost = 1024

// remembered caches the signatures of functions: a sweep has one function, and all of its trials use the same
// signature.
type remembered struct {
	mu         sync.Mutex
	signatures map[string]string
}

func (r *remembered) get(blob string) (signature string, found bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	signature, found = r.signatures[blob]
	return signature, found
}

func (r *remembered) add(blob, signature string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.signatures == nil || len(r.signatures) >= rememberedAtMost {
		r.signatures = make(map[string]string)
	}
	r.signatures[blob] = signature
}

// madeAtMost limits the cached signatures; it is enough for messages in flight.
const madeAtMost = 256

// made caches the newest signatures of this process's keys. Messages to and from a worker in the server's process are
// signed in the same process. Their verification would take three times as long as signing and cannot fail. A nil made
// is empty.
type made struct {
	mu     sync.Mutex
	texts  map[string]string // by signature: the public key and the text
	newest [madeAtMost]string
	next   int
}

func (m *made) note(public string, text, signature []byte) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.texts == nil {
		m.texts = make(map[string]string, madeAtMost)
	}
	delete(m.texts, m.newest[m.next])
	m.newest[m.next] = string(signature)
	m.texts[m.newest[m.next]] = public + string(text)
	m.next = (m.next + 1) % madeAtMost
}

// has reports whether the key is known to have made the signature of a text.
func (m *made) has(public string, text, signature []byte) bool {
	if m == nil {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	signed, found := m.texts[string(signature)]
	return found && signed == public+string(text)
}
