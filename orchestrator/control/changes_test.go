package control_test

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/outbid-dev/outbid/orchestrator/control"
	"github.com/outbid-dev/outbid/orchestrator/ledger"
	"github.com/outbid-dev/outbid/orchestrator/policy/baseline"
	"github.com/outbid-dev/outbid/orchestrator/sim"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// savings is a ledger that records what a server finds that starts after each snapshot.
type savings struct {
	*ledger.Memory
	mu            sync.Mutex
	all           []kept
	tried, failed int
	// fail makes the nth save fail, of a whole snapshot or of changes, if it is not nil.
	fail func(n int, whole bool) error
}

// kept is a snapshot with the changes since then.
type kept struct {
	seq     uint64
	whole   []byte
	changes [][]byte
}

func (s *savings) save(ctx context.Context, whole bool, save func() error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tried++
	if s.fail != nil {
		if err := s.fail(s.tried, whole); err != nil {
			s.failed++
			return err
		}
	}
	err := save()
	if err != nil {
		return err
	}
	var k kept
	if k.seq, k.whole, err = s.LoadSnapshot(ctx); err == nil {
		k.changes, err = s.LoadChanges(ctx, k.seq)
	}
	s.all = append(s.all, k)
	return err
}

func (s *savings) SaveSnapshot(ctx context.Context, seq uint64, data []byte) error {
	return s.save(ctx, true, func() error { return s.Memory.SaveSnapshot(ctx, seq, data) })
}

func (s *savings) SaveChanges(ctx context.Context, since, seq uint64, data []byte) error {
	return s.save(ctx, false, func() error { return s.Memory.SaveChanges(ctx, since, seq, data) })
}

func (s *savings) taken() []kept {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.all)
}

// begun is a ledger that begins with a snapshot.
type begun struct {
	*ledger.Memory
	from kept
}

func (b begun) LoadSnapshot(context.Context) (uint64, []byte, error) {
	return b.from.seq, b.from.whole, nil
}

func (b begun) LoadChanges(context.Context, uint64) ([][]byte, error) { return b.from.changes, nil }

// encodedFrom returns the state of a ledger that begins with a snapshot.
func encodedFrom(t *testing.T, record *ledger.Memory, from kept) []byte {
	t.Helper()
	core, err := control.Restore(t.Context(), settings(), baseline.DRF{}, begun{record.Another(), from}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return must(core.Snapshot())
}

// trainer does the work of a node with three devices: each trial reports once and ends.
type trainer struct {
	seq  uint64
	done map[uint64]bool
}

// work works until a sweep has ended.
func (n *trainer) work(t *testing.T, r *running, spec *outbidv1.SweepSpec) {
	t.Helper()
	id, err := r.Submit(t.Context(), spec, "me", "")
	if err != nil {
		t.Fatal(err)
	}
	info := &outbidv1.NodeInfo{Devices: []*outbidv1.Device{{Type: "cpu"}, {Index: 1, Type: "cpu"}, {Index: 2, Type: "cpu"}}}
	var messages []*outbidv1.UplinkMessage
	for {
		r.Uplink(&outbidv1.Uplink{Node: "n", Boot: "b", Info: info, FirstSeq: n.seq + 1, Messages: messages})
		n.seq += uint64(len(messages))
		s, err := r.Sweep(id)
		if err != nil {
			t.Fatal(err)
		}
		if s.GetState() == outbidv1.SweepState_SWEEP_STATE_DONE {
			return
		}
		messages = nil
		for _, a := range (<-r.orders).GetAssignments() {
			f := a.GetFork()
			if n.done[f.GetLeaseId()] {
				continue
			}
			n.done[f.GetLeaseId()] = true
			messages = append(messages, report(f, 1, 1), &outbidv1.UplinkMessage{Fork: f, Kind: &outbidv1.UplinkMessage_Ended{
				Ended: &outbidv1.ForkEnded{Outcome: outbidv1.ForkOutcome_FORK_OUTCOME_FINISHED, Step: 1},
			}})
		}
	}
}

// A server that is killed after any of its snapshots leaves one from which the ledger leads to the same state as from its
// beginning. Most of them are changes, which are merged before they are larger than their snapshot.
func TestChangesLeadToTheSameState(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(n int, whole bool) error{
		"all are saved":              nil,
		"some changes are not saved": func(n int, whole bool) error { return failIf(!whole && n%2 == 0) },
		"merges are not saved":       func(_ int, whole bool) error { return failIf(whole) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			record := &savings{Memory: ledger.NewMemory()}
			r := startLoopOn(t, record, &reports{}, baseline.DRF{})
			node := &trainer{done: map[uint64]bool{}}
			node.work(t, r, sim.Sweep("first", "min", 30, sim.Tuner("asha", map[string]int64{"max_steps": 9})))
			r.end(t)
			before := len(record.all)
			record.fail = fail // from now on
			r = startLoopOn(t, record, &reports{}, baseline.DRF{})
			node.work(t, r, sim.Sweep("s", "min", 1500, sim.Tuner("random", nil)))
			r.end(t)
			want, all := encodedFrom(t, record.Memory, kept{}), record.taken()
			var changes, merges int
			for i, k := range all {
				if i >= before && len(k.changes) > 0 {
					changes++
				}
				if i >= before && all[i-1].seq < k.seq && len(all[i-1].changes) > 0 {
					merges++
				}
				if got := encodedFrom(t, record.Memory, k); !bytes.Equal(got, want) {
					t.Fatalf("from the snapshot of batch %d with %d changes another state follows", k.seq, len(k.changes))
				}
			}
			if changes < 2 || (merges == 0) != (name == "merges are not saved") || (record.failed > 0) != (fail != nil) {
				t.Errorf("%d changes were saved, %d merged, %d not saved", changes, merges, record.failed)
			}
			// The next server continues from the same state.
			next := &savings{Memory: record.Another()}
			again := startLoopOn(t, next, &reports{}, baseline.DRF{})
			node.work(t, again, sim.Sweep("last", "min", 50, sim.Tuner("random", nil)))
			again.end(t)
			want, all = encodedFrom(t, record.Memory, kept{}), next.taken()
			for _, k := range all {
				if got := encodedFrom(t, record.Memory, k); !bytes.Equal(got, want) {
					t.Fatalf("after a restart another state follows from the snapshot of batch %d with %d changes", k.seq, len(k.changes))
				}
			}
			if len(all) == 0 {
				t.Error("the next server has saved nothing")
			}
		})
	}
}

func failIf(fails bool) error {
	if fails {
		return context.DeadlineExceeded
	}
	return nil
}

// unsaved is a ledger without snapshots.
type unsaved struct{ *ledger.JetStream }

func (unsaved) LoadSnapshot(context.Context) (uint64, []byte, error) { return 0, nil, nil }

// A server ends with changes in NATS, from which the next one continues.
func TestChangesInNATS(t *testing.T) {
	t.Parallel()
	nc := startNATS(t)
	node := &trainer{done: map[uint64]bool{}}
	found := 0
	for range 9 { // the first server saves the whole state; a later one may have merged its changes
		r := startLoop(t, nc, &reports{})
		node.work(t, r, sim.Sweep("s", "min", 30, sim.Tuner("random", nil)))
		if _, err := r.Submit(t.Context(), sim.Sweep("waits", "min", 1, sim.Tuner("random", nil)), "me", ""); err != nil {
			t.Fatal(err)
		}
		r.end(t)
		l, err := ledger.OpenJetStream(t.Context(), nc, ledger.Config{})
		if err != nil {
			t.Fatal(err)
		}
		seq, _, err := l.LoadSnapshot(t.Context())
		if err != nil || seq == 0 {
			t.Fatalf("the snapshot is of batch %d: %v", seq, err)
		}
		changes, err := l.LoadChanges(t.Context(), seq)
		if err != nil {
			t.Fatal(err)
		}
		found += len(changes)
		var encoded [][]byte
		for _, from := range []ledger.Ledger{l, unsaved{l}} {
			core, err := control.Restore(t.Context(), settings(), baseline.DRF{}, from, nil)
			if err != nil {
				t.Fatal(err)
			}
			encoded = append(encoded, must(core.Snapshot()))
		}
		if !bytes.Equal(encoded[0], encoded[1]) {
			t.Error("another state follows from the changes than from the ledger")
		}
	}
	if found == 0 {
		t.Error("no server saved changes")
	}
}

// Changes that do not continue a snapshot are left out if they are since another state, and an error if they are damaged.
func TestChangesOfAnotherStateAreLeftOut(t *testing.T) {
	t.Parallel()
	b := newBench(t, 4, sim.Sweep("s", "min", 40, sim.Tuner("random", nil)))
	freeze := func() (control.Frozen, []byte) {
		f, err := b.core.Freeze()
		if err != nil {
			t.Fatal(err)
		}
		return f, must(f.Encode())
	}
	first, whole := freeze()
	b.work()
	second, _ := freeze()
	b.work()
	changes := func(since control.Frozen) []byte {
		f, err := b.core.FreezeSince(since.Saved())
		if err != nil {
			t.Fatal(err)
		}
		return must(f.Encode())
	}
	right, other := changes(first), changes(second)
	b.turnOver(40)
	want := must(b.core.Snapshot())
	for name, c := range map[string]struct {
		changes [][]byte
		fails   bool
	}{
		"none":                    {},
		"since the snapshot":      {changes: [][]byte{right}},
		"since a later one":       {changes: [][]byte{other}},
		"twice":                   {changes: [][]byte{right, right}},
		"not changes":             {changes: [][]byte{whole}},
		"not a snapshot":          {changes: [][]byte{[]byte("no snapshot")}, fails: true},
		"cut":                     {changes: [][]byte{right[:len(right)-3]}, fails: true},
		"a whole is only changes": {fails: true},
	} {
		from := kept{first.Saved().Seq(), whole, c.changes}
		if name == "a whole is only changes" {
			from.whole = right
		}
		core, err := control.Restore(t.Context(), settings(), baseline.FIFO{}, begun{b.ledger.Another(), from}, nil)
		if (err != nil) != c.fails {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil && !bytes.Equal(must(core.Snapshot()), want) {
			t.Errorf("%s: another state follows", name)
		}
	}
}
