package state_test

import (
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// timed is a report of a trial's lease with the seconds that its fork has trained.
func timed(n int32, leaseID uint64, step int64, seconds float64) *outbidv1.Event {
	e := reported(n, leaseID, .5)
	e.GetTrialReported().Report.Step, e.GetTrialReported().Report.TrainSeconds = step, seconds
	return e
}

// A trial's speed is the newest measurement on such devices, and a sweep's is the running mean.
func TestSpeedsAreMeasured(t *testing.T) {
	t.Parallel()
	st := racks(t)
	apply(t, st, grant(0, 1, place("a", 0)), grant(1, 2, place("b", 0)), began(1, 10), timed(0, 1, 20, 5), timed(0, 1, 40, 3))
	one := func(rate float64) cluster.Speed { return cluster.Speed{Type: "v100", Devices: 1, Rate: rate} }
	check := func(when string, trial, sweep []cluster.Speed) {
		t.Helper()
		for _, st := range []*state.State{st, restore(t, st)} {
			s := st.Sweeps["s-1"]
			if diff := cmp.Diff(trial, s.Trials[0].Measured); diff != "" {
				t.Errorf("%s, the trial: %s", when, diff)
			}
			if diff := cmp.Diff(sweep, s.Measured); diff != "" {
				t.Errorf("%s, the sweep: %s", when, diff)
			}
		}
	}
	check("one device", []cluster.Speed{one(10)}, []cluster.Speed{one(2.8)}) // 2 + .1 (10 - 2)
	apply(t, st, leaseEnded(0, 1), grant(0, 3, place("c", 0)), timed(0, 3, 42, 1), leaseEnded(0, 3),
		grant(0, 4, place("a", 0, 1)), timed(0, 4, 43, 1), leaseEnded(0, 4),
		grant(0, 5, place("a", 1, 2)), timed(0, 5, 44, 1), leaseEnded(0, 5))
	others := []cluster.Speed{
		{Type: "a100", Devices: 1, Rate: 42}, {Type: "v100", Devices: 2, Rate: 43}, {Type: "v100", Devices: 2, Locality: cluster.SameMachine, Rate: 44},
	}
	check("other devices", append([]cluster.Speed{one(10)}, others...), append([]cluster.Speed{one(2.8)}, others...))
	// Reports that show no speed are ignored: without time or steps, with invalid numbers, or with devices of several
	// types.
	apply(t, st, grant(0, 6, place("a", 0)), began(6, 50), timed(0, 6, 60, 0), timed(0, 6, 60, -1), timed(0, 6, 50, 1), timed(0, 6, 45, 1),
		timed(0, 6, 60, math.NaN()), timed(0, 6, 60, 5e-324), leaseEnded(0, 6), grant(0, 7, place("a", 0), place("c", 0)), timed(0, 7, 70, 1))
	check("what says nothing", append([]cluster.Speed{one(10)}, others...), append([]cluster.Speed{one(2.8)}, others...))
}

func TestAClientIsNotMeasured(t *testing.T) {
	t.Parallel()
	sp := spec(1)
	sp.Workload = &outbidv1.SweepSpec_External{External: &outbidv1.External{}}
	st := state.New()
	apply(t, st, submitted(sp), created(0), &outbidv1.Event{Kind: &outbidv1.Event_TrialAsked{TrialAsked: &outbidv1.TrialAsked{
		Sweep: "s-1", LeaseId: 1, Client: "laptop",
	}}}, timed(0, 1, 20, 5))
	for _, st := range []*state.State{st, restore(t, st)} {
		s := st.Sweeps["s-1"]
		if l := s.Trials[0].Lead(); len(s.Measured) != 0 || l.Holder != state.Client || l.Client != "laptop" || l.Rank0() != "" {
			t.Errorf("%v was measured of %v", s.Measured, l)
		}
		if v := st.TrialView(s, s.Trials[0]); v.GetNode() != "" || v.GetStepsPerSecond() != 4 {
			t.Errorf("it is seen on %q at %g steps/s", v.GetNode(), v.GetStepsPerSecond())
		}
	}
}

// A curve has a limited number of points, from the first to the newest. Of a repeated step it has the newest value.
func TestCurves(t *testing.T) {
	t.Parallel()
	st, s := running(t, spec(1), 1)
	tr := s.Trials[0]
	value := func(step int64) float64 { return 1 / float64(step) }
	for step := int64(1); step <= 1000; step++ {
		apply(t, st, says(0, step, value(step)))
		c := tr.Curve
		if len(c) > 64 || step <= 64 && len(c) != int(step) || step > 64 && len(c) <= 32 {
			t.Fatalf("%d points after %d steps", len(c), step)
		}
		if c[0].Step != 1 || c[len(c)-1].Step != step || !slices.IsSortedFunc(c, func(a, b state.Point) int { return int(a.Step - b.Step) }) {
			t.Fatalf("after %d steps: %v", step, c)
		}
		for _, p := range c {
			if p.Value != value(p.Step) {
				t.Fatalf("step %d had %g, not %g", p.Step, value(p.Step), p.Value)
			}
		}
	}
	before, first := slices.Clone(tr.Curve), tr.Curve[0]
	readers := tr.Curve
	apply(t, st, says(0, before[10].Step, 7), says(0, before[10].Step, 8))
	if got := tr.Curve; len(got) != 11 || got[10] != (state.Point{Step: before[10].Step, Value: 8}) || got[9] != before[9] || got[0] != first {
		t.Errorf("after a step back: %v", got)
	}
	if diff := cmp.Diff(before, readers); diff != "" {
		t.Errorf("who had read the curve sees it change: %s", diff)
	}
	if diff := cmp.Diff(tr.Curve, restore(t, st).Sweeps["s-1"].Trials[0].Curve); diff != "" {
		t.Errorf("restored: %s", diff)
	}
	apply(t, st, cancelled(0))
	if len(tr.Curve) != 11 {
		t.Error("the curve of a trial that may go on is gone")
	}
}
