package state_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

func at() time.Time { return time.Unix(1_700_000_000, 0).UTC() }

func spec(best int32) *outbidv1.SweepSpec {
	return &outbidv1.SweepSpec{
		Name: "s", Metric: "loss", Mode: "min", Checkpoints: &outbidv1.Checkpoints{Best: best},
		Workload: &outbidv1.SweepSpec_Program{Program: &outbidv1.Program{Command: []string{"train"}}},
	}
}

func apply(t *testing.T, st *state.State, events ...*outbidv1.Event) {
	t.Helper()
	for _, e := range events {
		if err := st.Apply(at(), e); err != nil {
			t.Fatalf("%v: %v", e, err)
		}
	}
}

func submitted(sp *outbidv1.SweepSpec) *outbidv1.Event {
	return &outbidv1.Event{Kind: &outbidv1.Event_SweepSubmitted{SweepSubmitted: &outbidv1.SweepSubmitted{Sweep: sp.GetName() + "-1", Spec: sp}}}
}

func joined(devices int) *outbidv1.Event {
	info := &outbidv1.NodeInfo{Name: "n", Boot: "b"}
	for i := range devices {
		info.Devices = append(info.Devices, &outbidv1.Device{Index: int32(i), Type: "gpu"})
	}
	return &outbidv1.Event{Kind: &outbidv1.Event_NodeJoined{NodeJoined: &outbidv1.NodeJoined{Node: info}}}
}

func created(n int32) *outbidv1.Event {
	return &outbidv1.Event{Kind: &outbidv1.Event_TrialCreated{TrialCreated: &outbidv1.TrialCreated{
		Sweep: "s-1", Trial: n, ConfigJson: `{"lr":0.1}`, UntilStep: 3,
	}}}
}

func granted(n int32, leaseID uint64, device int32) *outbidv1.Event {
	return &outbidv1.Event{Kind: &outbidv1.Event_LeaseGranted{LeaseGranted: &outbidv1.LeaseGranted{
		Sweep: "s-1", Trial: n, LeaseId: leaseID, Places: []*outbidv1.LeasePlace{{Node: "n", Devices: []int32{device}}}, Reason: "free",
	}}}
}

func leaseEnded(n int32, leaseID uint64) *outbidv1.Event {
	return &outbidv1.Event{Kind: &outbidv1.Event_LeaseEnded{LeaseEnded: &outbidv1.LeaseEnded{Sweep: "s-1", Trial: n, LeaseId: leaseID}}}
}

func paused(n int32) *outbidv1.Event {
	return &outbidv1.Event{Kind: &outbidv1.Event_TrialPaused{TrialPaused: &outbidv1.TrialPaused{Sweep: "s-1", Trial: n}}}
}

func targeted(n int32, until int64) *outbidv1.Event {
	return &outbidv1.Event{Kind: &outbidv1.Event_TrialTargeted{TrialTargeted: &outbidv1.TrialTargeted{Sweep: "s-1", Trial: n, UntilStep: until}}}
}

func ended(n int32, s outbidv1.TrialState) *outbidv1.Event {
	return &outbidv1.Event{Kind: &outbidv1.Event_TrialEnded{TrialEnded: &outbidv1.TrialEnded{Sweep: "s-1", Trial: n, State: s}}}
}

func cloned(n, source int32, until int64) *outbidv1.Event {
	return &outbidv1.Event{Kind: &outbidv1.Event_TrialCloned{TrialCloned: &outbidv1.TrialCloned{
		Sweep: "s-1", Trial: n, Source: source, ConfigJson: `{"lr":0.2}`, UntilStep: until,
	}}}
}

func saved(n int32, key string, step int64, metric float64) *outbidv1.Event {
	return &outbidv1.Event{Kind: &outbidv1.Event_CheckpointSaved{CheckpointSaved: &outbidv1.CheckpointSaved{
		Sweep: "s-1", Trial: n, Checkpoint: &outbidv1.Checkpoint{Key: key, Step: step, Metric: &metric},
	}}}
}

func reported(n int32, leaseID uint64, metric float64) *outbidv1.Event {
	return &outbidv1.Event{Kind: &outbidv1.Event_TrialReported{TrialReported: &outbidv1.TrialReported{
		Sweep: "s-1", Trial: n, LeaseId: leaseID, Report: &outbidv1.Report{Seq: 1, Step: 1, Metrics: map[string]float64{"loss": metric}},
	}}}
}

func TestALeaseEndsWhereTheTrialIsWanted(t *testing.T) {
	t.Parallel()
	reached := &outbidv1.Event{Kind: &outbidv1.Event_TrialReached{TrialReached: &outbidv1.TrialReached{Sweep: "s-1", Trial: 0, LeaseId: 1, Step: 3}}}
	for name, tc := range map[string]struct {
		events []*outbidv1.Event
		want   string
	}{
		"lost in the middle":             {nil, "queued"},
		"at its target, no answer":       {[]*outbidv1.Event{reached}, "paused"},
		"paused":                         {[]*outbidv1.Event{reached, paused(0)}, "paused"},
		"paused, promoted meanwhile":     {[]*outbidv1.Event{reached, paused(0), targeted(0, 9)}, "queued"},
		"promoted at its target":         {[]*outbidv1.Event{reached, targeted(0, 9)}, "queued"},
		"ended while it still had a GPU": {[]*outbidv1.Event{reached, ended(0, outbidv1.TrialState_TRIAL_STATE_COMPLETED)}, "completed"},
		"cloned from another":            {[]*outbidv1.Event{reached, cloned(0, 1, 9)}, "queued"},
	} {
		st := state.New()
		apply(t, st, submitted(spec(1)), joined(1), created(0), created(1), granted(0, 1, 0))
		apply(t, st, tc.events...)
		apply(t, st, leaseEnded(0, 1))
		trial := st.Sweeps["s-1"].Trials[0]
		if got := state.TrialWord(trial.State); got != tc.want || trial.Lead() != nil {
			t.Errorf("%s: it is %s with lease %v, want %s", name, got, trial.Lead(), tc.want)
		}
	}
}

func TestADeviceHasOneOwner(t *testing.T) {
	t.Parallel()
	st := state.New()
	apply(t, st, submitted(spec(1)), joined(1), created(0), created(1), granted(0, 1, 0))
	if err := st.Apply(at(), granted(1, 2, 0)); !errors.Is(err, state.ErrBroken) {
		t.Fatalf("a second lease on the device gave %v", err)
	}
}

func TestRetention(t *testing.T) {
	t.Parallel()
	keys := func(st *state.State, n int) []string {
		s := st.Sweeps["s-1"]
		var drop []string
		for _, c := range s.Droppable(s.Trials[n]) {
			drop = append(drop, c.GetKey())
		}
		return drop
	}
	completed := outbidv1.TrialState_TRIAL_STATE_COMPLETED
	for name, tc := range map[string]struct {
		rules  *outbidv1.Checkpoints
		events []*outbidv1.Event
		want   [2][]string
	}{
		"the newest of a live trial is kept, and the best": {
			&outbidv1.Checkpoints{Best: 1},
			[]*outbidv1.Event{saved(0, "a", 1, .1), saved(0, "b", 2, .5), saved(0, "c", 3, .6), saved(0, "d", 4, .7)},
			[2][]string{{"b"}, nil},
		},
		"of an ended trial only the best of the sweep": {
			&outbidv1.Checkpoints{Best: 1},
			[]*outbidv1.Event{saved(0, "a", 1, .3), saved(1, "b", 1, .1), ended(0, completed), ended(1, completed)},
			[2][]string{{"a"}, nil},
		},
		"the best trial's, also if it is not the best checkpoint": {
			&outbidv1.Checkpoints{Best: 1},
			[]*outbidv1.Event{
				saved(0, "a", 1, .1), granted(1, 1, 0), reported(1, 1, .05), saved(1, "b", 2, .2), leaseEnded(1, 1),
				ended(0, completed), ended(1, completed),
			},
			[2][]string{nil, nil},
		},
		"the last of all": {
			&outbidv1.Checkpoints{Last: true},
			[]*outbidv1.Event{saved(0, "a", 1, .3), saved(0, "b", 2, .2), ended(0, completed)},
			[2][]string{{"a"}, nil},
		},
		"all": {
			&outbidv1.Checkpoints{All: true},
			[]*outbidv1.Event{saved(0, "a", 1, .3), saved(0, "b", 2, .2), ended(0, completed)},
			[2][]string{nil, nil},
		},
		"what a clone waits to start from": {
			&outbidv1.Checkpoints{Best: 0},
			[]*outbidv1.Event{saved(0, "a", 1, .3), cloned(1, 0, 9), ended(0, completed)},
			[2][]string{nil, nil},
		},
	} {
		sp := spec(0)
		sp.Checkpoints = tc.rules
		st := state.New()
		apply(t, st, submitted(sp), joined(1), created(0), created(1))
		apply(t, st, tc.events...)
		if got := [2][]string{keys(st, 0), keys(st, 1)}; fmt.Sprint(got) != fmt.Sprint(tc.want) {
			t.Errorf("%s: drops %v, want %v", name, got, tc.want)
		}
	}
}

// In random legal histories, a restored snapshot equals the state, and continues in the same way.
func TestSnapshotRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		st := state.New()
		apply(t, st, submitted(spec(2)), joined(3))
		for range rapid.IntRange(0, 60).Draw(rt, "events") {
			drawEvent(rt, st)
		}
		again, err := state.Restore(st.Snapshot())
		if err != nil {
			rt.Fatalf("restore: %v", err)
		}
		if !proto.Equal(st.Snapshot(), again.Snapshot()) {
			rt.Fatalf("restored state differs:\n%v\n%v", st.Snapshot(), again.Snapshot())
		}
		e := legalEvent(rt, st)
		errA, errB := st.Apply(at(), e), again.Apply(at(), proto.CloneOf(e))
		if fmt.Sprint(errA) != fmt.Sprint(errB) || !proto.Equal(st.Snapshot(), again.Snapshot()) {
			rt.Fatalf("after %v: %v and %v", e, errA, errB)
		}
		a, b := st.Sweeps["s-1"], again.Sweeps["s-1"]
		if !slices.Equal(a.Queued, b.Queued) {
			rt.Fatalf("the queues are %v and %v", a.Queued, b.Queued)
		}
		if !slices.Equal(a.Ranked(), b.Ranked()) || a.Best != b.Best {
			rt.Fatalf("ranking %v and %v, best %d and %d", a.Ranked(), b.Ranked(), a.Best, b.Best)
		}
		for name, st := range map[string]*state.State{"live": st, "restored": again} {
			if err := checkBooks(st); err != nil {
				rt.Fatalf("%s: %v", name, err)
			}
		}
	})
}

func drawEvent(rt *rapid.T, st *state.State) {
	if err := st.Apply(at(), legalEvent(rt, st)); err != nil && !errors.Is(err, state.ErrBroken) {
		rt.Fatalf("an event gave %v", err)
	}
}

// legalEvent draws an event that often fits.
func legalEvent(rt *rapid.T, st *state.State) *outbidv1.Event {
	s := st.Sweeps["s-1"]
	if len(s.Trials) == 0 {
		return created(0)
	}
	n := int32(rapid.IntRange(0, len(s.Trials)-1).Draw(rt, "trial"))
	t := s.Trials[n]
	l := &state.Lease{}
	if len(t.Leases) > 0 {
		l = rapid.SampledFrom(t.Leases).Draw(rt, "lease")
	}
	leaseID := l.ID
	metric := float64(rapid.IntRange(0, 5).Draw(rt, "metric")) / 10
	step := max(t.Step, l.Step) + 1
	switch rapid.IntRange(0, 9).Draw(rt, "kind") {
	case 0:
		return created(int32(len(s.Trials)))
	case 1, 2:
		e := granted(n, st.NextLease, int32(rapid.IntRange(0, 2).Draw(rt, "device")))
		e.GetLeaseGranted().Fork = len(t.Leases) > 0
		return e
	case 3:
		return leaseEnded(n, leaseID)
	case 4:
		return paused(n)
	case 5:
		return targeted(n, t.UntilStep+1)
	case 6:
		e := saved(n, fmt.Sprintf("%d/%d/%g", n, step, metric), step, metric)
		e.GetCheckpointSaved().GetCheckpoint().LeaseId = leaseID
		return e
	case 7:
		return cloned(n, int32(rapid.IntRange(0, len(s.Trials)-1).Draw(rt, "source")), t.UntilStep+1)
	case 8:
		return &outbidv1.Event{Kind: &outbidv1.Event_TrialReported{TrialReported: &outbidv1.TrialReported{
			Sweep: "s-1", Trial: n, LeaseId: leaseID, Report: &outbidv1.Report{Seq: l.LastReportSeq + 1, Step: step, Metrics: map[string]float64{"loss": metric}},
		}}}
	default:
		return ended(n, outbidv1.TrialState_TRIAL_STATE_COMPLETED)
	}
}

func TestChangedSince(t *testing.T) {
	t.Parallel()
	st := state.New()
	apply(t, st, submitted(spec(1)), joined(1), created(0), created(1), created(2))
	s := st.Sweeps["s-1"]
	v := s.Version
	apply(t, st, granted(1, 1, 0))
	if got := s.ChangedSince(v); !slices.Equal(got, []int32{1}) {
		t.Fatalf("changed since %d: %v", v, got)
	}
	if got := s.ChangedSince(0); !slices.Equal(got, []int32{0, 1, 2}) {
		t.Fatalf("changed since the beginning: %v", got)
	}
	if got := s.ChangedSince(s.Version); len(got) != 0 {
		t.Fatalf("changed since now: %v", got)
	}
	for i := range int64(5000) {
		apply(t, st, targeted(2, 10+i))
	}
	if got := s.ChangedSince(v); !slices.Equal(got, []int32{1, 2}) {
		t.Fatalf("changed since %d after many changes: %v", v, got)
	}
}

// The spec is compiled when the sweep is submitted, extended or restored.
func TestTermsAreThoseOfTheSpec(t *testing.T) {
	t.Parallel()
	sp, wider := spec(1), spec(1)
	sp.Limits, wider.Limits = &outbidv1.Limits{WallTime: "10m"}, &outbidv1.Limits{WallTime: "2d"}
	st := state.New()
	apply(t, st, submitted(sp))
	if got := st.Sweeps["s-1"].Terms.WallTime; got != 10*time.Minute {
		t.Errorf("submitted: %s", got)
	}
	apply(t, st, &outbidv1.Event{Kind: &outbidv1.Event_SweepExtended{SweepExtended: &outbidv1.SweepExtended{Sweep: "s-1", Spec: wider}}})
	for name, st := range map[string]*state.State{"extended": st, "restored": restore(t, st)} {
		if got := st.Sweeps["s-1"].Terms.WallTime; got != 48*time.Hour {
			t.Errorf("%s: %s", name, got)
		}
	}
}
