package state_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// forked returns a trial that two forks train under leases 1 and 2. Trial 1 is trained by one process under lease 3.
func forked(t *testing.T) (*state.State, *state.Sweep, *state.Trial) {
	t.Helper()
	st := state.New()
	second := granted(0, 2, 1)
	second.GetLeaseGranted().Fork = true
	apply(t, st, submitted(spec(1)), joined(4), created(0), created(1), granted(0, 1, 0), second, granted(1, 3, 2),
		began(1, 0), began(2, 0))
	s := st.Sweeps["s-1"]
	return st, s, s.Trials[0]
}

func began(leaseID uint64, step int64) *outbidv1.Event {
	return &outbidv1.Event{Kind: &outbidv1.Event_ForkStarted{ForkStarted: &outbidv1.ForkStarted{
		Sweep: "s-1", LeaseId: leaseID, FromStep: step,
	}}}
}

func said(leaseID, seq uint64, step int64, loss float64) *outbidv1.Event {
	return &outbidv1.Event{Kind: &outbidv1.Event_TrialReported{TrialReported: &outbidv1.TrialReported{
		Sweep: "s-1", LeaseId: leaseID, Report: &outbidv1.Report{Seq: seq, Step: step, Metrics: map[string]float64{"loss": loss}, LeaseId: leaseID},
	}}}
}

func savedUnder(leaseID uint64, key string, step int64) *outbidv1.Event {
	e := saved(0, key, step, .5)
	e.GetCheckpointSaved().GetCheckpoint().LeaseId = leaseID
	return e
}

// Each fork counts its own steps and reports; those of the leading fork count for the trial.
func TestForksCountTheirOwnSteps(t *testing.T) {
	t.Parallel()
	st, s, tr := forked(t)
	apply(t, st, said(1, 1, 1, .9), said(2, 1, 1, .1), said(2, 2, 2, .05))
	if a, b := tr.Held(1), tr.Held(2); tr.Lead() != a || a.Step != 1 || b.Step != 2 || a.LastReportSeq != 1 || b.LastReportSeq != 2 {
		t.Errorf("lease 1 is at step %d, lease 2 at step %d", a.Step, b.Step)
	}
	if tr.Step != 1 || tr.Best != .9 || tr.Last.GetLeaseId() != 1 || s.Steps != 1 {
		t.Errorf("the trial is at step %d with %g, the sweep did %d", tr.Step, tr.Best, s.Steps)
	}
	if got := tr.State; got != outbidv1.TrialState_TRIAL_STATE_RUNNING || !slices.Equal(s.Running, []int32{0, 1}) || s.Counts[got] != 2 {
		t.Errorf("it is %s, and %v run", got, s.Running)
	}
	if v := st.TrialView(s, tr); v.GetNode() != "n" || !slices.Equal(v.GetDevices(), []int32{0}) {
		t.Errorf("it is seen on %s %v", v.GetNode(), v.GetDevices())
	}
}

// One fork ends and the other continues. The trial waits for devices again when the last one has ended.
func TestForksEndIndependently(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		ends      uint64
		lead      uint64
		step      int64
		running   []int32
		rollbacks int
	}{
		"the one that follows": {2, 1, 3, []int32{0, 1}, 0},
		"the lead":             {1, 2, 2, []int32{0, 1}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st, s, tr := forked(t)
			apply(t, st, said(1, 1, 3, .9), said(2, 1, 2, .1), leaseEnded(0, tc.ends))
			if l := tr.Lead(); len(tr.Leases) != 1 || l.ID != tc.lead || tr.Step != tc.step || len(tr.Rollbacks) != tc.rollbacks {
				t.Errorf("lease %d leads at step %d, with rollbacks %v", l.ID, tr.Step, tr.Rollbacks)
			}
			if !slices.Equal(s.Running, tc.running) || st.Nodes["n"].Holders[tc.ends-1] != nil || st.Nodes["n"].Holders[tc.lead-1] == nil {
				t.Errorf("%v run, and %v hold devices", s.Running, st.Nodes["n"].Holders)
			}
			apply(t, st, said(tc.lead, 2, 4, .2))
			if tr.Step != 4 || tr.Last.GetLeaseId() != tc.lead {
				t.Errorf("it is at step %d by lease %d", tr.Step, tr.Last.GetLeaseId())
			}
			// Later messages of the fork that has ended are ignored.
			before := st.Snapshot()
			for _, e := range []*outbidv1.Event{said(tc.ends, 5, 9, .01), leaseEnded(0, tc.ends), began(tc.ends, 0)} {
				if err := st.Apply(at(), e); !errors.Is(err, state.ErrBroken) {
					t.Errorf("%v was folded in: %v", e, err)
				}
			}
			if diff := cmp.Diff(before, st.Snapshot(), protocmp.Transform()); diff != "" {
				t.Error(diff)
			}
			apply(t, st, leaseEnded(0, tc.lead))
			if state.TrialWord(tr.State) != "queued" || !slices.Equal(s.Running, []int32{1}) || tr.LeaseCount != 2 {
				t.Errorf("it is %s after both, and %v run", state.TrialWord(tr.State), s.Running)
			}
		})
	}
}

// A trial that was paused or has ended remains so while its forks end one by one.
func TestAnEndedTrialsForksEnd(t *testing.T) {
	t.Parallel()
	st, s, tr := forked(t)
	apply(t, st, paused(0), leaseEnded(0, 1))
	if state.TrialWord(tr.State) != "running" || !tr.Pausing {
		t.Fatalf("it is %s with a fork left", state.TrialWord(tr.State))
	}
	apply(t, st, leaseEnded(0, 2))
	if state.TrialWord(tr.State) != "paused" || tr.Pausing || len(s.Queued) != 0 {
		t.Fatalf("it is %s without forks", state.TrialWord(tr.State))
	}
}

// The tuner gets only the events of the leading fork.
func TestTheTunerGetsEventsOfTheLead(t *testing.T) {
	t.Parallel()
	st, _, _ := forked(t)
	reached := func(leaseID uint64) *outbidv1.Event {
		return &outbidv1.Event{Kind: &outbidv1.Event_TrialReached{TrialReached: &outbidv1.TrialReached{Sweep: "s-1", LeaseId: leaseID, Step: 3}}}
	}
	for _, tc := range []struct {
		event *outbidv1.Event
		news  bool
	}{{said(2, 1, 1, .1), false}, {said(1, 1, 1, .1), true}, {said(2, 2, 2, .1), false}, {reached(2), false}, {reached(1), true}} {
		change, err := st.Fold(at(), tc.event)
		if err != nil || change.News != tc.news || change.Lease == nil {
			t.Errorf("%v: news %t under lease %v, %v", tc.event, change.News, change.Lease, err)
		}
	}
	tr := st.Sweeps["s-1"].Trials[0]
	if !tr.AtTarget || !tr.Held(2).AtTarget {
		t.Errorf("at target: %t, %t", tr.AtTarget, tr.Held(2).AtTarget)
	}
}

// The trial continues from the leading fork's checkpoint. The newest checkpoint of each other fork is kept while its
// lease is held.
func TestCheckpointsOfForks(t *testing.T) {
	t.Parallel()
	st, s, tr := forked(t)
	apply(t, st, savedUnder(1, "a1", 1), savedUnder(2, "b1", 1), savedUnder(1, "a2", 2), savedUnder(2, "b2", 2), savedUnder(2, "b3", 3))
	if tr.From().GetKey() != "a2" || tr.SavedBy(tr.Held(1)).GetKey() != "a2" || tr.SavedBy(tr.Held(2)).GetKey() != "b3" {
		t.Errorf("it goes on from %s of %v", tr.From().GetKey(), tr.Checkpoints)
	}
	var drop []string
	for _, c := range s.Droppable(tr) {
		drop = append(drop, c.GetKey())
	}
	if slices.Contains(drop, "b3") || slices.Contains(drop, "a2") || !slices.Contains(drop, "b1") {
		t.Errorf("%v may be dropped", drop)
	}
	apply(t, st, leaseEnded(0, 2))
	if !slices.ContainsFunc(s.Droppable(tr), func(c *outbidv1.Checkpoint) bool { return c.GetKey() == "b2" }) || tr.From().GetKey() != "a2" {
		t.Errorf("it goes on from %s and keeps %v", tr.From().GetKey(), tr.Checkpoints)
	}
}

func TestForksAreRestored(t *testing.T) {
	t.Parallel()
	st, _, _ := forked(t)
	apply(t, st, said(1, 1, 3, .9), said(2, 1, 2, .1), savedUnder(2, "b", 2))
	again, err := state.Restore(proto.CloneOf(st.Snapshot()))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range []*outbidv1.Event{said(2, 2, 5, .3), leaseEnded(0, 1), said(2, 3, 6, .3)} {
		apply(t, st, e)
		apply(t, again, proto.CloneOf(e))
		if diff := cmp.Diff(st.Snapshot(), again.Snapshot(), protocmp.Transform()); diff != "" {
			t.Fatal(diff)
		}
	}
	if tr := again.Sweeps["s-1"].Trials[0]; tr.Step != 6 || tr.Lead().ID != 2 {
		t.Errorf("it is at step %d under lease %d", tr.Step, tr.Lead().ID)
	}
}

// A grant in addition to another is marked as a fork, and one for a waiting trial is not.
func TestOnlyAForkIsGrantedBesideAnother(t *testing.T) {
	t.Parallel()
	st, _, _ := forked(t)
	if err := st.Apply(at(), granted(1, st.NextLease, 3)); !errors.Is(err, state.ErrBroken) {
		t.Errorf("a trial that runs was granted another lease: %v", err)
	}
	apply(t, st, leaseEnded(1, 3))
	e := granted(1, st.NextLease, 3)
	e.GetLeaseGranted().Fork = true
	if err := st.Apply(at(), e); !errors.Is(err, state.ErrBroken) {
		t.Errorf("a trial that waits was granted a fork: %v", err)
	}
}

// A paused trial continues from where its leading fork was, even if another fork ends later and saves less.
func TestTheSlowerForkEndsLast(t *testing.T) {
	t.Parallel()
	st, _, tr := forked(t)
	apply(t, st, said(1, 1, 3, .9), savedUnder(1, "lead", 3), paused(0))
	for _, lease := range []uint64{1, 2} {
		apply(t, st, &outbidv1.Event{Kind: &outbidv1.Event_LeaseRevoked{LeaseRevoked: &outbidv1.LeaseRevoked{
			Sweep: "s-1", LeaseId: lease, How: outbidv1.RevokeKind_REVOKE_KIND_PAUSE,
		}}})
	}
	apply(t, st, leaseEnded(0, 1), savedUnder(2, "slower", 2))
	if got := tr.From().GetKey(); got != "lead" || tr.Step != 3 {
		t.Errorf("it is at step %d, and goes on from %q", tr.Step, got)
	}
	apply(t, st, savedUnder(2, "further", 4), leaseEnded(0, 2))
	if got := tr.From().GetKey(); got != "further" || state.TrialWord(tr.State) != "paused" {
		t.Errorf("it is %s, and goes on from %q", state.TrialWord(tr.State), got)
	}
}
