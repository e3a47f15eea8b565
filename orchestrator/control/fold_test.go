package control_test

import (
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/outbid-dev/outbid/orchestrator/control"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/policy/baseline"
	"github.com/outbid-dev/outbid/orchestrator/sim"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// A core restored from the ledger equals the one that decided: the state, the tuners and the policy are the same,
// whether restored from the first batch or from a snapshot and the batches after it, and so are its next decisions.
func TestDecidingAndRestoringAreOne(t *testing.T) {
	if raceEnabled {
		t.Skip("it only computes: make test runs it without the race detector")
	}
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		l := newLife(rt, rapid.SampledFrom(policies()).Draw(rt, "policy"), rapid.Uint64().Draw(rt, "seed"))
		for range rapid.IntRange(20, 60).Draw(rt, "happenings") {
			l.happen()
		}
		l.compare()
	})
}

// TestDecidingAndRestoringAreOneForEveryEvent does the same for lives that contain every kind of event.
func TestDecidingAndRestoringAreOneForEveryEvent(t *testing.T) {
	if raceEnabled {
		t.Skip("it only computes: make test runs it without the race detector")
	}
	t.Parallel()
	var mu sync.Mutex
	seen := map[string]int{}
	t.Run("seeds", func(t *testing.T) {
		// In the first three, a trial is granted a node for itself in the step in which a concurrent round ends.
		seeds := []uint64{502, 883, 1003}
		for seed := range uint64(26) {
			seeds = append(seeds, seed)
		}
		for seed := range uint64(8) {
			seeds = append(seeds, firstMeddling+seed)
		}
		for _, seed := range seeds {
			t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
				t.Parallel()
				l := newLife(t, policyOf(seed), seed)
				for range 250 {
					l.happen()
				}
				l.compare()
				l.audit()
				mu.Lock()
				defer mu.Unlock()
				for name, n := range l.kinds {
					seen[name] += n
				}
			})
		}
	})
	for _, k := range state.Kinds() {
		if seen[k.Name] == 0 {
			t.Errorf("no life had an event of kind %s", k.Name)
		}
	}
	if seen["bids"] == 0 || seen["rounds beside"] == 0 || seen["bids after a restart"] == 0 || seen["decisions again"] == 0 {
		t.Error("no life had external bidders that bid, also after a restart, rounds decided in the background, or repeated decisions")
	}
	t.Log(seen)
}

// policyOf returns the policy of a life. The last ones use oasis.
func policyOf(seed uint64) string {
	if seed == 24 || seed == 25 {
		return "oasis"
	}
	return policies()[seed%3]
}

func policies() []string { return []string{"themis", "drf", "tiresias", "oasis"} }

// Trials of an external sweep are drawn only when a client asks for one, with all results known then.
func TestAnExternalSweepDrawsNothingAhead(t *testing.T) {
	t.Parallel()
	sweep := sim.Sweep("s", "min", 4, sim.Tuner("random", map[string]int64{"max_steps": 2}))
	sweep.Workload, sweep.Resources = &outbidv1.SweepSpec_External{External: &outbidv1.External{}}, nil
	b := newBench(t, 4, sweep)
	b.step(control.Tick{})
	if n := len(b.core.State().Sweeps["s-1"].Trials); n != 0 {
		t.Errorf("%d trials were drawn before anybody asked", n)
	}
	b.step(control.Ask{Sweep: "s-1", Client: "c", Done: func(_ *outbidv1.AskTrialResponse, err error) {
		if err != nil {
			t.Error(err)
		}
	}})
	b.step(control.Tick{})
	if n := len(b.core.State().Sweeps["s-1"].Trials); n != 1 {
		t.Errorf("%d trials were drawn for one who asked", n)
	}
}

// A finished trial whose process is just ending continues if its sweep is extended at that moment.
func TestATrialThatIsJustEndingContinues(t *testing.T) {
	t.Parallel()
	b := newBench(t, 2, sim.Sweep("s", "min", 1, sim.Tuner("random", map[string]int64{"max_steps": 2})))
	trial := b.core.State().Sweeps["s-1"].Trials[0]
	fork := b.forks[trial.Lead().ID]
	b.say([]*outbidv1.UplinkMessage{
		report(fork, 1, 1), report(fork, 2, 2),
		{Fork: fork, Kind: &outbidv1.UplinkMessage_Reached{Reached: &outbidv1.ForkReached{Step: 2}}},
	})
	if state.TrialWord(trial.State) != "completed" || trial.Lead() == nil {
		t.Fatalf("it is %s, with lease %v", state.TrialWord(trial.State), trial.Lead())
	}
	b.step(control.Extend{Request: &outbidv1.ExtendSweepRequest{Sweep: "s-1", MaxSteps: new(int64(4))}, Done: func(_ []*outbidv1.TrainedAgain, err error) {
		if err != nil {
			t.Error(err)
		}
	}})
	b.say([]*outbidv1.UplinkMessage{{Fork: fork, Kind: &outbidv1.UplinkMessage_Ended{Ended: &outbidv1.ForkEnded{
		Outcome: outbidv1.ForkOutcome_FORK_OUTCOME_ORDERED, Step: 2,
	}}}})
	if state.TrialWord(trial.State) != "running" || trial.UntilStep != 4 || trial.LeaseCount != 2 {
		t.Errorf("it is %s until step %d, with %d leases", state.TrialWord(trial.State), trial.UntilStep, trial.LeaseCount)
	}
}

// weighing records the weights that the policy sees.
type weighing struct {
	policy.Policy
	seen map[string]float64
}

func (w weighing) Decide(v *policy.View) policy.Plan {
	for _, a := range v.Apps {
		w.seen[a.ID] = a.Weight
	}
	return w.Policy.Decide(v)
}

// The policy decides with a sweep's new weight at once.
func TestANewWeightReachesThePolicy(t *testing.T) {
	t.Parallel()
	w := weighing{baseline.FIFO{}, map[string]float64{}}
	b := benchOf(t, control.NewCore(settings(), w, state.New()), 1, sim.Sweep("s", "min", 2, sim.Tuner("random", map[string]int64{"max_steps": 2})))
	if w.seen["s-1"] != 1 {
		t.Fatalf("the policy saw weight %v", w.seen["s-1"])
	}
	b.step(control.Extend{Request: &outbidv1.ExtendSweepRequest{Sweep: "s-1", Weight: new(2.5)}, Done: func(_ []*outbidv1.TrainedAgain, err error) {
		if err != nil {
			t.Error(err)
		}
	}})
	tenant := state.TenantOf(b.core.State().Sweeps["s-1"].Spec)
	if w.seen["s-1"] != 2.5 || b.core.State().MeanWeight(tenant) != 2.5 {
		t.Errorf("the policy saw weight %v, the tenant's mean is %v", w.seen["s-1"], b.core.State().MeanWeight(tenant))
	}
}

// A sweep that has ended does not continue, and so does not end again later, because its weight or concurrency changes.
func TestAWeightAloneDoesNotReopenASweep(t *testing.T) {
	t.Parallel()
	stop := func(b *bench) {
		fork := b.lead(0)
		b.command(outbidv1.SweepCommand_SWEEP_COMMAND_STOP)
		b.say([]*outbidv1.UplinkMessage{{Fork: fork, Kind: &outbidv1.UplinkMessage_Ended{Ended: &outbidv1.ForkEnded{Outcome: outbidv1.ForkOutcome_FORK_OUTCOME_ORDERED}}}})
	}
	for name, end := range map[string]func(*bench){"done": func(b *bench) { b.finish(0) }, "stopped": stop} {
		b := newBench(t, 1, sim.Sweep("s", "min", 1, sim.Tuner("random", map[string]int64{"max_steps": 2})))
		end(b)
		b.step()
		s := b.core.State().Sweeps["s-1"]
		if state.SweepWord(s.State) != name {
			t.Fatalf("the sweep is %s, not %s", state.SweepWord(s.State), name)
		}
		extend := func(req *outbidv1.ExtendSweepRequest) (err error) {
			req.Sweep = "s-1"
			b.step(control.Extend{Request: req, Done: func(_ []*outbidv1.TrainedAgain, problem error) { err = problem }})
			return err
		}
		for _, req := range []*outbidv1.ExtendSweepRequest{
			{Weight: new(2.5)},
			{Weight: new(2.5), Preview: true},
			{Limits: &outbidv1.Limits{Concurrency: 7}},
			{Limits: &outbidv1.Limits{Concurrency: 7}, Weight: new(2.5)},
		} {
			err := extend(req)
			if !errors.Is(err, state.ErrConflict) || !strings.Contains(err.Error(), "weight or concurrency alone gives it nothing to train; give more trials") {
				t.Errorf("%v of a sweep that is %s: %v", req, name, err)
			}
		}
		if state.SweepWord(s.State) != name || s.Spec.GetWeight() == 2.5 {
			t.Errorf("the sweep is %s with weight %v", state.SweepWord(s.State), s.Spec.GetWeight())
		}
		if err := extend(&outbidv1.ExtendSweepRequest{Trials: new(int32(2)), Weight: new(2.5)}); err != nil || s.Done() || s.Spec.GetWeight() != 2.5 {
			t.Errorf("with more trials it is %s with weight %v: %v", state.SweepWord(s.State), s.Spec.GetWeight(), err)
		}
	}
}
