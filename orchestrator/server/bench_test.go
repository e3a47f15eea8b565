package server

import (
	"crypto/sha256"
	"path/filepath"
	"testing"
)

// BenchmarkLedgerEnd measures the cost of the mark of the ledger's end per append.
func BenchmarkLedgerEnd(b *testing.B) {
	end, err := openLedgerEnd(filepath.Join(b.TempDir(), "ledger-end"))
	if err != nil {
		b.Fatal(err)
	}
	defer end.close()
	hash := sha256.Sum256(nil)
	seq := uint64(0)
	for b.Loop() {
		seq++
		if err := end.record(seq, hash[:]); err != nil {
			b.Fatal(err)
		}
	}
}
