package sim_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/lab"
	"github.com/outbid-dev/outbid/orchestrator/ledger"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/policy/themis"
	"github.com/outbid-dev/outbid/orchestrator/sim"
	"github.com/outbid-dev/outbid/orchestrator/sim/measure"
	"github.com/outbid-dev/outbid/orchestrator/trace"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
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

// under simulates a trace under Themis with some options. It returns the outcome of each app, the result and the
// rounds.
func under(t *testing.T, nodes string, made *trace.Trace, pairs ...string) (map[string]measure.Fate, sim.Result, []*outbidv1.RoundDecided) {
	t.Helper()
	return underPolicy(t, "themis", nodes, made, pairs...)
}

// underPolicy does the same under another policy.
func underPolicy(t *testing.T, name, nodes string, made *trace.Trace, pairs ...string) (map[string]measure.Fate, sim.Result, []*outbidv1.RoundDecided) {
	t.Helper()
	kept := ledger.NewMemory()
	set := sim.Setup{Nodes: nodesOf(t, nodes), Control: settings(), RestartDelay: 10 * time.Second, Bars: 100_000, Ledger: kept}
	set.Control.Fairness = themis.Fairness
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
	for i := range set.Apps { // trials without reports are not measured
		set.Apps[i].Spec.Throughputs = append(set.Apps[i].Spec.Throughputs, &outbidv1.Throughput{Devices: 1, StepsPerSecond: 1})
	}
	set.Policy = func() policy.Policy {
		o, err := policy.ParseOptions(pairs)
		if err != nil {
			t.Fatal(err)
		}
		p, err := lab.Policies().New(name, o)
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
	var rounds []*outbidv1.RoundDecided
	if err := kept.Another().Read(t.Context(), 1, func(b *outbidv1.Batch) error {
		events, err := ledger.Decode(b)
		if err != nil {
			return err
		}
		for _, e := range events {
			if e.GetRoundDecided() != nil {
				rounds = append(rounds, e.GetRoundDecided())
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return fates, r, rounds
}

// sharing runs a check for policies under which sharing must not cost a sweep anything, with a common tenant and a
// tenant for each sweep.
func sharing(t *testing.T, check func(t *testing.T, policy string, own bool)) {
	t.Helper()
	for name, c := range map[string]struct {
		policy string
		own    bool
	}{"themis": {"themis", false}, "outbid": {"outbid", false}, "outbid, a tenant each": {"outbid", true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check(t, c.policy, c.own)
		})
	}
}

// tenants gives each app a separate tenant.
func tenants(of *trace.Trace) {
	for i := range of.Jobs {
		of.Jobs[i].Tenant = of.Jobs[i].App
	}
}

// The second of two equal sweeps, five hours after the first, gets devices within a lease, and neither is worse off
// than alone on half of the cluster.
func TestTheSecondOfTwoEqualSweepsNeedNotWait(t *testing.T) {
	t.Parallel()
	sharing(t, theSecondNeedNotWait)
}

func theSecondNeedNotWait(t *testing.T, policy string, own bool) {
	t.Helper()
	made := &trace.Trace{Name: "two sweeps"}
	addSweep(made, "first", 0, 640, 3600)
	addSweep(made, "second", 5*3600, 640, 3600)
	if own {
		tenants(made)
	}
	fates, r, _ := underPolicy(t, policy, "gpu:64/4", made)
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

// Two equal sweeps whose trials may be forked share heterogeneous nodes with a similar one whose trials may not: no
// sweep loses by sharing, and the survivors of the forkable sweeps are forked.
func TestSharingIsNoLossToSweepsThatFork(t *testing.T) {
	t.Parallel()
	sharing(t, forkingIsNoLoss)
}

func forkingIsNoLoss(t *testing.T, policy string, own bool) {
	t.Helper()
	made := &trace.Trace{Name: "three sweeps"}
	addSweep(made, "forked", 0, 42, 3600)
	addSweep(made, "forked too", 0, 42, 3600)
	addSweep(made, "alone", 0, 42, 3600)
	for i := range made.Jobs {
		if made.Jobs[i].App != "alone" {
			made.Jobs[i].Forks = "auto"
		}
	}
	if own {
		tenants(made)
	}
	fates, r, _ := underPolicy(t, policy, "a:4/1,b:4/1", made)
	merged := 0
	for _, s := range r.State.Sweeps {
		for _, trial := range s.Trials {
			merged += len(trial.Merges)
		}
	}
	for id, f := range fates {
		if f.Rho > 1.1 { // the last of its trials may train alone
			t.Errorf("rho of %s is %.3f, want about 1 at most", id, f.Rho)
		}
	}
	if merged == 0 {
		t.Error("nobody was forked")
	}
	t.Logf("rho %.3f and %.3f forked, %.3f alone; %d rounds", fates["forked"].Rho, fates["forked too"].Rho, fates["alone"].Rho, merged)
}

// The fair share of a single app that accepts only the rarer type is all devices of that type: its rho is 1, for the
// arbiter and for the meter.
func TestRhoIsByWhatAnAppAccepts(t *testing.T) {
	t.Parallel()
	made := &trace.Trace{Name: "one type"}
	addSweep(made, "alone", 0, 16, 3600, "rare")
	fates, _, rounds := under(t, "common:28/4,rare:4/4", made)
	if rho := fates["alone"].Rho; rho < .99 || rho > 1.05 {
		t.Errorf("the meter says rho %.3f, want about 1", rho)
	}
	for n, r := range rounds {
		for _, b := range r.GetAuction().GetBidders() {
			if b.GetRhoAfter() < .99 || b.GetRhoAfter() > 1.05 {
				t.Errorf("round %d at %s: the arbiter says rho %.3f, want about 1", n, r.GetReason(), b.GetRhoAfter())
			}
		}
	}
	if len(rounds) == 0 {
		t.Error("no round was decided")
	}
}

// Twenty sweeps wait for one type, three share the other. Those bid for it, although none of them is among the
// worst-off fifth of all sweeps.
func TestWhoWaitsForOneTypeDoesNotKeepAnotherFromAuction(t *testing.T) {
	t.Parallel()
	made := &trace.Trace{Name: "two types"}
	for i := range 20 {
		addSweep(made, fmt.Sprint("crowd", i), 0, 12, 3600, "a")
	}
	for i := range 3 {
		addSweep(made, fmt.Sprint("other", i), 0, 40, 3600, "b")
	}
	_, _, rounds := under(t, "a:16/4,b:16/4", made)
	won, all := 0.0, 0.0
	for _, r := range rounds {
		for _, bidder := range r.GetAuction().GetBidders() {
			for _, l := range bidder.GetWon() {
				if l.GetType() == "b" {
					won, all = won+float64(l.GetDevices()), all+float64(l.GetDevices())
				}
			}
			for _, l := range bidder.GetLeftover() {
				if l.GetType() == "b" {
					all += float64(l.GetDevices())
				}
			}
		}
	}
	if all == 0 || won < all/3 {
		t.Errorf("%.0f of %.0f devices of the other type were won in auctions, want a third at least", won, all)
	}
	t.Logf("%.0f of %.0f devices of the other type were won in auctions", won, all)
}

// T_id of an app in the ledger equals the one that the simulator's meter computes from its jobs' work, although the app
// was preempted and restarted many times.
func TestTheMeterAndTheLedgerAgreeOnIdealTimes(t *testing.T) {
	t.Parallel()
	made := &trace.Trace{Name: "agree"}
	addSweep(made, "first", 0, 64, 3600)
	addSweep(made, "second", 1800, 24, 1800)
	addSweep(made, "third", 3600, 8, 7200)
	fates, r, _ := under(t, "gpu:16/4", made)
	if len(fates) != 3 || r.Preemptions == 0 {
		t.Fatalf("%d apps, %d preemptions", len(fates), r.Preemptions)
	}
	for _, id := range r.State.SweepIDs {
		s := r.State.Sweeps[id]
		f, said := fates[s.Spec.GetLabels()["app"]], s.Fairness
		if want := f.Alone * f.MeanApps; math.Abs(said.GetAloneSeconds()/want-1) > .01 || math.Abs(said.GetRho()/f.Rho-1) > .01 {
			t.Errorf("%s: T_id %.0f s and rho %.3f in the ledger, %.0f s and %.3f by the meter", f.App, said.GetAloneSeconds(), said.GetRho(),
				want, f.Rho)
		}
	}
}
