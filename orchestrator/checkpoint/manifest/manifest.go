// Package manifest reads the manifest of a checkpoint with shards, which the process with rank 0 writes.
package manifest

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
)

// MaxBytes is the maximum size of a manifest.
const MaxBytes = 16 << 20

// Manifest describes the shards of a checkpoint.
type Manifest struct {
	// Directories is set if every shard has the files of a directory. A process then gets the files of all shards.
	Directories bool `json:"directories"`
	// Shards are in the order of their ranks.
	Shards []Shard `json:"shards"`
}

// Shard describes one shard.
type Shard struct {
	Bytes int64 `json:"bytes"`
	// SHA256 is the SHA-256 of the shard in hex.
	SHA256 string `json:"sha256"`
}

// Sum returns the SHA-256, in hex, of the sizes and sums of shards in the order of their ranks. Equal sums mean equal
// shards.
func Sum(shards []Shard) string {
	h := sha256.New()
	for _, s := range shards {
		_, _ = fmt.Fprintf(h, "%d %q\n", s.Bytes, s.SHA256)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Parse parses a manifest of a number of shards.
func Parse(data []byte, shards int32) (*Manifest, error) {
	m := new(Manifest)
	if err := json.Unmarshal(data, m); err != nil {
		return nil, fmt.Errorf("the manifest of the shards: %w", err)
	}
	if len(m.Shards) != int(shards) {
		return nil, fmt.Errorf("the manifest of the shards: must have %d, has %d", shards, len(m.Shards))
	}
	for i, s := range m.Shards {
		switch {
		case s.SHA256 == "":
			return nil, fmt.Errorf("the manifest of the shards: shard %d has no SHA-256", i)
		case s.Bytes < 0:
			return nil, fmt.Errorf("the manifest of the shards: shard %d has %d bytes", i, s.Bytes)
		}
	}
	return m, nil
}

// ReadFile reads a manifest of a number of shards.
func ReadFile(path string, shards int32) (*Manifest, error) {
	info, err := os.Lstat(path)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("the manifest of the shards: %s is not a regular file", path)
	case info.Size() > MaxBytes:
		return nil, fmt.Errorf("the manifest of the shards: must have at most %d bytes, has %d", MaxBytes, info.Size())
	}
	data, err := os.ReadFile(path) //nolint:gosec // the worker's own copy
	if err != nil {
		return nil, err
	}
	return Parse(data, shards)
}

// Needed returns the ranks of the shards that a node needs, if count processes from rank first on run there, out of
// world processes of the gang.
func (m *Manifest) Needed(first, count, world int32) []int32 {
	if m.Directories || int(world) != len(m.Shards) {
		first, count = 0, int32(len(m.Shards))
	}
	var ranks []int32
	for rank := range count {
		ranks = append(ranks, first+rank)
	}
	return ranks
}
