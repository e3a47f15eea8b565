package control

import (
	"github.com/outbid-dev/outbid/orchestrator/spec"
	"github.com/outbid-dev/outbid/orchestrator/state"
	"github.com/outbid-dev/outbid/orchestrator/tuner"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// trainedAgain says which trials of a sweep would train again what they had done if it were extended: those that its tuner
// lets go on, and whose newest checkpoint was dropped when they ended. The tuner is asked on a copy; what it will let go on
// only after further results is not known, nor what one in another process will do: of that one, all that could be are named.
func (c *Core) trainedAgain(s *state.Sweep, wider *outbidv1.SweepSpec) []*outbidv1.TrainedAgain {
	var again []*outbidv1.TrainedAgain
	for _, n := range c.goOn(s, wider) {
		t, err := s.Trial(n)
		if err != nil || t.State != outbidv1.TrialState_TRIAL_STATE_COMPLETED {
			continue
		}
		if from := t.From().GetStep(); from < t.Step {
			again = append(again, &outbidv1.TrainedAgain{Trial: n, FromStep: from, Step: t.Step})
		}
	}
	return again
}

// goOn lists the completed trials that go on in an extension, by number.
func (c *Core) goOn(s *state.Sweep, wider *outbidv1.SweepSpec) []int32 {
	copied := c.copyTuner(s)
	if copied == nil && spec.MaxSteps(wider.GetTuner()) == spec.MaxSteps(s.Spec.GetTuner()) {
		return nil
	}
	on := map[int32]bool{}
	note := func(actions []tuner.Action) {
		for _, a := range actions {
			if train, ok := a.(tuner.Train); ok {
				on[int32(train.Trial)] = true
			}
		}
	}
	if copied != nil {
		for _, e := range []tuner.Event{tuner.Extended{Settings: tuner.Settings{Spec: wider}}, tuner.Ask{N: len(s.Trials) + 1}} {
			actions, err := copied.Handle(e)
			if err != nil {
				break // it says so when it is extended
			}
			note(actions)
		}
	}
	var all []int32
	for _, t := range s.Trials {
		if on[t.Number] || copied == nil {
			all = append(all, t.Number)
		}
	}
	return all
}

// copyTuner returns a tuner as the sweep's is, nil for one in another process or that does not start.
func (c *Core) copyTuner(s *state.Sweep) tuner.Tuner {
	snapshot := c.archived[s.ID].snapshot
	if t := c.tuners[s.ID]; t != nil {
		data, err := t.Snapshot()
		if err != nil {
			return nil
		}
		snapshot = data
	}
	if snapshot == nil || s.Spec.GetTuner().GetPlugin() != nil {
		return nil
	}
	t, err := c.set.NewTuner(tuner.Settings{Spec: s.Spec}, snapshot)
	if err != nil {
		return nil
	}
	return t
}
