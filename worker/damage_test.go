package worker

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/outbid-dev/outbid/orchestrator/checksum"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// inMemory is an access to objects in memory, because a disk would sync each of them.
type inMemory map[string][]byte

func (m inMemory) Put(_ context.Context, key string, r io.Reader, size int64) error {
	content := make([]byte, size)
	if _, err := io.ReadFull(r, content); err != nil {
		return err
	}
	m[key] = content
	return nil
}

func (m inMemory) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	return m.GetRange(ctx, key, 0, int64(len(m[key])))
}

func (m inMemory) GetRange(_ context.Context, key string, from, n int64) (io.ReadCloser, error) {
	return io.NopCloser(io.NewSectionReader(bytes.NewReader(m[key]), from, n)), nil
}

func (inMemory) String() string { return "memory" }

// An object that was damaged after it was stored is never averaged, wherever the damage is, and whichever checksums
// the ledger has: both, or only the SHA-256 as of checkpoints by older versions. The worker does not report such an
// average as impossible for other workers.
func TestWhatIsDamagedIsNotAveraged(t *testing.T) {
	t.Parallel()
	whole := weights(t, "w", 1, 10, -3, 0.5, 7, 1e-3)
	h := checksum.New()
	_, _ = h.Write(whole)
	stored := func(key string) *outbidv1.Checkpoint {
		return &outbidv1.Checkpoint{Key: key, Bytes: int64(len(whole)), Sha256: h.Sums().SHA256, Crc64Nvme: h.Sums().CRC64}
	}
	rapid.Check(t, func(t *rapid.T) {
		bad := bytes.Clone(whole)
		at := rapid.IntRange(0, len(bad)-1).Draw(t, "at")
		damage := rapid.SampledFrom([]string{"none", "a bit flipped", "cut off", "zeros from there on"}).Draw(t, "damage")
		switch damage {
		case "a bit flipped":
			bad[at] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		case "cut off":
			bad = bad[:at]
		case "zeros from there on":
			clear(bad[at:])
		}
		good, other := stored("checkpoints/s-1/0/000000000160-7.safetensors"), stored("checkpoints/s-1/0/000000000120-8.safetensors")
		store := inMemory{good.GetKey(): whole, other.GetKey(): bad}
		switch rapid.SampledFrom([]string{"both", "the SHA-256", "the CRC"}).Draw(t, "known") {
		case "the SHA-256":
			other.Crc64Nvme = ""
		case "the CRC": // only here, so that nothing else can detect the damage
			other.Sha256 = ""
		}
		w := &workerLoop{cfg: Config{Store: Direct(store)}}
		done := w.average(t.Context(), &outbidv1.Consolidation{Step: 900, Key: averageKey, Sources: []*outbidv1.ConsolidationSource{
			{Checkpoint: good, Steps: 60}, {Checkpoint: other, Steps: rapid.Int64Range(1, 100).Draw(t, "steps")},
		}})
		_, there := store[averageKey]
		if bytes.Equal(bad, whole) {
			if done.GetFailure() != "" || !there {
				t.Fatalf("an undamaged average failed: %v; stored: %v", done, there)
			}
			return
		}
		says := strings.Contains(done.GetFailure(), "is damaged") || strings.Contains(done.GetFailure(), "the object ends before")
		if !says || done.GetMismatch() || there {
			t.Fatalf("%s at %d: %v; an average: %v", damage, at, done, there)
		}
	})
}
