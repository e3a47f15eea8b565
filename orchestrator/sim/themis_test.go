package sim_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/policy/registry"
	"github.com/outbid-dev/outbid/orchestrator/sim"
	"github.com/outbid-dev/outbid/orchestrator/sim/measure"
	"github.com/outbid-dev/outbid/orchestrator/trace"
)

// addSweep adds an app of equal jobs on one device each to a trace.
func addSweep(to *trace.Trace, id string, submit float64, jobs int, seconds float64, types ...string) {
	to.Apps = append(to.Apps, trace.App{ID: id, Tuner: "none"})
	for i := range jobs {
		to.Jobs = append(to.Jobs, trace.Job{
			ID: fmt.Sprint(id, "-", i), App: id, Submit: submit, MinGPUs: 1, MaxGPUs: 1, Duration: seconds, GPUTypes: types,
		})
	}
}

// under simulates a trace under Themis with some options, and returns how each app fared, and the result.
func under(t *testing.T, nodes string, made *trace.Trace, pairs ...string) (map[string]measure.Fate, sim.Result) {
	t.Helper()
	set := sim.Setup{Nodes: nodesOf(t, nodes), Control: settings(), RestartDelay: 10 * time.Second, Bars: 100_000}
	types := map[string]bool{}
	for _, n := range set.Nodes {
		for _, d := range n.Devices {
			types[d.Type] = true
		}
	}
	how := sim.Making{}
	for kind := range types {
		how.Types = append(how.Types, kind)
	}
	var err error
	if set.Apps, err = sim.Apps(made, how); err != nil {
		t.Fatal(err)
	}
	set.Policy = func() policy.Policy {
		o, err := policy.ParseOptions(pairs)
		if err != nil {
			t.Fatal(err)
		}
		p, err := registry.New("themis", o)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	r, err := sim.Run(t.Context(), set)
	if err != nil {
		t.Fatal(err)
	}
	fates := map[string]measure.Fate{}
	for _, f := range r.Series.Fates {
		fates[f.App] = f
	}
	return fates, r
}

// Two equal sweeps, the second five hours after the first: it has devices within a lease, and neither is worse off than on
// half of the cluster of its own.
func TestTheSecondOfTwoEqualSweepsNeedNotWait(t *testing.T) {
	t.Parallel()
	made := &trace.Trace{Name: "two sweeps"}
	addSweep(made, "first", 0, 640, 3600)
	addSweep(made, "second", 5*3600, 640, 3600)
	fates, r := under(t, "gpu:64/4", made)
	for id, f := range fates {
		if f.Rho > 1 {
			t.Errorf("rho of the %s is %.3f, want at most 1", id, f.Rho)
		}
	}
	began := -1.0
	for _, b := range r.Series.Bars {
		if b.From >= 5*3600 && (began < 0 || b.From < began) && b.App == "second" {
			began = b.From
		}
	}
	if wait := began - 5*3600; began < 0 || wait > 600 {
		t.Errorf("the second waits %.0f s for its first device, want at most a lease of 600 s", wait)
	}
	t.Logf("rho of the first is %.3f, of the second %.3f", fates["first"].Rho, fates["second"].Rho)
}
