package cli

import (
	"crypto/hmac"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/outbid-dev/outbid/worker"
)

// joinKey is the key of a cluster: workers show its text to NATS, prove with it that they belong to this server, and
// check with it that a function was accepted by the server.
type joinKey struct {
	// text is 64 hexadecimal digits, as it stands in the file.
	text string
	raw  []byte
}

// keyBytes is the length of a key.
const keyBytes = 32

// readJoinKey reads a key's file.
func readJoinKey(path string) (joinKey, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return joinKey{}, fmt.Errorf("join token %w", trimOp(err))
	}
	text := strings.TrimSpace(string(data))
	raw, err := hex.DecodeString(text)
	if err != nil || len(raw) != keyBytes {
		return joinKey{}, badInput("join token %s: want 64 hexadecimal digits, as 'outbid serve' writes them", path)
	}
	return joinKey{text: text, raw: raw}, nil
}

// makeJoinKey reads a key's file, and makes it first if it is missing. Only its owner may read it.
func makeJoinKey(path string) (joinKey, error) {
	key, err := readJoinKey(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return key, err
	}
	raw := make([]byte, keyBytes)
	if _, err := rand.Read(raw); err != nil {
		return joinKey{}, fmt.Errorf("make join token: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return joinKey{}, fmt.Errorf("make join token: %w", err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return joinKey{}, fmt.Errorf("make join token: %w", err)
	}
	text := hex.EncodeToString(raw)
	_, err = f.WriteString(text + "\n")
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return joinKey{}, fmt.Errorf("write join token: %w", err)
	}
	return joinKey{text: text, raw: raw}, nil
}

// prove says whether a node's proof was made with this key.
func (k joinKey) prove(node, boot string, proof []byte) bool {
	return hmac.Equal(proof, worker.Proof(k.raw, node, boot))
}

// sign makes the proof that this server accepted a function, by the SHA-256 of its blob in hex.
func (k joinKey) sign(blob string) []byte { return worker.FunctionMAC(k.raw, blob) }
