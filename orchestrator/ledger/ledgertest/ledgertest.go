// Package ledgertest is the conformance suite for implementations of ledgers: it tests what control relies on.
package ledgertest

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"pgregory.net/rapid"

	"github.com/outbid-dev/outbid/orchestrator/ledger"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Unzipped returns the contents of a file in testdata, such as a ledger that an older version wrote.
func Unzipped(t testing.TB, path string) []byte {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// Open creates an empty ledger and returns a function that opens it. Every call returns a new writer at the beginning
// of the same ledger, like a process that has just started.
type Open func(t *testing.T) func() ledger.Ledger

// Run checks a ledger against its contract.
func Run(t *testing.T, open Open) {
	t.Helper()
	for _, test := range []struct {
		name string
		run  func(*testing.T, func() ledger.Ledger)
	}{
		{"Empty", testEmpty},
		{"AppendAndRead", testAppendAndRead},
		{"ReadFrom", testReadFrom},
		{"ReadEnds", testReadEnds},
		{"TwoWriters", testTwoWriters},
		{"Restart", testRestart},
		{"Refused", testRefused},
		{"BigBatch", testBigBatch},
		{"ReadBesideAppend", testReadBesideAppend},
		{"Snapshots", testSnapshots},
		{"Changes", testChanges},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.run(t, open(t))
		})
	}
	t.Run("Model", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(rt *rapid.T) { testModel(rt, open(t)) })
	})
}

// fataler is implemented by *testing.T and *rapid.T.
type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// start is the time of the first batch. Its nanoseconds must be preserved.
var start = time.Date(2026, 3, 14, 15, 9, 26, 535897932, time.UTC) //nolint:gochecknoglobals // a constant

func note(text string) *outbidv1.Event {
	return &outbidv1.Event{Kind: &outbidv1.Event_Note{Note: &outbidv1.Note{Text: text}}}
}

func notes(from, n int) []*outbidv1.Event {
	events := make([]*outbidv1.Event, n)
	for i := range events {
		events[i] = note(fmt.Sprint("note ", from+i))
	}
	return events
}

func mustAppend(ctx context.Context, t fataler, l ledger.Ledger, events ...*outbidv1.Event) *outbidv1.Batch {
	t.Helper()
	b, err := l.Append(ctx, start, events)
	if err != nil {
		t.Fatalf("append: %v", err)
	}
	return b
}

func mustRead(ctx context.Context, t fataler, l ledger.Ledger, from uint64) []*outbidv1.Batch {
	t.Helper()
	var got []*outbidv1.Batch
	err := l.Read(ctx, from, func(b *outbidv1.Batch) error {
		got = append(got, b)
		return nil
	})
	if err != nil {
		t.Fatalf("read from %d: %v", from, err)
	}
	return got
}

func mustLast(ctx context.Context, t fataler, l ledger.Ledger, want uint64) {
	t.Helper()
	if got, err := l.Last(ctx); err != nil || got != want {
		t.Fatalf("last is %d, %v; want %d", got, err, want)
	}
}

func testEmpty(t *testing.T, open func() ledger.Ledger) {
	ctx, l := testContext(t), open()
	mustLast(ctx, t, l, 0)
	if got := mustRead(ctx, t, l, 1); len(got) != 0 {
		t.Errorf("read %d batches of an empty ledger", len(got))
	}
	if seq, data, err := l.LoadSnapshot(ctx); seq != 0 || data != nil || err != nil {
		t.Errorf("snapshot %d, %q, %v of an empty ledger", seq, data, err)
	}
	if ledger.MaxBatchBytes(l) < 60<<10 {
		t.Errorf("batches of at most %d bytes", ledger.MaxBatchBytes(l))
	}
}

func testAppendAndRead(t *testing.T, open func() ledger.Ledger) {
	ctx, l := testContext(t), open()
	var want []*outbidv1.Batch
	var prev []byte
	for i := range 20 {
		at := start.Add(time.Duration(i) * time.Minute)
		b, err := l.Append(ctx, at, notes(10*i, i+1))
		if err != nil {
			t.Fatal(err)
		}
		if b.GetSeq() != uint64(i+1) || !b.GetTime().AsTime().Equal(at) {
			t.Errorf("batch %d of %s: want %d of %s", b.GetSeq(), b.GetTime().AsTime(), i+1, at)
		}
		if err := ledger.Verify(b, uint64(i+1), prev); err != nil {
			t.Error(err)
		}
		mustLast(ctx, t, l, b.GetSeq())
		want, prev = append(want, b), b.GetHash()
	}
	got := mustRead(ctx, t, l, 1)
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
	for i, b := range got {
		events, err := ledger.Decode(b)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(notes(10*i, i+1), events, protocmp.Transform()); diff != "" {
			t.Error(diff)
		}
	}
}

func testReadFrom(t *testing.T, open func() ledger.Ledger) {
	ctx, l := testContext(t), open()
	for i := range 5 {
		mustAppend(ctx, t, l, note(fmt.Sprint(i)))
	}
	for from := range uint64(7) {
		got := mustRead(ctx, t, l, from)
		want := max(from, 1)
		for _, b := range got {
			if b.GetSeq() != want {
				t.Errorf("read from %d: batch %d, want %d", from, b.GetSeq(), want)
			}
			want++
		}
		if want != 6 {
			t.Errorf("read from %d ended before batch %d", from, want)
		}
	}
	var damage *ledger.DamageError
	err := l.Read(ctx, 8, func(*outbidv1.Batch) error { return nil })
	if !errors.As(err, &damage) || damage.Seq != 6 {
		t.Errorf("read on after batch 7 of 5: %v; want that batch 6 is missing", err)
	}
}

func testReadEnds(t *testing.T, open func() ledger.Ledger) {
	ctx, l := testContext(t), open()
	mustAppend(ctx, t, l, note("a"))
	mustAppend(ctx, t, l, note("b"))
	stop, calls := errors.New("stop"), 0
	err := l.Read(ctx, 1, func(*outbidv1.Batch) error { calls++; return stop })
	if !errors.Is(err, stop) || calls != 1 {
		t.Errorf("%d calls, then %v", calls, err)
	}
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	if err := l.Read(cancelled, 1, func(*outbidv1.Batch) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("read with an ended context: %v", err)
	}
	if _, err := l.Append(cancelled, start, notes(0, 1)); !errors.Is(err, context.Canceled) {
		t.Errorf("append with an ended context: %v", err)
	}
}

func testTwoWriters(t *testing.T, open func() ledger.Ledger) {
	ctx := testContext(t)
	a, b := open(), open()
	mustAppend(ctx, t, a, note("a1"))
	if _, err := b.Append(ctx, start, notes(0, 1)); !errors.Is(err, ledger.ErrConflict) {
		t.Fatalf("a writer that has seen nothing: %v", err)
	}
	last := mustRead(ctx, t, b, 1)[0]
	b.Resume(last.GetSeq(), last.GetHash())
	mustAppend(ctx, t, b, note("b2"))
	for range 2 { // it remains deposed
		if _, err := a.Append(ctx, start, notes(0, 1)); !errors.Is(err, ledger.ErrConflict) {
			t.Fatalf("a deposed writer: %v", err)
		}
	}
	// Equal contents do not help, because it is another batch.
	a.Resume(1, last.GetHash())
	if _, err := a.Append(ctx, start.Add(time.Second), []*outbidv1.Event{note("b2")}); !errors.Is(err, ledger.ErrConflict) {
		t.Fatalf("a deposed writer with the same events: %v", err)
	}
	mustLast(ctx, t, a, 2)
}

func testRestart(t *testing.T, open func() ledger.Ledger) {
	ctx := testContext(t)
	for i := range 4 {
		l := open()
		got := mustRead(ctx, t, l, 1)
		if len(got) != 2*i {
			t.Fatalf("%d batches after restart %d", len(got), i)
		}
		if len(got) > 0 {
			last := got[len(got)-1]
			l.Resume(last.GetSeq(), last.GetHash())
		}
		mustAppend(ctx, t, l, note("x"))
		mustAppend(ctx, t, l, note("y"))
	}
	if got := mustRead(ctx, t, open(), 6); len(got) != 3 {
		t.Errorf("%d batches from 6", len(got))
	}
}

func testRefused(t *testing.T, open func() ledger.Ledger) {
	ctx, l := testContext(t), open()
	if _, err := l.Append(ctx, start, nil); err == nil {
		t.Error("appended nothing")
	}
	if _, err := l.Append(ctx, time.Time{}.AddDate(20000, 0, 0), notes(0, 1)); err == nil {
		t.Error("appended at a time that cannot be stored")
	}
	if err := l.SaveSnapshot(ctx, 1, []byte("x")); err == nil {
		t.Error("took a snapshot of a batch that is not there")
	}
	mustLast(ctx, t, l, 0)
	mustAppend(ctx, t, l, note("still works"))
}

// testBigBatch appends batches of any size: those that do not fit one message are stored too.
func testBigBatch(t *testing.T, open func() ledger.Ledger) {
	ctx, l := testContext(t), open()
	text := string(bytes.Repeat([]byte("x"), ledger.MaxBatchBytes(l)-64))
	want := []*outbidv1.Batch{
		mustAppend(ctx, t, l, note(text)),
		mustAppend(ctx, t, l, note(text), note(text), note("y")),
		mustAppend(ctx, t, l, note(text+text+text)),
		mustAppend(ctx, t, l, note("small")),
	}
	for _, from := range []uint64{1, 3} {
		same := func(a, b *outbidv1.Batch) bool { return proto.Equal(a, b) }
		if got := mustRead(ctx, t, open(), from); !slices.EqualFunc(want[from-1:], got, same) {
			t.Errorf("read from %d: %d batches, not the %d that were appended", from, len(got), len(want[from-1:]))
		}
	}
}

func testReadBesideAppend(t *testing.T, open func() ledger.Ledger) {
	ctx := testContext(t)
	writer, reader := open(), open()
	done := make(chan error, 1)
	go func() {
		for i := range 50 {
			if _, err := writer.Append(ctx, start, notes(i, 3)); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	for seen := uint64(0); seen < 50; {
		for _, b := range mustRead(ctx, t, reader, seen+1) {
			seen = b.GetSeq()
		}
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func testSnapshots(t *testing.T, open func() ledger.Ledger) {
	ctx, l := testContext(t), open()
	big := bytes.Repeat([]byte("0123456789abcdef"), 3<<16)
	for i := range 6 {
		mustAppend(ctx, t, l, note(fmt.Sprint(i)))
		data := append([]byte(fmt.Sprint(i)), big...)
		if i == 3 {
			data = []byte{}
		}
		if err := l.SaveSnapshot(ctx, uint64(i+1), data); err != nil {
			t.Fatal(err)
		}
		seq, got, err := open().LoadSnapshot(ctx)
		if err != nil || seq != uint64(i+1) || !bytes.Equal(got, data) {
			t.Fatalf("snapshot of batch %d with %d bytes, %v; want %d with %d", seq, len(got), err, i+1, len(data))
		}
	}
	if err := l.SaveSnapshot(ctx, 2, []byte("late")); err != nil {
		t.Fatal(err)
	}
	if seq, _, err := l.LoadSnapshot(ctx); seq != 6 || err != nil {
		t.Errorf("snapshot of batch %d, %v, after an older one was saved", seq, err)
	}
}

func testChanges(t *testing.T, open func() ledger.Ledger) {
	ctx, l := testContext(t), open()
	for i := range 9 {
		mustAppend(ctx, t, l, note(fmt.Sprint(i)))
	}
	big := string(bytes.Repeat([]byte("0123456789abcdef"), 3<<16))
	want := func(when string, since uint64, wants ...string) {
		t.Helper()
		got, err := open().LoadChanges(ctx, since)
		same := func(data []byte, text string) bool { return string(data) == text || string(data) == text+big }
		if err != nil || !slices.EqualFunc(got, wants, same) {
			t.Errorf("%s: %d changes since %d, %v; want %q", when, len(got), since, err, wants)
		}
	}
	save := func(since, seq uint64, big string) {
		t.Helper()
		if err := l.SaveChanges(ctx, since, seq, []byte(fmt.Sprint(since, "-", seq)+big)); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.SaveSnapshot(ctx, 2, []byte("2")); err != nil {
		t.Fatal(err)
	}
	want("without any", 2)
	save(2, 4, big)
	save(4, 5, "")
	want("with two", 2, "2-4", "4-5")
	want("of another snapshot", 3)
	want("from the middle", 4, "4-5")
	if err := l.SaveSnapshot(ctx, 4, []byte("4")); err != nil { // the changes before it are merged
		t.Fatal(err)
	}
	save(5, 8, big)
	want("merged", 4, "4-5", "5-8")
	want("of the older snapshot", 2)
	for _, c := range []struct{ since, seq uint64 }{{5, 10}, {8, 8}, {8, 7}} {
		if err := l.SaveChanges(ctx, c.since, c.seq, []byte("x")); err == nil {
			t.Errorf("changes from batch %d to %d were saved", c.since, c.seq)
		}
	}
	if seq, data, err := open().LoadSnapshot(ctx); seq != 4 || string(data) != "4" || err != nil {
		t.Errorf("the snapshot is %d, %q, %v", seq, data, err)
	}
	if err := l.SaveSnapshot(ctx, 9, []byte("9")); err != nil {
		t.Fatal(err)
	}
	want("after a later snapshot", 4)
	want("of the later snapshot", 9)
}

// testModel makes two writers append and catch up in any order: only a writer at the end may append.
func testModel(t *rapid.T, open func() ledger.Ledger) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	writers := []ledger.Ledger{open(), open()}
	stands := []int{0, 0}
	var model []string
	for i := range rapid.IntRange(1, 12).Draw(t, "steps") {
		w := rapid.IntRange(0, 1).Draw(t, "writer")
		if rapid.Bool().Draw(t, "catch up") {
			for _, b := range mustRead(ctx, t, writers[w], uint64(stands[w]+1)) {
				writers[w].Resume(b.GetSeq(), b.GetHash())
				stands[w]++
			}
			continue
		}
		text := fmt.Sprint(w, " says ", i)
		_, err := writers[w].Append(ctx, start, []*outbidv1.Event{note(text)})
		switch {
		case stands[w] < len(model) && !errors.Is(err, ledger.ErrConflict):
			t.Fatalf("writer %d at %d of %d: %v; want a conflict", w, stands[w], len(model), err)
		case stands[w] == len(model) && err != nil:
			t.Fatalf("writer %d at the end: %v", w, err)
		case err == nil:
			model = append(model, text)
			stands[w]++
		}
	}
	var got []string
	for _, b := range mustRead(ctx, t, open(), 1) {
		events, err := ledger.Decode(b)
		if err != nil {
			t.Fatalf("%v", err)
		}
		got = append(got, events[0].GetNote().GetText())
	}
	if diff := cmp.Diff(model, got); diff != "" {
		t.Fatalf("%s", diff)
	}
}
