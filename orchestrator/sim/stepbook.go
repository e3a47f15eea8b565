package sim

import (
	"fmt"
	"math"
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// stepChecker counts what trials trained: the steps that their forks did, when the ledger counts them.
type stepChecker struct {
	// done is the step of each trial's last save, or of its end: the sum of the steps of its leading leases. forkSteps
	// are the steps of the running forks' last saves, by lease.
	done      map[trialKey]float64
	forkSteps map[uint64]float64
	// startSteps are the steps from which forks that have not begun may begin, by lease, if their trial has several: the
	// trial's saved step when the second was granted, and those since.
	startSteps map[uint64]starts
	// checkpoints are the readable checkpoints of each trial, oldest first.
	checkpoints map[trialKey][]checkpoint
	// unconfirmed are the steps that forks trained for each checkpoint that is not in the ledger yet, in order of saving.
	unconfirmed map[string][]float64
	// finishing are the steps that forks trained until their code ended, by lease. last is the lease of each trial that
	// leads, or led.
	finishing map[uint64]float64
	last      map[trialKey]uint64
	// codeEnded are the trials whose code ended: later saves of their other forks do not count. handovers are the steps of
	// trials when their lead ended while it had other forks.
	codeEnded map[trialKey]bool
	handovers map[trialKey]handedOver
	// clones are trials that continued from another trial. forked are trials in which several forks trained a part.
	clones, forked map[trialKey]bool
	// exact is the world's map of the exact step of each checkpoint, by key.
	exact map[string]float64
}

// standing is the position of a lease among the leases of its trial.
type standing struct {
	lease uint64
	// leads is set for the oldest lease, ends for one that was revoked.
	leads, ends bool
}

type handedOver struct {
	lease uint64
	done  float64
}

type starts struct {
	key trialKey
	at  []float64
}

type checkpoint struct {
	key string
	// done is the step of the checkpoint.
	done float64
	// lease is the lease that it was saved under. foreign is set if it belongs to the trial that this one was cloned
	// from.
	lease   uint64
	foreign bool
}

func newStepChecker(exact map[string]float64) *stepChecker {
	return &stepChecker{
		done: map[trialKey]float64{}, forkSteps: map[uint64]float64{}, startSteps: map[uint64]starts{}, checkpoints: map[trialKey][]checkpoint{}, unconfirmed: map[string][]float64{},
		finishing: map[uint64]float64{}, last: map[trialKey]uint64{}, codeEnded: map[trialKey]bool{}, handovers: map[trialKey]handedOver{},
		clones: map[trialKey]bool{}, forked: map[trialKey]bool{}, exact: exact,
	}
}

func (s *stepChecker) addUnconfirmed(key string, steps float64) {
	s.unconfirmed[key] = append(s.unconfirmed[key], steps)
}

func (s *stepChecker) handleGrant(key trialKey, l standing) {
	if l.leads {
		s.last[key] = l.lease
		delete(s.codeEnded, key)
		delete(s.handovers, key)
		return
	}
	s.startSteps[l.lease] = starts{key, []float64{s.savedStep(key)}}
	lead := s.last[key]
	_, began := s.forkSteps[lead]
	if _, noted := s.startSteps[lead]; !began && !noted {
		s.startSteps[lead] = starts{key, []float64{s.savedStep(key)}}
	}
}

// handleLeaseEnd handles the end of a lease. finishing is kept, because it may still be needed.
func (s *stepChecker) handleLeaseEnd(lease uint64) {
	delete(s.forkSteps, lease)
	delete(s.startSteps, lease)
}

// changeLead makes another lease the leading one. If the trial continues, it is at that fork's step.
func (s *stepChecker) changeLead(key trialKey, lease uint64, goesOn bool) {
	s.handovers[key] = handedOver{s.last[key], s.done[key]}
	s.last[key] = lease
	if !goesOn {
		return
	}
	if at, began := s.forkSteps[lease]; began {
		s.done[key] = at
	}
}

// handleSave handles a checkpoint in the ledger. It does not count if the trial has since become a clone of another
// (stale). A checkpoint of a fork that does not lead is inserted before the newest one, because no process begins from
// it while the lead has one. The same holds for one of an ending lead that is behind the newest.
func (s *stepChecker) handleSave(key trialKey, l standing, name string, stale bool) {
	steps := s.confirm(name)
	if stale {
		return
	}
	s.forkSteps[l.lease] += steps
	if c := s.checkpoints[key]; len(c) > 0 && c[0].foreign {
		s.checkpoints[key] = nil // it has its own checkpoint now
	}
	at, done := len(s.checkpoints[key]), s.forkSteps[l.lease]
	if at > 0 {
		newest := s.checkpoints[key][at-1]
		if newest.lease != l.lease && (!l.leads || l.ends && int64(newest.done+rounding) > int64(done+rounding)) {
			at--
		}
	}
	if l.leads && at == len(s.checkpoints[key]) && !s.codeEnded[key] {
		s.done[key] = done
	}
	s.checkpoints[key] = slices.Insert(s.checkpoints[key], at, checkpoint{key: name, done: done, lease: l.lease})
	for lease, begin := range s.startSteps {
		if begin.key == key {
			s.startSteps[lease] = starts{key, append(begin.at, s.savedStep(key))}
		}
	}
}

// confirm removes and returns the steps that a fork trained for a checkpoint that is now in the ledger.
func (s *stepChecker) confirm(name string) (steps float64) {
	if heard := s.unconfirmed[name]; len(heard) > 0 {
		steps, s.unconfirmed[name] = heard[0], heard[1:]
	}
	if len(s.unconfirmed[name]) == 0 {
		delete(s.unconfirmed, name)
	}
	return steps
}

// handleSlotEnd handles the end of a fork slot: the trial continues from the named checkpoint, or where they
// began if it is "".
func (s *stepChecker) handleSlotEnd(key trialKey, step int64, name string) {
	s.done[key], s.forked[key] = float64(step), true
	delete(s.codeEnded, key)
	if name != "" {
		s.checkpoints[key] = append(s.checkpoints[key], checkpoint{key: name, done: float64(step)})
	}
}

// dropCheckpoint removes a checkpoint.
func (s *stepChecker) dropCheckpoint(key trialKey, name string) {
	s.checkpoints[key] = slices.DeleteFunc(s.checkpoints[key], func(c checkpoint) bool { return c.key == name })
}

// handleClone handles a trial that continues from another's checkpoint.
func (s *stepChecker) handleClone(key trialKey, from string, step float64) {
	s.clones[key] = true
	s.done[key] = step
	s.checkpoints[key] = []checkpoint{{key: from, done: step, foreign: true}}
}

// rounding is the tolerance for sums of steps.
const rounding = 1e-6

// savedStep returns the step of a trial's checkpoint of record.
func (s *stepChecker) savedStep(key trialKey) float64 {
	saved := s.checkpoints[key]
	if len(saved) == 0 {
		return 0
	}
	last := saved[len(saved)-1]
	// The source of a clone may have saved again at the same whole step, under the same key.
	if exact, ok := s.exact[last.key]; ok && last.foreign {
		return exact
	}
	return last.done
}

// checkStart checks that a fork continues from exactly the saved step. With other forks, it may have been ordered to start
// before they saved again.
func (s *stepChecker) checkStart(key trialKey, l standing, from int64) error {
	done := s.savedStep(key)
	is := func(done float64) bool { return int64(done) == from || int64(done+rounding) == from }
	if begin := s.startSteps[l.lease].at; !is(done) {
		if i := slices.IndexFunc(begin, is); i >= 0 {
			done = begin[i]
		}
	}
	delete(s.startSteps, l.lease)
	if s.forkSteps[l.lease] = done; l.leads {
		s.done[key] = done
	}
	if !is(done) {
		return fmt.Errorf("trial %d of %s starts from step %d, but its leases trained %g", key.trial, key.sweep, from, done)
	}
	return nil
}

// handleCodeEnd handles the end of a trial's code under the leading lease.
func (s *stepChecker) handleCodeEnd(key trialKey) {
	s.codeEnded[key] = true
	if gave, ok := s.handovers[key]; ok {
		if steps, finished := s.finishing[gave.lease]; finished {
			s.done[key] = gave.done + steps
			delete(s.finishing, gave.lease)
			return
		}
	}
	s.done[key] += s.finishing[s.last[key]]
	delete(s.finishing, s.last[key])
}

// checkEnd checks that a completed trial trained all its steps: until its target, or until its code ends after steps (0
// for never).
func (s *stepChecker) checkEnd(key trialKey, t *state.Trial, steps float64) error {
	if t.State != outbidv1.TrialState_TRIAL_STATE_COMPLETED {
		return nil
	}
	done, until := s.done[key], float64(t.UntilStep)
	if until > 0 && (steps == 0 || until < steps) {
		steps = until
	}
	if s.clones[key] || s.forked[key] {
		done = math.Min(done, steps) // it may have continued from a step after its own end
	}
	if steps > 0 && math.Abs(done-steps) > 1e-6*steps+1e-3 {
		return fmt.Errorf("trial %d of %s completed after %g of %g steps", key.trial, key.sweep, done, steps)
	}
	return nil
}
