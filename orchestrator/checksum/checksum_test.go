package checksum_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash/crc64"
	"testing"

	"pgregory.net/rapid"

	"github.com/outbid-dev/outbid/orchestrator/checksum"
)

// of returns the checksums of a file written in one piece.
func of(p []byte) checksum.Sums {
	h := checksum.New()
	_, _ = h.Write(p)
	return h.Sums()
}

// TestTheSumsAreThoseOfTheirDefinitions compares with the check value in the CRC's definition, which S3's tools also
// use.
func TestTheSumsAreThoseOfTheirDefinitions(t *testing.T) {
	t.Parallel()
	const digits = "123456789"
	want := checksum.Sums{SHA256: "15e2b0d3c33891ebb0f1ef609ec419420c20e320ce94c65fbc8c3312448eb225", CRC64: "ae8b14860a799888"}
	if got := of([]byte(digits)); got != want {
		t.Errorf("of %s: %+v; want %+v", digits, got, want)
	}
	empty := checksum.Sums{SHA256: "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", CRC64: "0000000000000000"}
	if got := of(nil); got != empty {
		t.Errorf("of nothing: %+v; want %+v", got, empty)
	}
}

// TestTheSumsDoNotDependOnPieces compares the checksums of data written in any pieces with the standard library, which
// computes the CRC with tables.
func TestTheSumsDoNotDependOnPieces(t *testing.T) {
	t.Parallel()
	const nvme = 0x9a6c9329ac4bc9b5
	table := crc64.MakeTable(nvme)
	rapid.Check(t, func(t *rapid.T) {
		p := bytes.Repeat(rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(t, "bytes"), rapid.IntRange(1, 50).Draw(t, "times"))
		h := checksum.New()
		for rest := p; len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "piece")
			_, _ = h.Write(rest[:n])
			rest = rest[n:]
		}
		sha, crc := sha256.Sum256(p), crc64.Checksum(p, table)
		want := checksum.Sums{SHA256: hex.EncodeToString(sha[:]), CRC64: hex.EncodeToString(binary.BigEndian.AppendUint64(nil, crc))}
		if got := h.Sums(); got != want {
			t.Fatalf("of %d bytes: %+v; want %+v", len(p), got, want)
		}
	})
}

// TestDamageIsNoticed checks that either checksum detects flipped bits, and removed, added or moved parts.
func TestDamageIsNoticed(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := rapid.SliceOfN(rapid.Byte(), 1, 3000).Draw(t, "bytes")
		sums := of(p)
		switch rapid.IntRange(0, 2).Draw(t, "known") {
		case 0:
			sums.CRC64 = ""
		case 1:
			sums.SHA256 = ""
		}
		if c := write(sums.Check(), p); c.Damage("x") != "" {
			t.Fatalf("what is whole: %s", c.Damage("x"))
		}
		at := rapid.IntRange(0, len(p)-1).Draw(t, "at")
		bad := bytes.Clone(p)
		switch rapid.SampledFrom([]string{"flipped", "cut", "added", "zeros"}).Draw(t, "damage") {
		case "flipped":
			bad[at] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		case "cut":
			bad = bad[:at]
		case "added":
			bad = append(bad, rapid.Byte().Draw(t, "more"))
		case "zeros": // like a page that was not written to disk
			clear(bad[at:])
			if bytes.Equal(bad, p) {
				return
			}
		}
		if write(sums.Check(), bad).Damage("x") == "" {
			t.Fatalf("%d bytes, damaged from %d on, are taken for those of %+v", len(p), at, sums)
		}
	})
}

func write(c *checksum.Check, p []byte) *checksum.Check {
	_, _ = c.Write(p)
	return c
}

func TestWhatIsWrongIsSaid(t *testing.T) {
	t.Parallel()
	if c := (checksum.Sums{}).Check(); c != nil {
		t.Errorf("with no sum known: %+v", c)
	}
	for want, sums := range map[string]checksum.Sums{
		"the CRC-64 of a is ae8b14860a79, not 00":  {CRC64: "00", SHA256: "15"},
		"the SHA-256 of a is 15e2b0d3c338, not 15": {SHA256: "15"},
	} {
		if got := write(sums.Check(), []byte("123456789")).Damage("a"); got != want {
			t.Errorf("%q; want %q", got, want)
		}
	}
}
