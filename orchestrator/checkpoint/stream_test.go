package checkpoint_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"github.com/outbid-dev/outbid/orchestrator/checkpoint"
	"github.com/outbid-dev/outbid/orchestrator/checkpoint/safetensors"
	"github.com/outbid-dev/outbid/orchestrator/checksum"
)

// sums returns the checksums of a file.
func sums(content []byte) checksum.Sums {
	h := checksum.New()
	_, _ = h.Write(content)
	return h.Sums()
}

// summed returns a source with known checksums.
func summed(name string, weight float64, content []byte) checkpoint.Source {
	s := source(name, weight, content)
	s.Sums = sums(content)
	return s
}

// drawSums draws the known checksums of a file: both, as for newer checkpoints, only the SHA-256, as for older ones, or
// only the CRC.
func drawSums(t *rapid.T, content []byte) checksum.Sums {
	known := sums(content)
	switch rapid.IntRange(0, 2).Draw(t, "known") {
	case 0:
		known.CRC64 = ""
	case 1:
		known.SHA256 = ""
	}
	return known
}

// stream returns the content of the average's stream, and its checksums.
func stream(t require, piece int64, sources ...checkpoint.Source) ([]byte, checksum.Sums, error) {
	t.Helper()
	a, err := checkpoint.New(sources, nil)
	if err != nil {
		t.Fatal(err)
	}
	a.SetPieceForTest(piece)
	s := a.Stream(testContext())
	defer s.Close()
	b, err := io.ReadAll(s)
	if other := s.Err(); err != nil && !errors.Is(err, other) || err == nil && other != nil {
		t.Fatal("it ended with ", err, " and says ", other)
	}
	return b, s.Sums(), err
}

// TestAStreamIsTheAverage checks that a stream has the same bytes as the average, for any pieces and positions of the
// sources' tensors.
func TestAStreamIsTheAverage(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var sources []checkpoint.Source
		for _, f := range drawFiles(t, rapid.IntRange(1, 4).Draw(t, "files")) {
			s := source("fork", rapid.Float64Range(0, 10).Draw(t, "weight"), f)
			if rapid.Bool().Draw(t, "checked") {
				s.Sums = drawSums(t, f)
			}
			sources = append(sources, s)
		}
		sources[0].Weight += 0.5
		piece := rapid.SampledFrom([]int64{8, 100, 4096, 100_000, 4 << 20}).Draw(t, "piece")
		if piece < 4096 && sources[0].Size > 10_000 {
			piece = 4096
		}
		got, gotSums, err := stream(t, piece, sources...)
		if err != nil {
			t.Fatal(err)
		}
		if want := average(t, nil, sources...); !bytes.Equal(got, want) || gotSums != sums(want) {
			t.Fatalf("the stream has %d bytes, of sums %v; the average %d, %v", len(got), gotSums, len(want), sums(want))
		}
	})
}

// TestAStreamOfADamagedSourceEndsEarly checks that any flipped bit ends the stream before its last byte, for any order
// of the tensors and either known checksum.
func TestAStreamOfADamagedSourceEndsEarly(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		ints := func(name string, n int) tensor {
			return tensor{name, safetensors.U8, []int64{int64(n)}, make([]byte, n)}
		}
		a, b := ints("a", 5000), ints("b", 3000)
		one, two := file(t, nil, a, b), file(t, nil, a, b)
		if rapid.Bool().Draw(t, "another order") {
			two = file(t, nil, b, a)
		}
		damaged := summed("two", 1, bytes.Clone(two))
		damaged.Sums = drawSums(t, two)
		at := rapid.IntRange(len(two)-8000, len(two)-1).Draw(t, "byte")
		two[at] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		damaged.File = bytes.NewReader(two)
		got, _, err := stream(t, 1000, summed("one", 2, one), damaged)
		if !errors.Is(err, checkpoint.ErrDamaged) || len(got) >= len(one) {
			t.Fatalf("byte %d changed: %d of %d bytes, and %v", at, len(got), len(one), err)
		}
	})
}

// failingAt cannot be read from an offset on.
type failingAt struct {
	io.ReaderAt
	from int64
	err  error
}

func (f failingAt) ReadAt(p []byte, off int64) (int, error) {
	if off+int64(len(p)) > f.from {
		return 0, f.err
	}
	return f.ReaderAt.ReadAt(p, off)
}

func TestAStreamEndsWhereItsSourcesDo(t *testing.T) {
	t.Parallel()
	content := file(t, nil, tensor{"a", safetensors.F32, []int64{50_000}, make([]byte, 200_000)})
	gone := errors.New("the store is gone")
	broken := summed("broken", 1, content)
	broken.File = failingAt{bytes.NewReader(content), 100_000, gone}
	if got, _, err := stream(t, 4096, summed("whole", 1, content), broken); !errors.Is(err, gone) || len(got) > 100_000 {
		t.Errorf("%d bytes came, and %v", len(got), err)
	}
	nan := file(t, nil, tensor{"a", safetensors.F32, []int64{50_000}, bytes.Repeat([]byte{255}, 200_000)})
	if _, _, err := stream(t, 4096, summed("whole", 1, content), summed("nan", 1, nan)); !errors.Is(err, checkpoint.ErrNotFinite) {
		t.Errorf("with a NaN: %v", err)
	}
}

// TestAStreamCanBeGivenUp checks that closing a stream or ending its context does not block.
func TestAStreamCanBeGivenUp(t *testing.T) {
	t.Parallel()
	content := file(t, nil, tensor{"a", safetensors.F32, []int64{50_000}, make([]byte, 200_000)})
	a, err := checkpoint.New([]checkpoint.Source{summed("one", 1, content), summed("two", 1, content)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	a.SetPieceForTest(4096)
	ctx, cancel := context.WithCancel(testContext())
	s := a.Stream(ctx)
	if _, err := io.ReadFull(s, make([]byte, 30_000)); err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := io.ReadAll(s); !errors.Is(err, context.Canceled) || s.Err() != nil {
		t.Errorf("after its context ended: %v, %v", err, s.Err())
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	idle := a.Stream(testContext())
	if err := idle.Close(); err != nil || idle.Err() != nil {
		t.Errorf("one that nobody read: %v, %v", err, idle.Err())
	}
}

// counted counts the reads.
type counted struct {
	io.ReaderAt
	reads *atomic.Int64
}

func (c counted) ReadAt(p []byte, off int64) (int, error) {
	c.reads.Add(1)
	return c.ReaderAt.ReadAt(p, off)
}

// TestASourceInAnotherOrderIsCheckedInFewReads checks that a source with another order of tensors is read a second time
// for its checksum in few reads, because each read is a request.
func TestASourceInAnotherOrderIsCheckedInFewReads(t *testing.T) {
	t.Parallel()
	const bytes = 16 << 20
	a, b := tensor{"a", safetensors.U8, []int64{8}, make([]byte, 8)}, tensor{"b", safetensors.U8, []int64{bytes}, make([]byte, bytes)}
	reads := func(content []byte) int64 {
		two := summed("two", 1, content)
		c := counted{two.File, new(atomic.Int64)}
		two.File = c
		if _, _, err := stream(t, 4<<20, summed("one", 2, file(t, nil, a, b)), two); err != nil {
			t.Fatal(err)
		}
		return c.reads.Load()
	}
	same, other := reads(file(t, nil, a, b)), reads(file(t, nil, b, a))
	if other > same+2*bytes/(4<<20) {
		t.Errorf("%d reads of a source in the same order, %d of one in another", same, other)
	}
}
