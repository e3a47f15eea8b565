package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/outbid-dev/outbid/orchestrator/bus"
	"github.com/outbid-dev/outbid/orchestrator/ledger"
	"github.com/outbid-dev/outbid/orchestrator/ledger/archive"
	"github.com/outbid-dev/outbid/orchestrator/objects"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// archiving returns the configuration of a ledger with small segments and an archive in dir.
func archiving(dir string, segment uint64) ledger.Config {
	return ledger.Config{SegmentBatches: segment, OpenStore: func(context.Context, string) (archive.Store, error) {
		return objects.OpenDir(dir)
	}}
}

// everything archives all that can be archived, in small pieces.
func everything() ledger.ArchiveConfig {
	return ledger.ArchiveConfig{Before: time.Now().Add(time.Hour), PieceBytes: 300}
}

// bytesFrom returns the encoded batches of a ledger from a sequence number on.
func bytesFrom(ctx context.Context, l ledger.Ledger, from uint64) (all []string, err error) {
	err = l.Read(ctx, from, func(b *outbidv1.Batch) error {
		data, err := proto.MarshalOptions{Deterministic: true}.Marshal(b)
		all = append(all, string(data))
		return err
	})
	return all, err
}

func mustBytes(t *testing.T, l ledger.Ledger) []string {
	t.Helper()
	all, err := bytesFrom(testContext(t), l, 1)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// filledArchive returns a ledger of n batches in segments of 5, with a snapshot of the last batch, and its bytes.
func filledArchive(t *testing.T, s *bus.Server, store string, n int) (*ledger.JetStream, []string) {
	t.Helper()
	l := open(t, connect(t, bus.ConnConfig{Server: s}), archiving(store, 5))
	for i := range n {
		mustAppend(t, l, fmt.Sprint(i))
	}
	if err := l.SaveSnapshot(testContext(t), uint64(n), []byte("state")); err != nil {
		t.Fatal(err)
	}
	return l, mustBytes(t, l)
}

func mustArchive(t *testing.T, l *ledger.JetStream, segments int) {
	t.Helper()
	moved, err := l.Archive(testContext(t), everything())
	if err != nil || moved.Segments != segments {
		t.Fatalf("%d segments were archived, want %d: %v", moved.Segments, segments, err)
	}
}

// A ledger whose segments are archived at any time, by any server, is read like one that was never archived.
func TestAnArchivedLedgerIsReadByteForByte(t *testing.T) {
	t.Parallel()
	s := startSmallServer(t, t.TempDir())
	nc := connect(t, bus.ConnConfig{Server: s})
	runs, stores := atomic.Int64{}, t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		ctx := t.Context()
		run := fmt.Sprintf("RUN_%d", runs.Add(1))
		cfg := archiving(filepath.Join(stores, run), rapid.Uint64Range(1, 6).Draw(t, "segment"))
		cfg.Stream = run
		opened := func() *ledger.JetStream {
			l, err := ledger.OpenJetStream(ctx, nc, cfg)
			if err != nil {
				t.Fatal(err)
			}
			return l
		}
		plain, l, reader := ledger.NewMemory(), opened(), opened()
		at := time.Unix(1000, 0)
		check := func(l ledger.Ledger) {
			last, _ := plain.Last(ctx)
			from := rapid.Uint64Range(1, last+1).Draw(t, "from")
			want, err1 := bytesFrom(ctx, plain, from)
			got, err2 := bytesFrom(ctx, l, from)
			if diff := cmp.Diff(want, got); diff != "" || err1 != nil || err2 != nil {
				t.Fatal(diff, err1, err2)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"append": func(t *rapid.T) {
				size := rapid.SampledFrom([]int{1, 100, 400, 100_000}).Draw(t, "size") // the last is stored in parts
				at = at.Add(time.Duration(rapid.IntRange(0, 100).Draw(t, "seconds")) * time.Second)
				want, err1 := plain.Append(ctx, at, notes(strings.Repeat("x", size)))
				got, err2 := l.Append(ctx, at, notes(strings.Repeat("x", size)))
				if err1 != nil || err2 != nil || !proto.Equal(want, got) {
					t.Fatal(err1, err2)
				}
			},
			"snapshot": func(t *rapid.T) {
				last, _ := plain.Last(ctx)
				if err := l.SaveSnapshot(ctx, rapid.Uint64Range(0, last).Draw(t, "snapshot"), []byte("state")); err != nil {
					t.Fatal(err)
				}
			},
			"archive": func(t *rapid.T) {
				before := at.Add(-time.Duration(rapid.IntRange(-1, 200).Draw(t, "keep")) * time.Second)
				if _, err := l.Archive(ctx, ledger.ArchiveConfig{Before: before, PieceBytes: 500}); err != nil {
					t.Fatal(err)
				}
			},
			"interrupted": func(t *rapid.T) {
				stop := errors.New("stopped")
				l.StopArchive(rapid.SampledFrom([]string{"write", "verify", "record", "delete", "clean"}).Draw(t, "step"), stop)
				if _, err := l.Archive(ctx, ledger.ArchiveConfig{Before: at.Add(1), PieceBytes: 500}); err != nil && !errors.Is(err, stop) {
					t.Fatal(err)
				}
				l.StopArchive("", nil)
			},
			"restart": func(t *rapid.T) {
				l = opened()
				last, hash := uint64(0), []byte(nil)
				if err := plain.Read(ctx, 1, func(b *outbidv1.Batch) error { last, hash = b.GetSeq(), b.GetHash(); return nil }); err != nil {
					t.Fatal(err)
				}
				l.Resume(last, hash)
			},
			"read":             func(*rapid.T) { check(l) },
			"read as a client": func(*rapid.T) { check(reader) },
		})
		check(l)
		check(opened())
	})
}

// A kill before any step of the archiving loses nothing, and the next server completes it.
func TestArchivingIsContinuedAfterAKill(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"write", "verify", "record", "delete", "clean"} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			dir, store, stop := t.TempDir(), t.TempDir(), errors.New("killed")
			s := startServer(t, dir, 0)
			l, want := filledArchive(t, s, store, 23)
			l.StopArchive(step, stop)
			if _, err := l.Archive(testContext(t), everything()); !errors.Is(err, stop) {
				t.Fatalf("%v, want a stop", err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			nc := connect(t, bus.ConnConfig{Server: startServer(t, dir, 0)})
			l = open(t, nc, archiving(store, 5))
			if diff := cmp.Diff(want, mustBytes(t, l)); diff != "" {
				t.Errorf("after the kill (-want +got):\n%s", diff)
			}
			if _, err := l.Archive(testContext(t), everything()); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, mustBytes(t, l)); diff != "" {
				t.Errorf("after the archiving (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff([]string{"OUTBID_LEDGER_5", "OUTBID_LEDGER_ARCHIVE"}, streamsOf(t, nc, "OUTBID_LEDGER")); diff != "" {
				t.Errorf("streams (-want +got):\n%s", diff)
			}
		})
	}
}

// Batches that no snapshot precedes, and those of the time to keep, stay in NATS.
func TestWhatIsNotArchived(t *testing.T) {
	t.Parallel()
	s := startServer(t, t.TempDir(), 0)
	nc := connect(t, bus.ConnConfig{Server: s})
	l := open(t, nc, archiving(t.TempDir(), 5))
	for i := range 23 {
		if _, err := l.Append(testContext(t), time.Unix(int64(100*i), 0), notes("x")); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		snapshot uint64
		before   int64
		segments int
	}{
		{0, 1e9, 0}, {5, 1e9, 0}, {6, 1e9, 1}, {23, 900, 0}, {23, 901, 1}, {23, 1e9, 2},
	} {
		if c.snapshot > 0 {
			if err := l.SaveSnapshot(testContext(t), c.snapshot, []byte("state")); err != nil {
				t.Fatal(err)
			}
		}
		moved, err := l.Archive(testContext(t), ledger.ArchiveConfig{Before: time.Unix(c.before, 0)})
		if err != nil || moved.Segments != c.segments {
			t.Errorf("snapshot %d, before %d: %d segments, want %d: %v", c.snapshot, c.before, moved.Segments, c.segments, err)
		}
	}
}

// A client that has opened the ledger before, or is reading it, continues in the archive.
func TestAClientReadsOnInTheArchive(t *testing.T) {
	t.Parallel()
	s, store := startServer(t, t.TempDir(), 0), t.TempDir()
	l, _ := filledArchive(t, s, store, 5)
	stale := open(t, connect(t, bus.ConnConfig{Server: s}), archiving(store, 5)) // knows only the first segment
	for i := range 100 {
		mustAppend(t, l, strings.Repeat("x", 10*i))
	}
	if err := l.SaveSnapshot(testContext(t), 105, []byte("state")); err != nil {
		t.Fatal(err)
	}
	want := mustBytes(t, l)
	var got []string
	other := open(t, connect(t, bus.ConnConfig{Server: s}), archiving(store, 5))
	if err := other.Read(testContext(t), 1, func(b *outbidv1.Batch) error {
		if b.GetSeq() == 3 {
			mustArchive(t, l, 20)
		}
		data, err := proto.MarshalOptions{Deterministic: true}.Marshal(b)
		got = append(got, string(data))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(want, got) {
		t.Errorf("a read in progress returned %d batches, want %d equal ones", len(got), len(want))
	}
	if !slices.Equal(want, mustBytes(t, stale)) {
		t.Error("a client that knew only the first segment reads another ledger")
	}
	if last, err := stale.Last(testContext(t)); last != 105 || err != nil {
		t.Errorf("the last batch is %d: %v", last, err)
	}
}

// Damage of the archive is reported with its batch, and a reader without the store gets an error that names the reason.
func TestADamagedArchiveIsNamed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spoil  func(path string) error
		reason string
	}{
		"missing": {os.Remove, "is missing"},
		"changed": {func(path string) error {
			return errors.Join(os.Chmod(path, 0o600), os.WriteFile(path, []byte("x"), 0o600))
		}, "has SHA-256"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, store := startServer(t, t.TempDir(), 0), t.TempDir()
			l, want := filledArchive(t, s, store, 23)
			mustArchive(t, l, 4)
			files, err := filepath.Glob(filepath.Join(store, "ledger", fmt.Sprintf("%020d-*", 7)))
			if err != nil || len(files) == 0 {
				files, err = filepath.Glob(filepath.Join(store, "ledger", fmt.Sprintf("%020d-*", 6)))
			}
			if err != nil || len(files) != 1 {
				t.Fatalf("%v: %v", files, err)
			}
			if err := c.spoil(files[0]); err != nil {
				t.Fatal(err)
			}
			damage, ok := errors.AsType[*ledger.DamageError](func() error { _, err := bytesFrom(testContext(t), l, 1); return err }())
			if !ok || damage.Seq < 6 || damage.Seq > 7 || !strings.Contains(damage.Reason, c.reason) {
				t.Errorf("%v, want damage: %s", damage, c.reason)
			}
			if tail, err := bytesFrom(testContext(t), l, 21); err != nil || !slices.Equal(tail, want[20:]) {
				t.Errorf("the batches in NATS are not read: %v", err)
			}
		})
	}
	s := startServer(t, t.TempDir(), 0)
	l, want := filledArchive(t, s, t.TempDir(), 23)
	mustArchive(t, l, 4)
	without := open(t, connect(t, bus.ConnConfig{Server: s}), ledger.Config{})
	if _, err := bytesFrom(testContext(t), without, 1); err == nil || !strings.Contains(err.Error(), "object store") {
		t.Errorf("%v", err)
	}
	if tail, err := bytesFrom(testContext(t), without, 21); err != nil || !slices.Equal(tail, want[20:]) {
		t.Errorf("the batches in NATS need no store: %v", err)
	}
}

// Losses that were accepted stay accepted in the archive.
func TestAnAcceptedLossIsArchived(t *testing.T) {
	t.Parallel()
	const batches, segment = 500, 200
	dir, store := t.TempDir(), t.TempDir()
	filled(t, dir, batches, batches, ledger.Config{SegmentBatches: segment})
	blocks := blockFiles(t, dir, ledger.DefaultStream)
	cut(t, blocks[len(blocks)-1], 352<<10)
	s := startServer(t, dir, 0)
	l := open(t, connect(t, bus.ConnConfig{Server: s}), archiving(store, segment))
	holes, err := l.Holes(testContext(t))
	if err != nil || len(holes) == 0 {
		t.Fatalf("%v: %v", holes, err)
	}
	l.Accept(holes)
	want := mustBytes(t, l)
	cfg := everything()
	cfg.PieceBytes = 100_000
	if moved, err := l.Archive(testContext(t), cfg); err != nil || moved.Segments != 2 {
		t.Fatalf("%d segments: %v", moved.Segments, err)
	}
	fresh := open(t, connect(t, bus.ConnConfig{Server: s}), archiving(store, segment))
	if holes, err := fresh.Holes(testContext(t)); err != nil || len(holes) > 0 {
		t.Errorf("holes of the streams: %v, %v", holes, err)
	}
	if !slices.Equal(want, mustBytes(t, fresh)) {
		t.Error("the archived ledger differs")
	}
}

// A segment ends when it is old, so that a small ledger is archived too.
func TestAnOldSegmentIsSealed(t *testing.T) {
	t.Parallel()
	nc := connect(t, bus.ConnConfig{Server: startServer(t, t.TempDir(), 0)})
	l := open(t, nc, ledger.Config{SegmentAge: time.Hour})
	for i := range 5 {
		if _, err := l.Append(testContext(t), time.Now().Add(time.Duration(i)*31*time.Minute), notes("x")); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{"OUTBID_LEDGER", "OUTBID_LEDGER_2", "OUTBID_LEDGER_3"}, streamsOf(t, nc, "OUTBID_LEDGER")); diff != "" {
		t.Error(diff)
	}
}
