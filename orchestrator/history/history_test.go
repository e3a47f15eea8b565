package history

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/outbid-dev/outbid/orchestrator/ledger"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// entry is a report that is appended and read back.
type entry struct {
	Trial  int32
	Report *outbidv1.Report
}

func report(sweep string, trial int32, step int64) *outbidv1.Event {
	return &outbidv1.Event{Kind: &outbidv1.Event_TrialReported{TrialReported: &outbidv1.TrialReported{
		Sweep: sweep, Trial: trial, LeaseId: 1,
		Report: &outbidv1.Report{
			Seq: uint64(step), Step: step, Metrics: map[string]float64{"loss": 1 / float64(step+1)},
			Time: timestamppb.New(time.Unix(1.7e9+step, 0)), TrainSeconds: float64(step) / 7,
		},
	}}}
}

func other() *outbidv1.Event {
	return &outbidv1.Event{Kind: &outbidv1.Event_Note{Note: &outbidv1.Note{Text: "not a report"}}}
}

// testFataler is implemented by *testing.T and *rapid.T.
type testFataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

func openHistory(t testFataler, dir string) *History {
	t.Helper()
	h, err := Open(dir)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return h
}

func mustAppend(t testFataler, h *History, seq uint64, events ...*outbidv1.Event) {
	t.Helper()
	if err := h.Append(seq, events); err != nil {
		t.Fatalf("append batch %d: %v", seq, err)
	}
}

func mustFlush(t testFataler, h *History) {
	t.Helper()
	if err := h.Flush(); err != nil {
		t.Fatalf("flush: %v", err)
	}
}

func readAll(t testFataler, h *History, sweep string, trial *int32) []entry {
	t.Helper()
	var got []entry
	err := h.Read(context.Background(), sweep, trial, func(trial int32, r *outbidv1.Report) error {
		got = append(got, entry{trial, r})
		return nil
	})
	if err != nil {
		t.Fatalf("read %s: %v", sweep, err)
	}
	return got
}

func entries(events ...*outbidv1.Event) []entry {
	var out []entry
	for _, e := range events {
		if r := e.GetTrialReported(); r != nil {
			out = append(out, entry{r.GetTrial(), r.GetReport()})
		}
	}
	return out
}

func same(t testFataler, want, got []entry) {
	t.Helper()
	equal := func(a, b entry) bool { return a.Trial == b.Trial && proto.Equal(a.Report, b.Report) }
	if slices.EqualFunc(want, got, equal) {
		return
	}
	t.Fatalf("read something else than was appended: %s", cmp.Diff(want, got, protocmp.Transform()))
}

func closeHistory(t testFataler, h *History) {
	t.Helper()
	if err := h.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
}

// Other users of the machine, such as those that run trials, cannot read reports, even if an earlier version made the
// directory.
func TestOtherUsersReadNothing(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "history")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	h, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

func TestAppendReadReopen(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	h := openHistory(t, dir)
	if got := readAll(t, h, "none-1", nil); got != nil {
		t.Errorf("read %v of a sweep without reports", got)
	}
	a := []*outbidv1.Event{report("a-1", 0, 1), other(), report("a-1", 1, 1), report("a-1", 0, 2)}
	mustAppend(t, h, 3, append(a, report("b-1", 0, 9))...)
	mustAppend(t, h, 4, other())
	mustAppend(t, h, 7, report("a-1", 1, 2))
	a = append(a, report("a-1", 1, 2))
	one := int32(1)
	check := func(h *History) {
		t.Helper()
		same(t, entries(a...), readAll(t, h, "a-1", nil))
		same(t, entries(a[2], a[4]), readAll(t, h, "a-1", &one))
		same(t, entries(report("b-1", 0, 9)), readAll(t, h, "b-1", nil))
		same(t, nil, readAll(t, h, "b-1", &one))
		for sweep, want := range map[string][2]int64{"a-1": {7, 4}, "b-1": {3, 1}, "none-1": {0, 0}} {
			seq, err := h.LastSeq(sweep)
			n, countErr := h.Reports(sweep)
			if err != nil || countErr != nil || seq != uint64(want[0]) || n != want[1] {
				t.Errorf("%s: last batch %d, %d reports, %v, %v; want %v", sweep, seq, n, err, countErr, want)
			}
		}
	}
	check(h) // unflushed
	mustFlush(t, h)
	check(h)
	for seq := range uint64(8) { // replays batches that are already there
		mustAppend(t, h, seq, report("a-1", 5, 5))
	}
	check(h)
	closeHistory(t, h)
	h = openHistory(t, dir)
	check(h)
	if sweeps, err := h.Sweeps(); err != nil || !cmp.Equal(sweeps, []string{"a-1", "b-1"}) {
		t.Errorf("sweeps %v, %v", sweeps, err)
	}
	for range 2 {
		if err := h.Remove("a-1"); err != nil {
			t.Error(err)
		}
	}
	if got := readAll(t, h, "a-1", nil); got != nil {
		t.Errorf("read %d reports of a removed sweep", len(got))
	}
	closeHistory(t, h)
}

func TestBadNames(t *testing.T) {
	t.Parallel()
	h := openHistory(t, t.TempDir())
	for _, name := range []string{"", "../x", "a/b", "a.b", ".x"} {
		_, err := h.LastSeq(name)
		for what, err := range map[string]error{
			"append": h.Append(1, []*outbidv1.Event{report(name, 0, 1)}), "last": err, "remove": h.Remove(name),
			"read":    h.Read(t.Context(), name, nil, nil),
			"rebuild": h.Rebuild(t.Context(), ledger.NewMemory(), name),
		} {
			if err == nil || !strings.Contains(err.Error(), "want letters") {
				t.Errorf("%s of %q: %v", what, name, err)
			}
		}
	}
}

// TestFewFilesOpen has more sweeps than open files, all of them in every batch.
func TestFewFilesOpen(t *testing.T) {
	t.Parallel()
	h := openHistory(t, t.TempDir())
	h.max = 3
	const sweeps, batches = 8, 5
	var want [sweeps][]entry
	for seq := range uint64(batches) {
		var events []*outbidv1.Event
		for i := range 2 * sweeps {
			e := report(fmt.Sprint("s-", i%sweeps), int32(i), int64(seq))
			events = append(events, e)
			want[i%sweeps] = append(want[i%sweeps], entries(e)...)
		}
		mustAppend(t, h, seq+1, events...)
		if len(h.files) > 3 {
			t.Fatalf("%d files open", len(h.files))
		}
	}
	for i := range sweeps {
		same(t, want[i], readAll(t, h, fmt.Sprint("s-", i), nil))
	}
	closeHistory(t, h)
}

// TestTrialsAreFound writes many blocks and reads single trials, which must decode only the blocks of these trials.
func TestTrialsAreFound(t *testing.T) {
	t.Parallel()
	h := openHistory(t, t.TempDir())
	defer closeHistory(t, h)
	want := map[int32][]entry{}
	for seq := range uint64(300) {
		var events []*outbidv1.Event
		for i := range 64 {
			trial := int32(seq)*64 + int32(i)
			if i == 63 {
				trial = int32(seq / 2) // an early trial continues later
			}
			e := report("s-1", trial, int64(seq))
			events = append(events, e)
			want[trial] = append(want[trial], entries(e)...)
		}
		mustAppend(t, h, seq+1, events...)
	}
	blocks := h.files["s-1"].blocks
	if len(blocks) < 10 {
		t.Fatalf("only %d blocks", len(blocks))
	}
	for _, trial := range []int32{0, 1, 77, 5000, 19199, 19200} {
		same(t, want[trial], readAll(t, h, "s-1", &trial))
		hits := 0
		for _, b := range blocks {
			if b.has(trial) {
				hits++
			}
		}
		if hits > len(blocks)/2 {
			t.Errorf("trial %d: %d of %d blocks would be read", trial, hits, len(blocks))
		}
	}
}

func TestReadBesideAppend(t *testing.T) {
	t.Parallel()
	h := openHistory(t, t.TempDir())
	h.max = 1
	var group sync.WaitGroup
	const batches = 400
	group.Go(func() {
		for seq := range uint64(batches) {
			if err := h.Append(seq+1, []*outbidv1.Event{report("a-1", 0, int64(seq)), report("b-1", 0, 1)}); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for seen := 0; seen < batches; {
		got := readAll(t, h, "a-1", nil)
		if len(got) < seen {
			t.Fatalf("read %d reports after %d", len(got), seen)
		}
		for i, e := range got {
			if e.Report.GetStep() != int64(i) {
				t.Fatalf("report %d is of step %d", i, e.Report.GetStep())
			}
		}
		seen = len(got)
	}
	group.Wait()
	closeHistory(t, h)
}

func TestReadEnds(t *testing.T) {
	t.Parallel()
	h := openHistory(t, t.TempDir())
	defer closeHistory(t, h)
	mustAppend(t, h, 1, report("a-1", 0, 1), report("a-1", 0, 2))
	mustFlush(t, h)
	stop, calls := errors.New("stop"), 0
	err := h.Read(t.Context(), "a-1", nil, func(int32, *outbidv1.Report) error { calls++; return stop })
	if !errors.Is(err, stop) || calls != 1 {
		t.Errorf("%d calls, then %v", calls, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := h.Read(ctx, "a-1", nil, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("read with an ended context: %v", err)
	}
}

func TestReadAfter(t *testing.T) {
	t.Parallel()
	h := openHistory(t, t.TempDir())
	defer closeHistory(t, h)
	const reports = 3 * 1500
	for seq := range uint64(reports / 3) {
		step := int64(3 * seq)
		mustAppend(t, h, seq+1, report("s-1", int32(seq%7), step), report("s-1", 1, step+1), report("s-1", 2, step+2))
		if seq%400 == 399 {
			mustFlush(t, h) // written as blocks; the last ones are only in memory
		}
	}
	all := readAll(t, h, "s-1", nil)
	for n := int64(0); n <= reports+1; n += 1 + n%211 {
		var got []entry
		err := h.ReadAfter(t.Context(), "s-1", n, func(trial int32, r *outbidv1.Report) error {
			got = append(got, entry{trial, r})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		same(t, all[min(n, reports):], got)
	}
}
