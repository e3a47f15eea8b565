package history

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/outbid-dev/outbid/orchestrator/ledger"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

const crashed = "crash-1"

// script appends batches to a history in dir and leaves it as a killed process would: written blocks are in the file,
// pending records are not. It returns the batches by sequence number, and the flushed length.
func script(t *rapid.T, dir string) (batches [][]*outbidv1.Event, flushed int64) {
	h := openHistory(t, dir)
	for seq := range uint64(rapid.IntRange(1, 12).Draw(t, "batches")) {
		var events []*outbidv1.Event
		for i := range rapid.IntRange(0, 90).Draw(t, "reports") {
			events = append(events, report(crashed, int32(i), int64(seq)))
		}
		batches = append(batches, events)
		mustAppend(t, h, seq+1, events...)
		s := h.files[crashed]
		switch {
		case s == nil:
		case rapid.IntRange(0, 5).Draw(t, "flush") == 0:
			mustFlush(t, h)
			flushed = s.size
		case rapid.Bool().Draw(t, "write"):
			if err := s.write(); err != nil {
				t.Fatalf("%v", err)
			}
		}
	}
	if s := h.files[crashed]; s != nil {
		if err := s.file.Close(); err != nil {
			t.Fatalf("%v", err)
		}
	}
	return batches, flushed
}

func all(batches [][]*outbidv1.Event) []entry {
	var out []entry
	for _, events := range batches {
		out = append(out, entries(events...)...)
	}
	return out
}

// tempDir is removed after one run of a property.
func tempDir(t *rapid.T) string {
	dir, err := os.MkdirTemp("", "history")
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Fatalf("%v", err)
		}
	})
	return dir
}

// TestCrashAtAnyByte truncates or corrupts the file anywhere after the flushed part. The rest is a prefix of whole
// batches, and appending all batches again restores the contents.
func TestCrashAtAnyByte(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		dir := tempDir(t)
		batches, flushed := script(t, dir)
		path := filepath.Join(dir, crashed+suffix)
		data, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) {
			return
		}
		if err != nil {
			t.Fatalf("%v", err)
		}
		if cut := int64(len(data)) - max(flushed, headSize); cut > 0 {
			at := max(flushed, headSize) + rapid.Int64Range(0, cut-1).Draw(t, "crash at")
			switch rapid.IntRange(0, 2).Draw(t, "how") {
			case 0:
				data = data[:at]
			case 1: // the size reached the disk, the data did not
				clear(data[at:])
			case 2:
				data[at] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
			}
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatalf("%v", err)
		}
		h := openHistory(t, dir)
		last, err := h.LastSeq(crashed)
		if err != nil {
			t.Fatalf("%v", err)
		}
		same(t, all(batches[:last]), readAll(t, h, crashed, nil))
		for i, events := range batches {
			mustAppend(t, h, uint64(i+1), events...)
		}
		same(t, all(batches), readAll(t, h, crashed, nil))
		closeHistory(t, h)
	})
}

// TestDamageIsNamed truncates or corrupts the flushed part. That must be noticed on open or read, or not matter, and
// a rebuild from the ledger repairs it.
func TestDamageIsNamed(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		dir := tempDir(t)
		batches, flushed := script(t, dir)
		if flushed <= headSize {
			return
		}
		path := filepath.Join(dir, crashed+suffix)
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatalf("%v", err)
		}
		at := rapid.Int64Range(headSize, flushed-1).Draw(t, "damage at")
		if rapid.Bool().Draw(t, "cut") {
			data = data[:at]
		} else {
			data[at] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatalf("%v", err)
		}
		h := openHistory(t, dir)
		err = h.Read(t.Context(), crashed, nil, func(int32, *outbidv1.Report) error { return nil })
		var damage *DamageError
		if !errors.As(err, &damage) || damage.Sweep != crashed {
			t.Fatalf("%v: want damage", err)
		}
		if err := h.Rebuild(t.Context(), ledgerOf(t, batches), crashed); err != nil {
			t.Fatalf("%v", err)
		}
		same(t, all(batches), readAll(t, h, crashed, nil))
		closeHistory(t, h)
		same(t, all(batches), readAll(t, openHistory(t, dir), crashed, nil))
	})
}

func ledgerOf(t testFataler, batches [][]*outbidv1.Event) ledger.Ledger {
	t.Helper()
	l := ledger.NewMemory()
	for _, events := range batches {
		if len(events) == 0 {
			events = []*outbidv1.Event{other()}
		}
		if _, err := l.Append(tContext(t), time.Unix(1, 0), events); err != nil {
			t.Fatalf("%v", err)
		}
	}
	return l
}

func TestRebuild(t *testing.T) {
	t.Parallel()
	l := ledgerOf(t, [][]*outbidv1.Event{
		{report("a-1", 0, 1), report("b-1", 0, 1)}, {other()}, {report("a-1", 1, 2), report("c-1", 0, 1)},
	})
	dir := t.TempDir()
	h := openHistory(t, dir)
	mustAppend(t, h, 1, report("c-1", 7, 7)) // stays as it is
	if err := h.Rebuild(t.Context(), l, "a-1", "b-1", "d-1"); err != nil {
		t.Fatal(err)
	}
	same(t, entries(report("a-1", 0, 1), report("a-1", 1, 2)), readAll(t, h, "a-1", nil))
	same(t, entries(report("b-1", 0, 1)), readAll(t, h, "b-1", nil))
	same(t, entries(report("c-1", 7, 7)), readAll(t, h, "c-1", nil))
	same(t, nil, readAll(t, h, "d-1", nil))
	mustAppend(t, h, 4, report("a-1", 2, 3))
	failed := errors.New("failed")
	if err := h.Rebuild(t.Context(), failingReader{failed}, "a-1"); !errors.Is(err, failed) {
		t.Errorf("rebuild from a ledger that cannot be read: %v", err)
	}
	if got := readAll(t, h, "a-1", nil); len(got) != 3 {
		t.Errorf("%d reports after a rebuild that failed", len(got))
	}
	closeHistory(t, h)
	left, err := filepath.Glob(filepath.Join(dir, "*.new"))
	if err != nil || len(left) != 0 {
		t.Errorf("left over: %v, %v", left, err)
	}
}

func FuzzOpen(f *testing.F) {
	dir := f.TempDir()
	h := openHistory(f, dir)
	for seq := range uint64(3) {
		var events []*outbidv1.Event
		for i := range 70 * seq {
			events = append(events, report(crashed, int32(i), int64(seq)))
		}
		mustAppend(f, h, seq+1, events...)
		mustFlush(f, h)
	}
	closeHistory(f, h)
	data, err := os.ReadFile(filepath.Join(dir, crashed+suffix))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add(data[:headSize])
	f.Add([]byte{})
	huge := append([]byte{}, data...)
	binary.LittleEndian.PutUint32(huge[headSize+8:], 1<<31)
	f.Add(huge)
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, crashed+suffix), data, 0o600); err != nil {
			t.Fatal(err)
		}
		h := openHistory(t, dir)
		last, err := h.LastSeq(crashed)
		if err != nil {
			var damage *DamageError
			if !errors.As(err, &damage) {
				t.Fatalf("%v: not a damage error", err)
			}
			return
		}
		_ = h.Read(t.Context(), crashed, nil, func(int32, *outbidv1.Report) error { return nil })
		if last == ^uint64(0) {
			return
		}
		mustAppend(t, h, last+1, report(crashed, 1, 1))
		closeHistory(t, h)
	})
}

func FuzzDecodeBlock(f *testing.F) {
	var b buffer
	for i := range 100 {
		r := report(crashed, int32(i), 1).GetTrialReported()
		if err := b.add(5, r.GetTrial(), r.GetReport()); err != nil {
			f.Fatal(err)
		}
	}
	data, _ := b.encode()
	f.Add(data)
	f.Add(data[:blockHeader])
	f.Fuzz(func(_ *testing.T, data []byte) {
		_, records, err := decodeBlock(data)
		if err == nil {
			data = records
		}
		_ = eachRecord(data, nil, func(int32, *outbidv1.Report) error { return nil })
	})
}
