package sim

import (
	"fmt"
	"math"
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// stepBook counts what trials trained: the steps that their forks did, when the ledger counts them.
type stepBook struct {
	// done is the step of each trial's last save, or of its end: the sum of the steps of its leading leases. lines are
	// the steps of the running forks' last saves, by lease.
	done  map[trialKey]float64
	lines map[uint64]float64
	// begin are the steps from which forks that have not begun may begin, by lease, if their trial has several: the
	// trial's saved step when the second was granted, and those since.
	begin map[uint64]starts
	// checkpoints are the readable checkpoints of each trial, oldest first.
	checkpoints map[trialKey][]checkpoint
	// unheard are the steps that forks trained for each checkpoint that is not in the ledger yet, in order of saving.
	unheard map[string][]float64
	// finishing are the steps that forks trained until their code ended, by lease. last is the lease of each trial that
	// leads, or led.
	finishing map[uint64]float64
	last      map[trialKey]uint64
	// over are the trials whose code ended: later saves of their other forks do not count. gave is the step of a trial
	// when its lead ended while it had other forks.
	over map[trialKey]bool
	gave map[trialKey]handedOver
	// clones are trials that continued from another trial. forked are trials in which several forks trained a part.
	clones, forked map[trialKey]bool
	// exact is the world's map of the exact step of each checkpoint, by key.
	exact map[string]float64
}

// standing is the position of a lease among those that its trial holds.
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

func newStepBook(exact map[string]float64) *stepBook {
	return &stepBook{
		done: map[trialKey]float64{}, lines: map[uint64]float64{}, begin: map[uint64]starts{}, checkpoints: map[trialKey][]checkpoint{}, unheard: map[string][]float64{},
		finishing: map[uint64]float64{}, last: map[trialKey]uint64{}, over: map[trialKey]bool{}, gave: map[trialKey]handedOver{},
		clones: map[trialKey]bool{}, forked: map[trialKey]bool{}, exact: exact,
	}
}

func (b *stepBook) saving(key string, steps float64) { b.unheard[key] = append(b.unheard[key], steps) }

func (b *stepBook) granted(key trialKey, l standing) {
	if l.leads {
		b.last[key] = l.lease
		delete(b.over, key)
		delete(b.gave, key)
		return
	}
	b.begin[l.lease] = starts{key, []float64{b.saveOf(key)}}
	lead := b.last[key]
	_, began := b.lines[lead]
	if _, noted := b.begin[lead]; !began && !noted {
		b.begin[lead] = starts{key, []float64{b.saveOf(key)}}
	}
}

// ended handles the end of a lease. finishing is kept, because it may still be needed.
func (b *stepBook) ended(lease uint64) {
	delete(b.lines, lease)
	delete(b.begin, lease)
}

// lead makes another lease the leading one. If the trial continues, it is at that fork's step.
func (b *stepBook) lead(key trialKey, lease uint64, goesOn bool) {
	b.gave[key] = handedOver{b.last[key], b.done[key]}
	b.last[key] = lease
	if !goesOn {
		return
	}
	if at, began := b.lines[lease]; began {
		b.done[key] = at
	}
}

// saved handles a checkpoint in the ledger. It does not count if the trial has since become a clone of another (stale).
// A checkpoint of a fork that does not lead is inserted before the newest one, because no process begins from it while
// the lead has one. The same holds for one of an ending lead that is behind the newest.
func (b *stepBook) saved(key trialKey, l standing, name string, stale bool) {
	steps := b.heard(name)
	if stale {
		return
	}
	b.lines[l.lease] += steps
	if c := b.checkpoints[key]; len(c) > 0 && c[0].foreign {
		b.checkpoints[key] = nil // it has its own checkpoint now
	}
	at, done := len(b.checkpoints[key]), b.lines[l.lease]
	if at > 0 {
		newest := b.checkpoints[key][at-1]
		if newest.lease != l.lease && (!l.leads || l.ends && int64(newest.done+rounding) > int64(done+rounding)) {
			at--
		}
	}
	if l.leads && at == len(b.checkpoints[key]) && !b.over[key] {
		b.done[key] = done
	}
	b.checkpoints[key] = slices.Insert(b.checkpoints[key], at, checkpoint{key: name, done: done, lease: l.lease})
	for lease, begin := range b.begin {
		if begin.key == key {
			b.begin[lease] = starts{key, append(begin.at, b.saveOf(key))}
		}
	}
}

// heard returns the steps that a fork trained for a checkpoint that is now in the ledger.
func (b *stepBook) heard(name string) (steps float64) {
	if heard := b.unheard[name]; len(heard) > 0 {
		steps, b.unheard[name] = heard[0], heard[1:]
	}
	if len(b.unheard[name]) == 0 {
		delete(b.unheard, name)
	}
	return steps
}

// together handles the end of a round of forks: the trial continues from the named checkpoint, or where they began if
// it is "".
func (b *stepBook) together(key trialKey, step int64, name string) {
	b.done[key], b.forked[key] = float64(step), true
	delete(b.over, key)
	if name != "" {
		b.checkpoints[key] = append(b.checkpoints[key], checkpoint{key: name, done: float64(step)})
	}
}

// dropped removes a checkpoint.
func (b *stepBook) dropped(key trialKey, name string) {
	b.checkpoints[key] = slices.DeleteFunc(b.checkpoints[key], func(c checkpoint) bool { return c.key == name })
}

// cloned handles a trial that continues from another's checkpoint.
func (b *stepBook) cloned(key trialKey, from string, step float64) {
	b.clones[key] = true
	b.done[key] = step
	b.checkpoints[key] = []checkpoint{{key: from, done: step, foreign: true}}
}

// rounding is the tolerance for sums of steps.
const rounding = 1e-6

// saveOf returns the step of a trial's checkpoint of record.
func (b *stepBook) saveOf(key trialKey) float64 {
	saved := b.checkpoints[key]
	if len(saved) == 0 {
		return 0
	}
	last := saved[len(saved)-1]
	// The source of a clone may have saved again at the same whole step, under the same key.
	if exact, ok := b.exact[last.key]; ok && last.foreign {
		return exact
	}
	return last.done
}

// started checks that a fork continues from exactly the saved step. With other forks, it may have been ordered to start
// before they saved again.
func (b *stepBook) started(key trialKey, l standing, from int64) error {
	done := b.saveOf(key)
	is := func(done float64) bool { return int64(done) == from || int64(done+rounding) == from }
	if begin := b.begin[l.lease].at; !is(done) {
		if i := slices.IndexFunc(begin, is); i >= 0 {
			done = begin[i]
		}
	}
	delete(b.begin, l.lease)
	if b.lines[l.lease] = done; l.leads {
		b.done[key] = done
	}
	if !is(done) {
		return fmt.Errorf("trial %d of %s starts from step %d, but its leases trained %g", key.trial, key.sweep, from, done)
	}
	return nil
}

// finished handles the end of a trial's code under the leading lease.
func (b *stepBook) finished(key trialKey) {
	b.over[key] = true
	if gave, ok := b.gave[key]; ok {
		if steps, finished := b.finishing[gave.lease]; finished {
			b.done[key] = gave.done + steps
			delete(b.finishing, gave.lease)
			return
		}
	}
	b.done[key] += b.finishing[b.last[key]]
	delete(b.finishing, b.last[key])
}

// end checks that a completed trial trained all its steps: until its target, or until its code ends after steps (0 for
// never).
func (b *stepBook) end(key trialKey, t *state.Trial, steps float64) error {
	if t.State != outbidv1.TrialState_TRIAL_STATE_COMPLETED {
		return nil
	}
	done, until := b.done[key], float64(t.UntilStep)
	if until > 0 && (steps == 0 || until < steps) {
		steps = until
	}
	if b.clones[key] || b.forked[key] {
		done = math.Min(done, steps) // it may have continued from a step after its own end
	}
	if steps > 0 && math.Abs(done-steps) > 1e-6*steps+1e-3 {
		return fmt.Errorf("trial %d of %s completed after %g of %g steps", key.trial, key.sweep, done, steps)
	}
	return nil
}
