package api

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/binary"
	"sync"
	"time"
)

const (
	// SignInCodeLife is how long a code of NewSignInCode is valid.
	SignInCodeLife = time.Minute
	// codeSize is the size of a code's signed part: 8 bytes of the token's hash, 8 of the time, 16 of randomness.
	codeSize = 32
	// codesKept bounds the used codes that a server remembers. Only the holders of tokens can add to them.
	codesKept = 10_000
)

// NewSignInCode returns a code that signs a browser in once, within a minute, with the permissions of a token. It is computed
// from the token without asking a server, and does not reveal the token, so a URL may contain it.
func NewSignInCode(token string, now time.Time) string {
	hash := sha256.Sum256([]byte(token))
	data := make([]byte, 0, codeSize+sha256.Size)
	data = append(data, hash[:8]...)
	data = binary.BigEndian.AppendUint64(data, uint64(now.UnixMilli())) //nolint:gosec // after 1970
	var once [16]byte
	_, _ = rand.Read(once[:]) // never fails
	data = append(data, once[:]...)
	return base64.RawURLEncoding.EncodeToString(append(data, codeSum(hash, data)...))
}

func codeSum(hash [sha256.Size]byte, data []byte) []byte {
	return signature(hash, "outbid sign-in code", data)
}

// code returns the holder of the token that made a code; false if the code is forged or older than SignInCodeLife. Clocks
// of client and server may differ by SignInCodeLife.
func (t *Tokens) code(code string, now time.Time) (e tokenEntry, ok bool) {
	data, err := base64.RawURLEncoding.DecodeString(code)
	if err != nil || len(data) != codeSize+sha256.Size {
		return e, false
	}
	made := time.UnixMilli(int64(binary.BigEndian.Uint64(data[8:]))) //nolint:gosec // signed below
	for _, e = range t.all() {
		if subtle.ConstantTimeCompare(e.hash[:8], data[:8]) == 1 && hmac.Equal(codeSum(e.hash, data[:codeSize]), data[codeSize:]) {
			return e, e.isValid(now) && now.Sub(made).Abs() <= SignInCodeLife
		}
	}
	return tokenEntry{}, false
}

// usedCodes remembers codes until they are too old to be used again.
type usedCodes struct {
	mu    sync.Mutex
	until map[string]time.Time
}

// use reports whether a valid code was not used before, and remembers it. If too many are remembered it refuses.
func (u *usedCodes) use(code string, now time.Time) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	for c, until := range u.until {
		if now.After(until) {
			delete(u.until, c)
		}
	}
	if _, used := u.until[code]; used || len(u.until) >= codesKept {
		return false
	}
	if u.until == nil {
		u.until = map[string]time.Time{}
	}
	u.until[code] = now.Add(2 * SignInCodeLife)
	return true
}
