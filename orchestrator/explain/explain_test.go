package explain

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

func noon() time.Time { return time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC) }

func before(d time.Duration) *timestamppb.Timestamp { return timestamppb.New(noon().Add(-d)) }

// facts returns a running sweep b-1 with tuner asha, two queued trials and a running one, and the sweep a-1, which
// holds three of four devices.
func facts(change func(f *Facts)) *Facts {
	device := func(i int32) *outbidv1.Device { return &outbidv1.Device{Index: i, Type: "cpu"} }
	use := func(i int32, sweep string) *outbidv1.DeviceUse {
		return &outbidv1.DeviceUse{Device: i, Fork: &outbidv1.ForkRef{Sweep: sweep}}
	}
	f := &Facts{
		Now: noon(), Policy: "themis",
		Sweep: &outbidv1.Sweep{
			Id: "b-1", State: outbidv1.SweepState_SWEEP_STATE_RUNNING, Waiting: "waits for devices that other trials hold",
			Counts:   &outbidv1.TrialCounts{Queued: 2, Running: 1, Total: 3},
			Fairness: &outbidv1.Fairness{MeanSweeps: 2},
			Spec: &outbidv1.SweepSpec{Metric: "loss", Mode: "min", Tuner: &outbidv1.Tuner{
				Kind: &outbidv1.Tuner_Asha{Asha: &outbidv1.Asha{}},
			}},
		},
		Others: []*outbidv1.Sweep{{Id: "a-1", Spec: &outbidv1.SweepSpec{}}},
		Nodes: []*outbidv1.Node{{
			State: outbidv1.NodeState_NODE_STATE_UP,
			Info:  &outbidv1.NodeInfo{Name: "n1", Devices: []*outbidv1.Device{device(0), device(1), device(2), device(3)}},
			Uses:  []*outbidv1.DeviceUse{use(0, "a-1"), use(1, "a-1"), use(2, "a-1"), use(3, "b-1")},
		}},
	}
	if change != nil {
		change(f)
	}
	return f
}

// trial makes the facts about trial 4 of the sweep.
func trial(state outbidv1.TrialState, reason string, more func(f *Facts)) *Facts {
	return facts(func(f *Facts) {
		f.Trial = &outbidv1.Trial{Number: 4, State: state, Reason: reason, Step: 3, UntilStep: 9, DeviceSeconds: 5}
		if more != nil {
			more(f)
		}
	})
}

// auction is round 7, which b-1 entered with rho 1.2 and a-1 won with rho 1.8.
func auction(decisions ...*outbidv1.Decision) *outbidv1.Round {
	return &outbidv1.Round{
		Round: 7, Policy: "themis", Time: before(2 * time.Minute), Decisions: decisions,
		Auction: &outbidv1.Auction{Bidders: []*outbidv1.Bidder{
			{Sweep: "a-1", Rho: 1.8, Asked: true, Won: []*outbidv1.Lot{{Node: "n1", Devices: 2}}},
			{Sweep: "b-1", Rho: 1.2},
		}},
	}
}

func decision(kind, sweep string, trial int32, lease uint64, reason string, devices ...int32) *outbidv1.Decision {
	d := &outbidv1.Decision{Kind: kind, Sweep: sweep, Trial: trial, LeaseId: lease, Reason: reason}
	if len(devices) > 0 {
		d.Places = []*outbidv1.LeasePlace{{Node: "n1", Devices: devices}}
	}
	return d
}

// withLoss adds rounds in which trial 4 of b-1 got devices 0 and 1, lost them in an auction, and heir got them.
func withLoss(heir *outbidv1.Decision, held bool) func(f *Facts) {
	return func(f *Facts) {
		lost := auction(decision(revoke, "b-1", 4, 11, "its lease is up"))
		if !held {
			lost.Auction = nil
		}
		got := &outbidv1.Round{Round: 8, Time: before(time.Minute), Decisions: []*outbidv1.Decision{heir}}
		given := &outbidv1.Round{Round: 3, Time: before(time.Hour), Decisions: []*outbidv1.Decision{decision(grant, "b-1", 4, 11, "won", 0, 1)}}
		f.Rounds, f.Later = []*outbidv1.Round{lost, given}, []*outbidv1.Round{lost, got}
	}
}

func TestWhyItHasItsState(t *testing.T) {
	t.Parallel()
	ended := func(state outbidv1.SweepState, reason string) *Facts {
		return facts(func(f *Facts) { f.Sweep.State, f.Sweep.Reason = state, reason })
	}
	waits := func(text string) *Facts { return facts(func(f *Facts) { f.Sweep.Waiting = text }) }
	for name, c := range map[string]struct {
		facts *Facts
		cause Cause
		want  string
	}{
		"others hold the devices": {facts(nil), Devices, "2 trials of b-1 wait for devices: of the 4 that it accepts 1 is held by b-1 itself and 3 by a-1."},
		"another's rho is worse": {facts(func(f *Facts) { f.Rounds = []*outbidv1.Round{auction()} }), Devices, "2 trials of b-1 wait for devices: of the 4 that it accepts " +
			"1 is held by b-1 itself and 3 by a-1, and in round 7 a-1 won with the worse rho 1.80 against 1.20 here."},
		"another tenant holds them": {facts(func(f *Facts) {
			f.Nodes[0].Uses = []*outbidv1.DeviceUse{{Device: 0, Fork: &outbidv1.ForkRef{}}, {Device: 2, Fork: &outbidv1.ForkRef{}}}
			f.Sweep.Spec.Resources = &outbidv1.Resources{Devices: &outbidv1.DeviceCount{Min: 3, Max: 3}}
		}), Devices, "2 trials of b-1 wait for devices: of the 4 that it accepts 2 are held by another tenant's sweep and 2 free, while each trial needs 3."},
		"only accepted types count": {facts(func(f *Facts) {
			f.Nodes[0].Info.Devices[3].Type, f.Sweep.Spec.Resources = "gpu", &outbidv1.Resources{Types: []string{"gpu"}}
		}), Devices, "2 trials of b-1 wait for devices: of the 1 that it accepts 1 is held by b-1 itself."},
		"quota":         {waits("tenant ann holds 4 of the 4 devices of its quota"), Quota, "2 trials of b-1 wait for its tenant's quota: tenant ann holds 4 of the 4 devices of its quota."},
		"quota of type": {waits("the quota of tenant ann does not allow 1 more devices of type gpu"), Quota, "2 trials of b-1 wait for its tenant's quota: the quota of tenant ann does not allow 1 more devices of type gpu."},
		"unplaceable":   {waits("no node has 8 gpu; the most is 4"), Unplaceable, "2 trials of b-1 wait for a node that could run it: no node has 8 gpu; the most is 4."},
		"no worker":     {waits("no worker is connected"), Unplaceable, "2 trials of b-1 wait for a node that could run it: no worker is connected."},
		"cordoned":      {waits("waits for a node that can start its trials; n1 (cordoned): disk full"), Nodes, "2 trials of b-1 wait for a node that can start its trials; n1 (cordoned): disk full."},
		"suspected":     {waits("trial 4 waits for a node without other trials, because it lost nodes before"), Suspected, "2 trials of b-1 wait for a node without other trials, because nodes were lost while it ran."},
		"trains":        {facts(func(f *Facts) { f.Sweep.Counts, f.Sweep.Waiting = &outbidv1.TrialCounts{Running: 1}, "" }), Training, "1 trial of b-1 trains on 1 device of 1 node."},
		"rung":          {facts(func(f *Facts) { f.Sweep.Counts = &outbidv1.TrialCounts{Paused: 2} }), Tuner, "b-1 waits for its tuner, asha, to continue one of its 2 paused trials or to start a new one."},
		"tuner starts nothing": {facts(func(f *Facts) {
			f.Sweep.Counts, f.Sweep.Waiting = nil, "waits for devices; 3 of the cluster's devices are held"
		}), Tuner, "b-1 waits for its tuner, asha, to start a trial."},
		"paused":   {ended(outbidv1.SweepState_SWEEP_STATE_PAUSED, "asked for by ann"), Paused, "b-1 is paused because a person paused its sweep (asked for by ann)."},
		"stopping": {ended(outbidv1.SweepState_SWEEP_STATE_STOPPING, "asked for by ann"), Stopped, "b-1 is stopping, and its trials save first (asked for by ann)."},
		"stopped":  {ended(outbidv1.SweepState_SWEEP_STATE_STOPPED, "asked for by ann"), Stopped, "b-1 is stopped: asked for by ann."},
		"done":     {ended(outbidv1.SweepState_SWEEP_STATE_DONE, "the tuner finished after 3 trials"), Done, "b-1 is done: the tuner finished after 3 trials."},
		"failed": {facts(func(f *Facts) {
			f.Sweep.State, f.Sweep.Reason = outbidv1.SweepState_SWEEP_STATE_FAILED, "every trial failed"
			f.Failed = &outbidv1.Trial{Number: 2, Node: "n1"}
		}), Failed, "b-1 has failed: every trial failed, such as trial 2 on node n1."},

		"trial waits":             {trial(outbidv1.TrialState_TRIAL_STATE_QUEUED, "", func(f *Facts) { f.Nodes = nil }), Devices, "b-1/4 waits at step 3 for devices."},
		"trial at a rung":         {trial(outbidv1.TrialState_TRIAL_STATE_PAUSED, "rung 0: 1 of 3 may go on", nil), Tuner, "b-1/4 is paused at step 3 until its tuner, asha, continues it (rung 0: 1 of 3 may go on)."},
		"trial of a paused sweep": {trial(outbidv1.TrialState_TRIAL_STATE_PAUSED, "", func(f *Facts) { f.Sweep.State = outbidv1.SweepState_SWEEP_STATE_PAUSED }), Paused, "b-1/4 is paused because a person paused its sweep."},
		"trial completed":         {trial(outbidv1.TrialState_TRIAL_STATE_COMPLETED, "trained for all its steps", nil), Done, "b-1/4 is completed at step 3: trained for all its steps."},
		"trial pruned": {trial(outbidv1.TrialState_TRIAL_STATE_STOPPED, "not among the best", func(f *Facts) {
			f.Values = map[int32]float64{1: .1, 2: .2, 4: .3, 5: .4}
		}), Pruned, "b-1/4 was pruned at step 3, where it ranked 3 of 4 by loss (not among the best)."},
		"trial pruned by a maximum": {trial(outbidv1.TrialState_TRIAL_STATE_STOPPED, "", func(f *Facts) {
			f.Values, f.Sweep.Spec.Mode = map[int32]float64{1: .1, 4: .3, 5: .4}, "max"
		}), Pruned, "b-1/4 was pruned at step 3, where it ranked 2 of 3 by loss."},
		"trial pruned, rank unknown": {trial(outbidv1.TrialState_TRIAL_STATE_STOPPED, "limit", nil), Pruned, "b-1/4 was pruned at step 3 (limit)."},
		"trial stopped":              {trial(outbidv1.TrialState_TRIAL_STATE_CANCELLED, "the sweep is stopped", nil), Stopped, "b-1/4 was stopped at step 3: the sweep is stopped."},
		"trial failed": {
			trial(outbidv1.TrialState_TRIAL_STATE_FAILED, "exited with code 1", withLoss(decision(grant, "a-1", 0, 12, "", 0), true)), Failed,
			"b-1/4 has failed at step 3 on node n1: exited with code 1.",
		},
		"trial trains": {trial(outbidv1.TrialState_TRIAL_STATE_RUNNING, "", func(f *Facts) {
			f.Trial.Leases = []*outbidv1.TrialLease{{Places: []*outbidv1.TrialPlace{{Node: "n1", Devices: []int32{0, 2}}}}}
		}), Training, "b-1/4 trains at step 3 of 9 on devices 0, 2 of node n1."},
	} {
		got := Explain(c.facts)
		if got.Cause != c.cause {
			t.Errorf("%s: the cause is %s, want %s", name, got.Cause, c.cause)
		}
		if diff := cmp.Diff(c.want, got.State); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestWhyItLostDevices(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		facts *Facts
		want  string
	}{
		"no loss":        {facts(nil), "The policy, themis, did not take devices from b-1."},
		"never held any": {trial(outbidv1.TrialState_TRIAL_STATE_QUEUED, "", func(f *Facts) { f.Trial.DeviceSeconds = 0 }), "b-1/4 has not held devices yet."},
		"another trial's loss": {trial(outbidv1.TrialState_TRIAL_STATE_QUEUED, "", func(f *Facts) {
			withLoss(decision(grant, "a-1", 0, 12, "", 0, 1), true)(f)
			f.Trial.Number = 5
		}), "The policy, themis, did not take devices from b-1/5."},
		"to a sweep with a worse rho": {facts(withLoss(decision(grant, "a-1", 9, 12, "", 0, 1), true)), "b-1/4 lost devices 0, 1 of node n1 2 min ago: its lease is up; " +
			"a-1/9 got them, and a-1 had rho 1.80 against 1.20 here."},
		"without an auction": {facts(withLoss(decision(grant, "a-1", 9, 12, "", 1, 2), false)), "b-1/4 lost devices 0, 1 of node n1 2 min ago: its lease is up; " +
			"a-1/9 got them, and a-1 now holds 3 devices of 1 node against 1 device of 1 node here."},
		"to a sweep without devices": {facts(func(f *Facts) {
			withLoss(decision(grant, "a-1", 9, 12, "", 0, 1), true)(f)
			f.Rounds[0].Auction.Bidders[0].Why, f.Rounds[0].Auction.Bidders = "1 of 2: holds nothing for 0.1 of its T_id", f.Rounds[0].Auction.Bidders[:1]
		}), "b-1/4 lost devices 0, 1 of node n1 2 min ago: its lease is up; a-1/9 got them, and a-1, which held no devices, had rho 1.80."},
		"to another tenant": {facts(withLoss(decision(grant, "", 0, 12, "", 0), true)), "b-1/4 lost devices 0, 1 of node n1 2 min ago: its lease is up; another tenant's sweep got them."},
		"to its own sweep":  {facts(withLoss(decision(grant, "b-1", 6, 12, "", 0), true)), "b-1/4 lost devices 0, 1 of node n1 2 min ago: its lease is up; b-1/6 got them."},
		"to no trial":       {facts(withLoss(decision(grant, "a-1", 9, 12, "", 2), true)), "b-1/4 lost devices 0, 1 of node n1 2 min ago: its lease is up."},
		"several": {facts(func(f *Facts) {
			withLoss(decision(grant, "a-1", 9, 12, "", 2), true)(f)
			f.Rounds = append(f.Rounds, &outbidv1.Round{Round: 2, Decisions: []*outbidv1.Decision{decision(revoke, "b-1", 1, 5, "")}})
		}), "b-1/4 lost devices 0, 1 of node n1 2 min ago: its lease is up, the newest of 2 losses."},
	} {
		if diff := cmp.Diff(c.want, Explain(c.facts).Lost); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestWhatElseWouldHaveDone(t *testing.T) {
	t.Parallel()
	contested := func(change func(f *Facts)) *Facts {
		return facts(func(f *Facts) {
			f.Rounds = []*outbidv1.Round{auction()}
			change(f)
		})
	}
	for name, c := range map[string]struct {
		facts *Facts
		want  string
	}{
		"simulated": {facts(func(f *Facts) {
			f.Outcomes = []Outcome{{"themis", 1, 245}, {"themis", 2, 180}, {"las", 1, 9.84}, {"drf", 1, 7800}}
		}), "In simulations of the ledger b-1 ends 4 min 5 s after its submission under themis: it would be 3 min with weight 2, 9.8 s under las and 2 h 10 min under drf."},
		"only its own policy": {contested(func(f *Facts) { f.Outcomes = []Outcome{{"themis", 1, 245}} }), "In round 7 a-1 won with rho 1.80 against 1.20 here: from a weight of " +
			"about 1.5 instead of 1 on it would have been asked for a bid before it."},
		"weight of a colleague": {contested(func(f *Facts) { f.Sweep.Spec.Weight = 2 }), "In round 7 a-1 won with rho 1.80 against 1.20 here: from a weight of about 3 instead " +
			"of 2 on it would have been asked for a bid before it."},
		"another tenant": {contested(func(f *Facts) { f.Others[0].Spec.Tenant = "bob" }), "In round 7 a-1 won with rho 1.80 against 1.20 here; a sweep's weight only divides its " +
			"tenant's share, so a larger weight of tenant default would be needed."},
		"its rho was worse": {contested(func(f *Facts) { f.Rounds[0].Auction.Bidders[1].Rho = 2 }), "In round 7 a-1 won with rho 1.80 against 2.00 here, so a larger weight was " +
			"not needed to be asked for a bid."},
		"the winner held nothing": {contested(func(f *Facts) { f.Rounds[0].Auction.Bidders[0].Why = "1 of 2: holds nothing for 0.1 of its T_id" }), "In round 7 a-1 won with rho " +
			"1.80 against 1.20 here; it held no devices, and such sweeps are asked first, whatever the weights."},
		"it did not bid": {contested(func(f *Facts) {
			f.Rounds[0].Auction.Bidders, f.Sweep.Fairness.Rho = f.Rounds[0].Auction.Bidders[:1], .9
		}), "In round 7 a-1 won with rho 1.80 " +
			"against 0.90 here: from a weight of about 2 instead of 1 on it would have been asked for a bid before it."},
		"its rho is unknown": {contested(func(f *Facts) { f.Rounds[0].Auction.Bidders, f.Sweep.Fairness = f.Rounds[0].Auction.Bidders[:1], nil }), "In round 7 a-1 won with rho 1.80; the " +
			"rho of b-1 at that time is not known, so no weight can be said."},
		"it has not trained": {facts(nil), "It has not trained yet, so its ledger does not say when it would end under another policy or weight."},
		"no auction":         {facts(func(f *Facts) { f.Sweep.DeviceSeconds = 9 }), "What another policy or weight than themis and 1 would have done is not in the rounds: only a simulation of the ledger says it."},
		"alone":              {facts(func(f *Facts) { f.Others, f.Sweep.Fairness = nil, nil }), "It has the cluster to itself, so no other policy or weight would change when it ends."},
		"quota": {facts(func(f *Facts) {
			f.Sweep.Waiting, f.Sweep.Spec.Tenant = "tenant ann holds 4 of the 4 devices of its quota", "ann"
		}), "No other policy or weight would change " +
			"that, because a quota bounds its tenant under each of them; an admin raises it with 'outbid tenant set ann'."},
		"unplaceable": {facts(func(f *Facts) { f.Sweep.Waiting = "no worker is connected" }), "No other policy or weight would change that; its resources must be smaller or of another " +
			"type, or a node that has them must join."},
		"paused": {facts(func(f *Facts) { f.Sweep.State = outbidv1.SweepState_SWEEP_STATE_PAUSED }), "No other policy or weight would change that; 'outbid resume b-1' continues it."},
		"pruned": {trial(outbidv1.TrialState_TRIAL_STATE_STOPPED, "", nil), "No other policy or weight would change that, because the tuner decided by the metric and the sweep's limits alone."},
		"failed": {trial(outbidv1.TrialState_TRIAL_STATE_FAILED, "", nil), "No other policy or weight would change that; 'outbid logs b-1/4' shows what it printed, and 'outbid retry b-1/4' runs it again."},
	} {
		if diff := cmp.Diff(c.want, Explain(c.facts).Otherwise); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestOnlyWhatDependsOnThePolicyIsSimulated(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		facts *Facts
		want  bool
	}{
		"waits":  {facts(nil), true},
		"alone":  {facts(func(f *Facts) { f.Others, f.Sweep.Fairness = nil, nil }), false},
		"paused": {facts(func(f *Facts) { f.Sweep.State = outbidv1.SweepState_SWEEP_STATE_PAUSED }), false},
		"pruned": {trial(outbidv1.TrialState_TRIAL_STATE_STOPPED, "", nil), false},
		"done":   {facts(func(f *Facts) { f.Sweep.State = outbidv1.SweepState_SWEEP_STATE_DONE }), true},
	} {
		if got := NeedsOutcomes(c.facts); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
