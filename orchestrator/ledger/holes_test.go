package ledger_test

import (
	order "cmp"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outbid-dev/outbid/orchestrator/bus"
	"github.com/outbid-dev/outbid/orchestrator/ledger"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// blockFiles returns the files in which NATS stores a stream, in order.
func blockFiles(t *testing.T, dir, stream string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "store", "jetstream", "*", "streams", stream, "msgs", "*.blk"))
	if err != nil || len(files) == 0 {
		t.Fatalf("blocks of %s: %v, %v", stream, files, err)
	}
	slices.SortFunc(files, func(a, b string) int { return order.Or(len(a)-len(b), strings.Compare(a, b)) })
	return files
}

func cut(t *testing.T, path string, bytes int64) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, info.Size()-bytes); err != nil {
		t.Fatal(err)
	}
}

// filled creates a ledger of batches of 24 KB in dir, with a snapshot of one of them, and shuts its NATS server down
// cleanly.
func filled(t *testing.T, dir string, batches int, snapshot uint64, cfg ledger.Config) {
	t.Helper()
	s := startServer(t, dir, 0)
	l := open(t, connect(t, bus.ConnConfig{Server: s}), cfg)
	for range batches {
		mustAppend(t, l, strings.Repeat("x", 24_000))
	}
	if err := l.SaveSnapshot(testContext(t), snapshot, []byte("state")); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// A block of NATS that is truncated by 352 KB, or missing, is noticed when the ledger is opened, wherever it is.
// Reading skips accepted losses, and the ledger continues.
func TestHoles(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		stream string
		spoil  func(t *testing.T, blocks []string)
		cfg    ledger.Config
		// lost is the minimum number of lost batches. tail reports whether they are the last ones.
		lost uint64
		tail bool
	}{
		"whole":          {stream: ledger.DefaultStream, spoil: func(*testing.T, []string) {}},
		"the last block": {stream: ledger.DefaultStream, spoil: func(t *testing.T, b []string) { t.Helper(); cut(t, b[len(b)-1], 352<<10) }, lost: 14, tail: true},
		"the first":      {stream: ledger.DefaultStream, spoil: func(t *testing.T, b []string) { t.Helper(); cut(t, b[0], 352<<10) }, lost: 14},
		"the first is gone": {stream: ledger.DefaultStream, spoil: func(t *testing.T, b []string) {
			t.Helper()
			if err := os.Remove(b[0]); err != nil {
				t.Fatal(err)
			}
		}, lost: 300},
		"the end of an older segment": {
			stream: ledger.DefaultStream, spoil: func(t *testing.T, b []string) { t.Helper(); cut(t, b[len(b)-1], 352<<10) },
			cfg: ledger.Config{SegmentBatches: 200}, lost: 13,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const batches = 500
			dir := t.TempDir()
			filled(t, dir, batches, batches, c.cfg)
			c.spoil(t, blockFiles(t, dir, c.stream))
			l := open(t, connect(t, bus.ConnConfig{Server: startServer(t, dir, 0)}), c.cfg)
			holes, err := l.Holes(testContext(t))
			if err != nil {
				t.Fatal(err)
			}
			var lost uint64
			for _, h := range holes {
				lost += h.To - h.From + 1
			}
			if lost < c.lost || (lost > 0) != (c.lost > 0) || lost > 2*c.lost || c.tail != (lost > 0 && holes[len(holes)-1].To == batches) {
				t.Fatalf("holes: %v; want at least %d batches, at the end: %t", holes, c.lost, c.tail)
			}
			if lost == 0 {
				return
			}
			if err := l.Read(testContext(t), 1, func(*outbidv1.Batch) error { return nil }); err == nil {
				t.Error("a ledger with holes is read without an error")
			}
			accepting(t, l, holes, batches, lost)
		})
	}
}

// accepting accepts the holes, and appends and reads.
func accepting(t *testing.T, l *ledger.JetStream, holes []ledger.Hole, batches int, lost uint64) {
	t.Helper()
	l.Accept(holes)
	seq, _, err := l.LoadSnapshot(testContext(t))
	if err != nil || seq != uint64(batches) {
		t.Fatalf("the snapshot is of batch %d: %v", seq, err)
	}
	var read []uint64
	var hash []byte
	if err := l.Read(testContext(t), 1, func(b *outbidv1.Batch) error {
		read, hash = append(read, b.GetSeq()), b.GetHash()
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if len(read) != batches-int(lost) {
		t.Errorf("%d batches are read, want %d", len(read), batches-int(lost))
	}
	l.Resume(read[len(read)-1], hash)
	b := mustAppend(t, l, "after the loss")
	if b.GetSeq() != uint64(batches)+1 {
		t.Errorf("the next batch is %d, want %d", b.GetSeq(), batches+1)
	}
	if err := l.Read(testContext(t), b.GetSeq(), func(got *outbidv1.Batch) error {
		if diff := cmp.Diff(b.GetHash(), got.GetHash()); diff != "" {
			t.Error(diff)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

// If NATS itself ends earlier, an older snapshot is used once the loss is accepted.
func TestAnOlderSnapshotAfterALoss(t *testing.T) {
	t.Parallel()
	nc, js, _ := looseStream(t)
	l := open(t, nc, ledger.Config{})
	first := mustAppend(t, l, "x")
	if err := l.SaveSnapshot(testContext(t), 1, []byte("older")); err != nil {
		t.Fatal(err)
	}
	mustAppend(t, l, "y")
	if err := l.SaveSnapshot(testContext(t), 2, []byte("newer")); err != nil {
		t.Fatal(err)
	}
	data, err := js.Stream(testContext(t), ledger.DefaultStream)
	if err != nil {
		t.Fatal(err)
	}
	m, err := data.GetMsg(testContext(t), 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := js.DeleteStream(testContext(t), ledger.DefaultStream); err != nil {
		t.Fatal(err)
	}
	short := open(t, nc, ledger.Config{})
	if _, err := js.Publish(testContext(t), "outbid.v1.ledger", m.Data); err != nil {
		t.Fatal(err)
	}
	_, _, err = short.LoadSnapshot(testContext(t))
	wantDamage(t, err, 2, "lost its end")
	short.Accept(nil)
	seq, snapshot, err := short.LoadSnapshot(testContext(t))
	if err != nil || seq != 1 || string(snapshot) != "older" {
		t.Errorf("batch %d, %q: %v", seq, snapshot, err)
	}
	short.Resume(1, first.GetHash())
	if b := mustAppend(t, short, "z"); b.GetSeq() != 2 {
		t.Errorf("the next batch is %d", b.GetSeq())
	}
	// The new batch has the number of the lost one, whose snapshot must not be used.
	if seq, snapshot, err := short.LoadSnapshot(testContext(t)); err != nil || seq != 1 || string(snapshot) != "older" {
		t.Errorf("after the next batch: batch %d, %q: %v", seq, snapshot, err)
	}
}

func TestWithout(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ holes, others, want []ledger.Hole }{
		{nil, nil, nil},
		{[]ledger.Hole{{1, 5}}, nil, []ledger.Hole{{1, 5}}},
		{[]ledger.Hole{{1, 5}, {6, 9}}, []ledger.Hole{{3, 3}}, []ledger.Hole{{1, 2}, {4, 9}}},
		{[]ledger.Hole{{3, 5}}, []ledger.Hole{{1, 9}}, nil},
		{[]ledger.Hole{{3, 5}, {8, 8}}, []ledger.Hole{{5, 8}}, []ledger.Hole{{3, 4}}},
	} {
		if diff := cmp.Diff(c.want, ledger.Without(c.holes, c.others)); diff != "" {
			t.Errorf("%v without %v (-want +got):\n%s", c.holes, c.others, diff)
		}
	}
	if got := ledger.HolesText([]ledger.Hole{{1, 1}, {3, 5}}); got != "batch 1, batches 3 to 5" {
		t.Errorf("%q", got)
	}
}

// BenchmarkHoles measures the search for holes at a start.
func BenchmarkHoles(b *testing.B) {
	nc := connect(b, bus.ConnConfig{Server: startServer(b, b.TempDir(), 0)})
	l := open(b, nc, ledger.Config{})
	if _, err := l.Append(context.Background(), time.Now(), notes("x")); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := l.Holes(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
}
