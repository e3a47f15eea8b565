package tuning

import (
	"github.com/outbid-dev/outbid/orchestrator/state"
	"github.com/outbid-dev/outbid/orchestrator/tuner"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// TrainedAgain returns which trials of a sweep would repeat steps if it were extended: those that its tuner continues
// and whose newest checkpoint was dropped when they ended. It asks a copy of the tuner. Trials that the tuner would
// continue only after further results are not known. Nor are those of a remote tuner, for which all candidates are
// returned.
func (tu *Tuning) TrainedAgain(s *state.Sweep, wider *outbidv1.SweepSpec) []*outbidv1.TrainedAgain {
	var again []*outbidv1.TrainedAgain
	for _, n := range goOn(tu.copyTuner(s), s, wider) {
		t, err := s.Trial(n)
		if err != nil || t.State != outbidv1.TrialState_TRIAL_STATE_COMPLETED || t.Retries > 0 {
			continue
		}
		if from := t.From().GetStep(); from < t.Step {
			again = append(again, &outbidv1.TrainedAgain{Trial: n, FromStep: from, Step: t.Step})
		}
	}
	return again
}

// goOn lists the completed trials that an extension continues, by number. copied is a copy of the sweep's tuner, or nil.
func goOn(copied tuner.Tuner, s *state.Sweep, wider *outbidv1.SweepSpec) []int32 {
	if copied == nil && tuner.MaxSteps(wider.GetTuner()) == tuner.MaxSteps(s.Spec.GetTuner()) {
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
				break // the extension itself will return this error
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

// copyTuner returns a copy of the sweep's tuner, or nil if the tuner is remote or does not start.
func (tu *Tuning) copyTuner(s *state.Sweep) tuner.Tuner {
	snapshot := tu.archived[s.ID].snapshot
	if t := tu.tuners[s.ID]; t != nil {
		data, err := t.Snapshot()
		if err != nil {
			return nil
		}
		snapshot = data
	}
	if snapshot == nil || s.Spec.GetTuner().GetPlugin() != nil {
		return nil
	}
	t, err := tu.make(settingsOf(s), snapshot)
	if err != nil {
		return nil
	}
	return t
}
