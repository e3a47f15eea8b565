package identity

import (
	"encoding/base64"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func makeKeys(t *testing.T) *Keys {
	t.Helper()
	keys, err := MakeKeys(filepath.Join(t.TempDir(), "deep", "keys"))
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

func TestKeysAreMadeOnceAndKeptForTheirOwner(t *testing.T) {
	t.Parallel()
	if _, err := OpenKeys(t.TempDir()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("opened keys that are not there: %v", err)
	}
	keys := makeKeys(t)
	again, err := MakeKeys(keys.Dir())
	if err != nil || again.Account() != keys.Account() || again.Orders().Public() != keys.Orders().Public() {
		t.Errorf("the keys changed: %v", err)
	}
	entries, err := os.ReadDir(keys.Dir())
	if err != nil || len(entries) != 4 {
		t.Fatalf("%d files: %v", len(entries), err)
	}
	for _, e := range entries {
		if info, err := e.Info(); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v: %v", e.Name(), info.Mode(), err)
		}
	}
}

func TestRevocationsAreKeptUntilTheyAreOfNoUse(t *testing.T) {
	t.Parallel()
	keys, now := makeKeys(t), time.Now()
	for i, at := range []time.Time{now.Add(-2 * WorkerLife), now, now} {
		key, err := NewKey()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := keys.Revoke(key.Public(), at); err != nil {
			t.Fatal(err)
		}
		again, err := OpenKeys(keys.Dir())
		if err != nil || len(again.claims.Revocations) != max(i, 1) {
			t.Errorf("%d revocations after %d: %v", len(again.claims.Revocations), i+1, err)
		}
	}
}

// TestSignaturesAreGoodForOneThing checks that a signature is valid only for its message, subject and key.
func TestSignaturesAreGoodForOneThing(t *testing.T) {
	t.Parallel()
	key, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	other, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	by, err := NewVerifier(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		subject, data := rapid.String().Draw(t, "subject"), rapid.SliceOf(rapid.Byte()).Draw(t, "data")
		signature, stranger := key.Sign(subject, data), other.Sign(subject, data)
		if err := by.Message(subject, data, signature); err != nil {
			t.Fatalf("its own signature is refused: %v", err)
		}
		for what, err := range map[string]error{
			"another subject": by.Message(subject+"x", data, signature), "another content": by.Message(subject, append(data, 1), signature),
			"another key": by.Message(subject, data, stranger), "none": by.Message(subject, data, ""),
			"a function": by.Function(subject, []byte(signature)),
		} {
			if !errors.Is(err, ErrSignature) {
				t.Fatalf("good for %s: %v", what, err)
			}
		}
		// NATS cannot obtain the signature of a message as that of a nonce.
		if _, err := key.signNonce(messageText(subject, data)); err == nil {
			t.Fatal("signed a message as a nonce")
		}
	})
	for range 2 { // signatures of functions are cached
		signature := key.SignFunction("abc")
		if err := by.Function("abc", signature); err != nil || by.Function("abd", signature) == nil {
			t.Errorf("functions: %v", err)
		}
		signature[0]++
		if by.Function("abc", signature) == nil || by.Function("abc", nil) == nil {
			t.Error("a function with another signature than its own is taken")
		}
	}
	for i := range 2 * rememberedAtMost {
		key.SignFunction(strconv.Itoa(i))
	}
	if n := len(key.functions.signatures); n > rememberedAtMost {
		t.Errorf("keeps %d signatures", n)
	}
}

// TestOwnSignaturesAreKnown checks that a process accepts its own signatures without verification, and no others.
func TestOwnSignaturesAreKnown(t *testing.T) {
	t.Parallel()
	keys := makeKeys(t)
	who, err := keys.Worker("n1", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	stranger, err := keys.Worker("n2", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	hears, err := keys.Verifier(who.Public())
	if err != nil {
		t.Fatal(err)
	}
	obeys, err := who.Orders()
	if err != nil {
		t.Fatal(err)
	}
	subject, data := "outbid.uplink.n1", []byte("what it says")
	signature := who.Key().Sign(subject, data)
	raw, err := base64.RawURLEncoding.DecodeString(signature)
	if err != nil {
		t.Fatal(err)
	}
	if !hears.made.has(who.Public(), messageText(subject, data), raw) {
		t.Fatal("what was signed here is not known")
	}
	for what, err := range map[string]error{
		"another subject": hears.Message(subject+"x", data, signature), "another content": hears.Message(subject, []byte("another"), signature),
		"another worker": hears.Message(subject, data, stranger.Key().Sign(subject, data)), "a worker's word as an order": obeys.Message(subject, data, signature),
	} {
		if !errors.Is(err, ErrSignature) {
			t.Errorf("good for %s: %v", what, err)
		}
	}
	if err := obeys.Message(subject, data, keys.Orders().Sign(subject, data)); err != nil {
		t.Error(err)
	}
	for i := range madeAtMost { // evicted by then, so it is verified
		stranger.Key().Sign(subject, []byte(strconv.Itoa(i)))
	}
	if len(hears.made.texts) > madeAtMost || hears.made.has(who.Public(), messageText(subject, data), raw) {
		t.Errorf("%d signatures are kept", len(hears.made.texts))
	}
	if err := hears.Message(subject, data, signature); err != nil {
		t.Error(err)
	}
}

func BenchmarkSignAndCheck(b *testing.B) {
	key, err := NewKey()
	if err != nil {
		b.Fatal(err)
	}
	by, err := NewVerifier(key.Public())
	if err != nil {
		b.Fatal(err)
	}
	data := make([]byte, 4<<10)
	for b.Loop() {
		if err := by.Message("outbid.v1.up.n1", data, key.Sign("outbid.v1.up.n1", data)); err != nil {
			b.Fatal(err)
		}
	}
}
