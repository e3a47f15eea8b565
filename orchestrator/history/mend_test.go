package history

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/outbid-dev/outbid/orchestrator/ledger"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Every flipped bit of a header and its filter is noticed when the file is opened, before it can cause a block to be
// skipped.
func TestEveryBitOfAHeaderCounts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	h := openHistory(t, dir)
	var events []*outbidv1.Event
	for i := range filterFrom + 6 {
		events = append(events, report(crashed, int32(3*i), 1))
	}
	mustAppend(t, h, 7, events...)
	closeHistory(t, h)
	path := filepath.Join(dir, crashed+suffix)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for bit := range 8 * (blockHeader + filterSize) {
		spoilt := append([]byte{}, data...)
		spoilt[headSize+bit/8] ^= 1 << (bit % 8)
		if err := os.WriteFile(path, spoilt, 0o600); err != nil {
			t.Fatal(err)
		}
		h := openHistory(t, dir)
		_, err := h.LastSeq(crashed)
		if _, ok := errors.AsType[*DamageError](err); !ok && bit/8 >= 20 && bit/8 < 24 {
			err = h.Verify(t.Context(), crashed) // the checksum of the whole block, which includes the records
		}
		if _, ok := errors.AsType[*DamageError](err); !ok {
			t.Errorf("bit %d of byte %d of the header: %v", bit%8, bit/8, err)
		}
	}
}

// A file that was closed, and is missing or truncated when it is opened again, is not recreated.
func TestAFileThatIsGoneIsDamage(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(path string) error{
		"gone": os.Remove, "empty": func(path string) error { return os.Truncate(path, 0) },
	} {
		dir := t.TempDir()
		h := openHistory(t, dir)
		h.max = 1
		mustAppend(t, h, 1, report(crashed, 0, 1))
		mustAppend(t, h, 2, report("other-1", 0, 1)) // closes the first
		if err := spoil(filepath.Join(dir, crashed+suffix)); err != nil {
			t.Fatal(err)
		}
		err := h.Append(3, []*outbidv1.Event{report(crashed, 1, 2)})
		if _, ok := errors.AsType[*DamageError](err); !ok {
			t.Errorf("%s: %v", name, err)
		}
		l := ledgerOf(t, [][]*outbidv1.Event{{report(crashed, 0, 1)}, {report("other-1", 0, 1)}, {report(crashed, 1, 2)}})
		if err := h.Mend(t.Context(), l, crashed); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		same(t, entries(report(crashed, 0, 1), report(crashed, 1, 2)), readAll(t, h, crashed, nil))
		closeHistory(t, h)
	}
}

// A file is restored while reports are appended and read: none is lost or duplicated.
func TestMendBesideAppends(t *testing.T) {
	t.Parallel()
	h, l := openHistory(t, t.TempDir()), ledger.NewMemory()
	var all []*outbidv1.Event
	add := func(n int) {
		for range n {
			events := []*outbidv1.Event{report(crashed, int32(len(all)%9), int64(len(all)))}
			if len(all)%5 == 0 {
				events = append(events, report("other-1", 0, int64(len(all))))
			}
			b, err := l.Append(t.Context(), time.Unix(1, 0), events)
			if err != nil {
				t.Error(err)
				return
			}
			all = append(all, events[0])
			mustAppend(t, h, b.GetSeq(), events...)
		}
	}
	add(1000)
	appended := make(chan struct{})
	go func() {
		defer close(appended)
		add(1000)
	}()
	for range 5 {
		if err := h.Mend(t.Context(), l, crashed); err != nil {
			t.Error(err)
		}
		readAll(t, h, crashed, nil)
	}
	<-appended
	same(t, entries(all...), readAll(t, h, crashed, nil))
	closeHistory(t, h)
	same(t, entries(all...), readAll(t, openHistory(t, h.dir), crashed, nil))
}

// A sweep that is deleted while its file is being restored has no file.
func TestMendOfADeletedSweep(t *testing.T) {
	t.Parallel()
	h := openHistory(t, t.TempDir())
	deleted := &outbidv1.Event{Kind: &outbidv1.Event_SweepDeleted{SweepDeleted: &outbidv1.SweepDeleted{Sweep: crashed}}}
	l := ledgerOf(t, [][]*outbidv1.Event{{report(crashed, 0, 1)}, {deleted}})
	if err := h.Mend(t.Context(), l, crashed); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(h.dir); err != nil || len(left) > 0 {
		t.Errorf("left over: %v, %v", left, err)
	}
	failed := errors.New("failed")
	if err := h.Mend(t.Context(), failingReader{failed}, crashed); !errors.Is(err, failed) {
		t.Errorf("a ledger that cannot be read: %v", err)
	}
	if left, err := os.ReadDir(h.dir); err != nil || len(left) > 0 {
		t.Errorf("left over: %v, %v", left, err)
	}
}

// Any flipped bit or truncation while a file is open is found by Verify and repaired by Mend.
func TestDamageBehindTheServersBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		dir := tempDir(t)
		batches, _ := script(t, dir)
		h := openHistory(t, dir)
		for i, events := range batches {
			mustAppend(t, h, uint64(i+1), events...)
		}
		mustFlush(t, h)
		path := filepath.Join(dir, crashed+suffix)
		data, err := os.ReadFile(path)
		if err != nil || len(data) <= headSize {
			return
		}
		at := rapid.IntRange(headSize, len(data)-1).Draw(t, "at")
		if rapid.Bool().Draw(t, "cut") {
			err = os.Truncate(path, int64(at))
		} else {
			data[at] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
			err = os.WriteFile(path, data, 0o600)
		}
		if err != nil {
			t.Fatalf("%v", err)
		}
		err = h.Verify(tContext(t), crashed)
		if _, ok := errors.AsType[*DamageError](err); !ok {
			t.Fatalf("%v: want damage", err)
		}
		if err := h.Mend(tContext(t), ledgerOf(t, batches), crashed); err != nil {
			t.Fatalf("%v", err)
		}
		if err := h.Verify(tContext(t), crashed); err != nil {
			t.Fatalf("after it was mended: %v", err)
		}
		same(t, all(batches), readAll(t, h, crashed, nil))
		closeHistory(t, h)
	})
}
