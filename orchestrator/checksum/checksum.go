// Package checksum computes what is kept of a file to tell by whether its bytes are still what was stored.
//
// SHA-256 is what the ledger knows a file by, and nobody makes another file of the same. CRC-64/NVME, which S3 keeps of its
// objects too, notices damage alone: every change of up to 64 bits in a row, and any other but for one in 2⁶⁴. It takes about a
// tenth of the time.
package checksum

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"

	"github.com/minio/crc64nvme"
)

// Sums are those of one file, in hex; "" for one that is not known.
type Sums struct{ SHA256, CRC64 string }

// Hash takes both sums of what is written to it. It is an io.Writer that never fails.
type Hash struct{ sha256, crc64 hash.Hash }

// New takes the sums of a file from its beginning on.
func New() *Hash { return &Hash{sha256: sha256.New(), crc64: crc64nvme.New()} }

// Write implements io.Writer.
func (h *Hash) Write(p []byte) (int, error) {
	_, _ = h.crc64.Write(p) // neither fails
	return h.sha256.Write(p)
}

// Sums are those of what was written so far.
func (h *Hash) Sums() Sums { return Sums{SHA256: inHex(h.sha256), CRC64: inHex(h.crc64)} }

// Check takes the one sum of what is written to it that says at the least cost whether it is what was stored. It is an io.Writer
// that never fails.
type Check struct {
	hash.Hash

	name, want string
}

// Check begins to look at a file of which these sums are known; nil if none is.
func (s Sums) Check() *Check {
	switch {
	case s.CRC64 != "":
		return &Check{crc64nvme.New(), "CRC-64", s.CRC64}
	case s.SHA256 != "":
		return &Check{sha256.New(), "SHA-256", s.SHA256}
	}
	return nil
}

// Damage says how what was written is another than that of a file by its name; "" if it is not.
func (c *Check) Damage(file string) string {
	if got := inHex(c.Hash); got != c.want {
		return fmt.Sprintf("the %s of %s is %.12s, not %.12s", c.name, file, got, c.want)
	}
	return ""
}

func inHex(h hash.Hash) string { return hex.EncodeToString(h.Sum(nil)) }
