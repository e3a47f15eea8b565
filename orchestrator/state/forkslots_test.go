package state_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

func forksBegan(start *outbidv1.Checkpoint, forks int32) *event {
	return &event{Kind: &outbidv1.Event_ForksBegan{ForksBegan: &outbidv1.ForksBegan{
		Sweep: "s-1", Start: start, Forks: forks, Ends: timestamppb.New(at().Add(time.Minute)),
	}}}
}

func shared(leaseID uint64, device int32, share int64) *event {
	e := granted(0, leaseID, device)
	g := e.GetLeaseGranted()
	g.Fork, g.Share, g.Rate = device == 1, share, float64(share)/10
	return e
}

func ordered(attempt int32) *event {
	return &event{Kind: &outbidv1.Event_ConsolidationOrdered{ConsolidationOrdered: &outbidv1.ConsolidationOrdered{
		Sweep: "s-1", Node: "n", Boot: "b", Attempt: attempt,
	}}}
}

func forksEnded(step int64, key string, steps map[uint64]int64) *event {
	e := &outbidv1.ForksEnded{Sweep: "s-1", Step: step, Reason: "averaged", Again: outbidv1.ForkAgain_FORK_AGAIN_LATER}
	if key != "" {
		e.Checkpoint = &outbidv1.Checkpoint{Key: key, Step: step}
	}
	for _, id := range []uint64{2, 3} {
		if n, counts := steps[id]; counts {
			e.Forks = append(e.Forks, &outbidv1.ForkSteps{LeaseId: id, Steps: n})
		}
	}
	return &event{Kind: &outbidv1.Event_ForksEnded{ForksEnded: e}}
}

// slotted returns a trial whose two forks have shares of six and four steps from step 2 on.
func slotted(t *testing.T) (*state.State, *state.Sweep, *state.Trial) {
	t.Helper()
	st := state.New()
	apply(t, st, submitted(spec(1)), joined(4), created(0), targeted(0, 20), granted(0, 1, 3), began(1, 0), said(1, 1, 2, .9),
		savedUnder(1, "start", 2), leaseEnded(0, 1))
	tr := st.Sweeps["s-1"].Trials[0]
	apply(t, st, forksBegan(tr.From(), 2), shared(2, 0, 6), shared(3, 1, 4), began(2, 2), began(3, 2))
	return st, st.Sweeps["s-1"], tr
}

// The steps of forks add up to those of the trial. Steps that a fork has not saved when its lease ends are
// subtracted. The trial continues from the average.
func TestAForkSlot(t *testing.T) {
	t.Parallel()
	st, s, tr := slotted(t)
	if a, b := tr.Held(2), tr.Held(3); tr.Until(a) != 8 || tr.Until(b) != 6 || a.Step != 2 || tr.Step != 2 || !slices.Equal(s.Forked, []int32{0}) {
		t.Fatalf("they train until %d and %d from %d; the trial is at %d; forked: %v", tr.Until(a), tr.Until(b), a.Step, tr.Step, s.Forked)
	}
	if all := st.Forked(); len(all) != 1 || all[0] != s || tr.Consolidating() {
		t.Errorf("forked sweeps: %d", len(all))
	}
	first, second := said(2, 1, 5, .8), said(3, 1, 7, .7) // each report has the trial's step as far as its fork knows it, and the fork's own step
	first.GetTrialReported().GetReport().ForkStep, second.GetTrialReported().GetReport().ForkStep = 5, 4
	apply(t, st, first, second)
	if tr.Step != 2+3+2 || s.Steps != 7 {
		t.Errorf("the trial is at %d and the sweep did %d steps", tr.Step, s.Steps)
	}
	apply(t, st, savedUnder(2, "a", 5), savedUnder(3, "b", 3))
	kept := func(key string) bool {
		return slices.ContainsFunc(tr.Checkpoints, func(c *outbidv1.Checkpoint) bool { return c.GetKey() == key }) &&
			!slices.ContainsFunc(s.Droppable(tr), func(c *outbidv1.Checkpoint) bool { return c.GetKey() == key })
	}
	for _, key := range []string{"start", "a", "b"} {
		if !kept(key) {
			t.Errorf("%s may be dropped while the fork slot needs it", key)
		}
	}
	apply(t, st, leaseEnded(0, 2), savedUnder(2, "late", 6), leaseEnded(0, 3))
	if tr.Step != 2+3+1 || !tr.Consolidating() {
		t.Errorf("after the forks it is at %d; consolidating: %t", tr.Step, tr.Consolidating())
	}
	if part := tr.Slot.Parts[0]; part.Saved.GetKey() != "a" || part.Forecast != .6 || len(part.Places) != 1 {
		t.Errorf("what came after the lease counts: %+v", part)
	}
	apply(t, st, ordered(1))
	if v := st.TrialView(s, tr).GetRound(); v.GetConsolidatesOn() != "n" || v.GetAttempt() != 1 || v.GetForks()[0].GetState() != "ended" {
		t.Errorf("it is seen as %v", v)
	}
	apply(t, st, forksEnded(6, "avg", map[uint64]int64{2: 3, 3: 1}))
	if tr.From().GetKey() != "avg" || tr.Step != 6 || tr.Slot != nil || len(s.Forked) != 0 || len(st.Forked()) != 0 {
		t.Errorf("it goes on from %v at %d; forked: %v", tr.From(), tr.Step, s.Forked)
	}
	m := tr.Merges[0]
	if m.GetRound() != 1 || m.GetAveragedOn() != "n" || m.GetForks()[0].GetCounted() != 3 || m.GetForks()[1].GetCounted() != 1 || m.GetStep() != 6 {
		t.Errorf("the fork slot is kept as %v", m)
	}
	// A trial that makes progress as one process may be forked again; a trial that only restarts may not.
	apply(t, st, granted(0, 4, 0), began(4, 6))
	if tr.ForkAgain != outbidv1.ForkAgain_FORK_AGAIN_LATER {
		t.Error("it may be forked again before it got any further")
	}
	apply(t, st, said(4, 1, 7, .5))
	if tr.ForkAgain != outbidv1.ForkAgain_FORK_AGAIN_UNSPECIFIED {
		t.Error("it may not be forked again although it got further")
	}
	for name, broken := range map[string]*event{
		"an order without a fork slot": ordered(2),
		"an end without a fork slot":   forksEnded(9, "", nil),
		"a share without a fork slot":  shared(5, 1, 3),
		"a fork that has no leader":    forksEnded(9, "x", map[uint64]int64{1: 1}),
	} {
		if err := st.Apply(at(), broken); !errors.Is(err, state.ErrBroken) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestForkSlotsThatCannotBe(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]*event{
		"a fork slot within another":  forksBegan(nil, 2),
		"a fork without a share":      shared(4, 2, 0),
		"a share of less than a step": shared(4, 2, -1),
		"consolidated while it runs":  ordered(1),
		"ended while it runs":         forksEnded(3, "avg", nil),
	} {
		st, _, _ := slotted(t)
		if err := st.Apply(at(), tc); !errors.Is(err, state.ErrBroken) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The newest fork slots of a trial are kept. A slot with one fork was not averaged; a slot without a saved step
// leaves the trial where it was.
func TestForkSlotsThatAreKept(t *testing.T) {
	t.Parallel()
	st, _, tr := slotted(t)
	apply(t, st, leaseEnded(0, 2), leaseEnded(0, 3), forksEnded(2, "", nil))
	if tr.From().GetKey() != "start" || tr.Step != 2 || tr.Merges[0].GetAveragedOn() != "" || tr.Merges[0].GetForks()[0].GetCounted() != 0 {
		t.Errorf("it goes on from %v at %d: %v", tr.From(), tr.Step, tr.Merges)
	}
	for i := range 9 {
		id := uint64(4 + i)
		apply(t, st, forksBegan(tr.From(), 1), shared(id, 0, 6), began(id, 2), leaseEnded(0, id), forksEnded(2, "", map[uint64]int64{1: 0}))
	}
	if n := len(tr.Merges); n != 8 || tr.Merges[0].GetRound() != 3 || tr.Merges[7].GetRound() != 10 || tr.Merges[7].GetAveragedOn() != "" {
		t.Errorf("%d fork slots are kept, the first is %v", n, tr.Merges[0])
	}
}

func judged(verdict outbidv1.MergeVerdict, key, best string) *event {
	return &event{Kind: &outbidv1.Event_MergeJudged{MergeJudged: &outbidv1.MergeJudged{
		Sweep: "s-1", Verdict: verdict, Round: 1, Key: key, Best: .5, Metric: new(.6),
		Checkpoint: &outbidv1.Checkpoint{Key: best, Step: 6}, Again: outbidv1.ForkAgain_FORK_AGAIN_LATER,
	}}}
}

const (
	awaited   = outbidv1.MergeVerdict_MERGE_VERDICT_PENDING
	keptIt    = outbidv1.MergeVerdict_MERGE_VERDICT_KEPT
	droppedIt = outbidv1.MergeVerdict_MERGE_VERDICT_DROPPED
)

// An average on probation is kept, or is replaced by the best fork's checkpoint; then steps trained from it do not
// count.
func TestAnAverageIsJudged(t *testing.T) {
	t.Parallel()
	average := func(t *testing.T) (*state.State, *state.Sweep, *state.Trial) {
		st, s, tr := slotted(t)
		apply(t, st, savedUnder(2, "a", 5), savedUnder(3, "b", 3), leaseEnded(0, 2), leaseEnded(0, 3),
			forksEnded(6, "avg", map[uint64]int64{2: 3, 3: 1}), judged(awaited, "avg", "a"))
		return st, s, tr
	}
	st, s, tr := average(t)
	if tr.Probation == nil || tr.Merges[0].GetVerdict() != awaited || slices.ContainsFunc(s.Droppable(tr), func(c *outbidv1.Checkpoint) bool {
		return c.GetKey() == "a"
	}) {
		t.Errorf("on probation: %v; it keeps %v", tr.Probation, tr.Checkpoints)
	}
	for name, e := range map[string]*event{
		"another is judged":     judged(keptIt, "b", "a"),
		"another is to be":      judged(awaited, "b", "a"),
		"it is not said how it": judged(outbidv1.MergeVerdict_MERGE_VERDICT_UNSPECIFIED, "avg", "a"),
	} {
		other, _, _ := average(t)
		if err := other.Apply(at(), e); !errors.Is(err, state.ErrBroken) {
			t.Errorf("%s: %v", name, err)
		}
	}
	apply(t, st, judged(keptIt, "avg", "a"))
	if tr.Probation != nil || tr.From().GetKey() != "avg" || tr.DroppedMerges != 0 || tr.Merges[0].GetMetric() != .6 || tr.Merges[0].GetBestMetric() != .5 {
		t.Errorf("kept: %v, it goes on from %v: %v", tr.Probation, tr.From(), tr.Merges[0])
	}
	if err := st.Apply(at(), judged(keptIt, "avg", "a")); !errors.Is(err, state.ErrBroken) {
		t.Errorf("judged twice: %v", err)
	}

	st, s, tr = average(t)
	apply(t, st, granted(0, 4, 0), began(4, 6), said(4, 1, 9, .6), savedUnder(4, "since", 8))
	apply(t, st, judged(droppedIt, "avg", "a"))
	if tr.From().GetKey() != "a" || tr.Step != 6 || tr.DroppedMerges != 1 || !tr.Held(4).Void || tr.Checkpoints[0].GetKey() != "since" {
		t.Errorf("dropped: it goes on from %v at %d of %v", tr.From(), tr.Step, tr.Checkpoints)
	}
	if tr.ForkAgain != outbidv1.ForkAgain_FORK_AGAIN_LATER || tr.Merges[0].GetVerdict() != droppedIt || len(s.Forked) != 0 {
		t.Errorf("dropped: it may be forked %v; %v", tr.ForkAgain, tr.Merges[0])
	}
}
