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
	// functions are the signatures of those that were signed: each trial's orders carry that of its function.
	functions remembered
	// made are what the keys of this process signed; may be nil.
	made *made
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
	text := messageText(subject, data)
	signature := ed25519.Sign(k.private, text)
	k.made.note(k.public, text, signature)
	return base64.RawURLEncoding.EncodeToString(signature)
}

// SignFunction signs that the server accepted a function, by the SHA-256 of its blob in hex.
func (k *Key) SignFunction(blob string) []byte {
	signature, found := k.functions.get(blob)
	if !found {
		signature = string(ed25519.Sign(k.private, []byte(functionMark+blob)))
		k.functions.add(blob, signature)
	}
	return []byte(signature)
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
	// functions are those whose signatures were found to be good.
	functions remembered
	// made are what the keys of this process signed; may be nil.
	made *made
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
	if err != nil {
		return ErrSignature
	}
	if text := messageText(subject, data); !v.made.has(v.public, text, raw) && v.pair.Verify(text, raw) != nil {
		return ErrSignature
	}
	return nil
}

// Function checks that the server accepted a function; the error is ErrSignature.
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

// rememberedAtMost bounds the functions whose signatures are kept.
const rememberedAtMost = 1024

// remembered keeps the signatures of functions: a sweep has one function, and each of its trials its signature.
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

// madeAtMost bounds the signatures that are kept: enough for those that are under way.
const madeAtMost = 256

// made are the newest signatures that keys of this process made. What a worker of the server's own process is told, and says, was
// signed right here: to check it takes three times as long as to sign it, and could find nothing. It has none if it is nil.
type made struct {
	mu     sync.Mutex
	texts  map[string]string // by signature: whose it is, and what was signed
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

// has says whether it is known that the key made the signature under a text.
func (m *made) has(public string, text, signature []byte) bool {
	if m == nil {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	signed, found := m.texts[string(signature)]
	return found && signed == public+string(text)
}
