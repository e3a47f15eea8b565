package state_test

import (
	"fmt"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

func failed(n int32, kind outbidv1.FailureKind) *outbidv1.ForkFailed {
	return &outbidv1.ForkFailed{Sweep: "s-1", Trial: n, LeaseId: uint64(n + 1), Kind: kind, Detail: "exit status 1"}
}

func failing(f *outbidv1.ForkFailed) *outbidv1.Event {
	return &outbidv1.Event{Kind: &outbidv1.Event_ForkFailed{ForkFailed: f}}
}

// lost is the loss of a node on which a trial had reached a step.
func lost(n, losses int32, step int64, suspected bool) *outbidv1.Event {
	f := failed(n, outbidv1.FailureKind_FAILURE_KIND_NODE_LOST)
	f.Losses, f.Step, f.Suspected = losses, &step, suspected
	return failing(f)
}

const processFailed = outbidv1.FailureKind_FAILURE_KIND_ERROR

// A trial whose process failed is restarted. The failure that ended it was not followed by a restart.
func TestFailuresAndRestarts(t *testing.T) {
	t.Parallel()
	atStep := failed(0, processFailed)
	atStep.Step = proto.Int64(2)
	unreadable := failed(0, outbidv1.FailureKind_FAILURE_KIND_CHECKPOINT)
	unreadable.Unreadable, unreadable.Step = "a", proto.Int64(2)
	fails := ended(0, outbidv1.TrialState_TRIAL_STATE_FAILED)
	for name, tc := range map[string]struct {
		events         []*outbidv1.Event
		restarts, seen int32
		last           *outbidv1.ForkFailed
		otherwise      bool
	}{
		"it failed, of which no step is known": {[]*outbidv1.Event{failing(failed(0, processFailed))}, 1, 1, nil, false},
		"it failed at a step":                  {[]*outbidv1.Event{failing(atStep)}, 1, 1, atStep, false},
		"a checkpoint cannot be read":          {[]*outbidv1.Event{failing(unreadable)}, 0, 0, nil, false},
		"its node was lost":                    {[]*outbidv1.Event{lost(0, 1, 2, false)}, 0, 0, nil, false},
		"it failed for the last time":          {[]*outbidv1.Event{failing(atStep), leaseEnded(0, 1), fails}, 1, 0, atStep, false},
		"it was restarted and failed for another reason": {
			[]*outbidv1.Event{failing(atStep), leaseEnded(0, 1), granted(0, 2, 0), fails}, 1, 1, atStep, true,
		},
		"it failed without a restart": {[]*outbidv1.Event{fails}, 0, 0, nil, true},
		"it completed after a failure": {
			[]*outbidv1.Event{failing(atStep), ended(0, outbidv1.TrialState_TRIAL_STATE_COMPLETED)}, 1, 1, atStep, false,
		},
	} {
		live, _ := running(t, spec(1), 1)
		apply(t, live, tc.events...)
		for _, st := range []*state.State{live, restore(t, live)} {
			s := st.Sweeps["s-1"]
			tr := s.Trials[0]
			if tr.Restarts != tc.restarts || tr.FailedOtherwise != tc.otherwise || !proto.Equal(tr.LastFailure, tc.last) {
				t.Errorf("%s: %d restarts, last %v, failed otherwise %t", name, tr.Restarts, tr.LastFailure, tr.FailedOtherwise)
			}
			if got := st.TrialView(s, tr).GetRestarts(); got != tc.seen {
				t.Errorf("%s: %d restarts are shown, want %d", name, got, tc.seen)
			}
		}
	}
}

// A failure repeats the last one if kind, detail and step are the same.
func TestRepeatedFailures(t *testing.T) {
	t.Parallel()
	st, s := running(t, spec(1), 1)
	again := failed(0, processFailed)
	again.Step = proto.Int64(2)
	if s.Trials[0].Repeats(again) {
		t.Error("the first failure repeats one")
	}
	apply(t, st, failing(proto.CloneOf(again)))
	other, step, words := proto.CloneOf(again), proto.CloneOf(again), proto.CloneOf(again)
	other.Kind, step.Step, words.Detail = outbidv1.FailureKind_FAILURE_KIND_HANG, proto.Int64(3), "exit status 2"
	for name, tc := range map[string]struct {
		failure *outbidv1.ForkFailed
		want    bool
	}{"the same": {again, true}, "another kind": {other, false}, "a step on": {step, false}, "other words": {words, false}} {
		if got := s.Trials[0].Repeats(tc.failure); got != tc.want {
			t.Errorf("%s: repeats %t", name, got)
		}
	}
}

// A trial that lost nodes is a suspect until it saves or reaches its target at a higher step, or has trained for
// long.
func TestASuspectIsCleared(t *testing.T) {
	t.Parallel()
	save := func(step int64) *outbidv1.Event { return savedUnder(2, "a", step) }
	type timed struct {
		seconds int
		event   *outbidv1.Event
	}
	for name, tc := range map[string]struct {
		events  []timed
		cleared bool
	}{
		"nothing happened":                       {nil, false},
		"it saved further on, after a minute":    {[]timed{{160, save(3)}}, true},
		"a little before that":                   {[]timed{{159, save(3)}}, false},
		"it saved at the step where it was lost": {[]timed{{200, save(2)}}, false},
		"it saved before it":                     {[]timed{{200, save(1)}}, false},
		"it reached its target at once":          {[]timed{{100, reached(0, 3)}}, true},
		"it reported for ten minutes":            {[]timed{{700, says(0, 1, .5)}}, true},
		"a little less":                          {[]timed{{699, says(0, 3, .5)}}, false},
		"one that is over saved further on":      {[]timed{{200, savedUnder(1, "a", 3)}}, false},
		"it ended":                               {[]timed{{110, ended(0, outbidv1.TrialState_TRIAL_STATE_STOPPED)}}, false},
	} {
		live, s := running(t, spec(1), 1)
		apply(t, live, begins(0, 0), says(0, 2, .5), lost(0, 2, 2, true), leaseEnded(0, 1))
		applyAt(t, live, 100, granted(0, 2, 0))
		for _, e := range tc.events {
			switch k := e.event.GetKind().(type) {
			case *outbidv1.Event_TrialReported:
				k.TrialReported.LeaseId = 2
			case *outbidv1.Event_TrialReached:
				k.TrialReached.LeaseId = 2
			}
			applyAt(t, live, e.seconds, e.event)
		}
		tr := s.Trials[0]
		if tr.Suspected == tc.cleared || (tr.NodeLosses == 0) != tc.cleared || tr.LostStep != 2 {
			t.Errorf("%s: suspected %t after %d losses at step %d", name, tr.Suspected, tr.NodeLosses, tr.LostStep)
		}
		want := 1
		if tc.cleared || tr.Done() {
			want = 0
		}
		for _, st := range []*state.State{live, restore(t, live)} {
			if got := st.CountSuspects(); got != want || len(st.Suspects()) != want {
				t.Errorf("%s: %d suspects, want %d", name, got, want)
			}
		}
	}
}

// One loss alone does not make a trial a suspect, and a later loss does not clear a suspect.
func TestLossesAddUp(t *testing.T) {
	t.Parallel()
	st, s := running(t, spec(1), 1)
	tr := s.Trials[0]
	for i, step := range []struct {
		event     *outbidv1.Event
		losses    int32
		step      int64
		suspected bool
	}{
		{failing(failed(0, outbidv1.FailureKind_FAILURE_KIND_NODE_LOST)), 0, 0, false}, // as earlier versions recorded it
		{lost(0, 1, 5, false), 1, 5, false},
		{lost(0, 2, 3, true), 2, 5, true},
		{lost(0, 3, 6, false), 3, 6, true},
		{failing(failed(0, outbidv1.FailureKind_FAILURE_KIND_NODE_LOST)), 3, 6, true},
	} {
		apply(t, st, step.event)
		if tr.NodeLosses != step.losses || tr.LostStep != step.step || tr.Suspected != step.suspected || tr.Restarts != 0 {
			t.Errorf("loss %d: %d at step %d, suspected %t, %d restarts", i, tr.NodeLosses, tr.LostStep, tr.Suspected, tr.Restarts)
		}
	}
}

func TestSuspectsAreInOrder(t *testing.T) {
	t.Parallel()
	st := state.New()
	apply(t, st, joined(8))
	var want []string
	for i, sweep := range []string{"s-1", "s-2", "s-3"} {
		apply(t, st, submittedAs(sweep, ""))
		for n := range int32(2) {
			make, take := created(n), granted(n, uint64(2*i)+uint64(n)+1, int32(2*i)+n)
			make.GetTrialCreated().Sweep, take.GetLeaseGranted().Sweep = sweep, sweep
			apply(t, st, make, take)
			want = append(want, fmt.Sprintf("%s/%d", sweep, n))
		}
	}
	for i := 5; i >= 0; i-- { // the last first
		e := lost(int32(i%2), 2, 1, true)
		e.GetForkFailed().Sweep, e.GetForkFailed().LeaseId = fmt.Sprintf("s-%d", i/2+1), uint64(i+1)
		apply(t, st, e)
	}
	var got []string
	for _, s := range st.Suspects() {
		got = append(got, fmt.Sprintf("%s/%d", s.Sweep.ID, s.Trial.Number))
	}
	if !slices.Equal(got, want) {
		t.Errorf("suspects %v, want %v", got, want)
	}
}

// A report is superseded if a later fork started before its step.
func TestSupersededReports(t *testing.T) {
	t.Parallel()
	st := state.New()
	apply(t, st, submitted(spec(1)), joined(1), created(0))
	type fork struct{ from, to int64 }
	// Leases 1 to 5 start at a step and train to another. The third starts earliest, the fourth a little later.
	for i, f := range []fork{{0, 10}, {8, 12}, {2, 6}, {4, 20}, {20, 30}} {
		id := uint64(i + 1)
		apply(t, st, granted(0, id, 0), began(id, f.from), said(id, 1, f.to, .5), leaseEnded(0, id))
	}
	for _, tc := range []struct {
		lease uint64
		step  int64
		want  bool
	}{
		{0, 30, false}, // unknown lease
		{1, 2, false},
		{1, 3, true},
		{1, 10, true},
		{2, 9, true},
		{2, 12, true},
		{2, 2, false},
		{3, 4, false},
		{3, 5, true},
		{3, 6, true},
		{4, 5, false},
		{4, 20, false},
		{5, 30, false},
		{9, 1, false},
	} {
		for _, st := range []*state.State{st, restore(t, st)} {
			if got := st.Sweeps["s-1"].Trials[0].Superseded(&outbidv1.Report{LeaseId: tc.lease, Step: tc.step}); got != tc.want {
				t.Errorf("step %d under lease %d: superseded %t, of %v", tc.step, tc.lease, got, st.Sweeps["s-1"].Trials[0].Rollbacks)
			}
		}
	}
}
