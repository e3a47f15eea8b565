package sim

import (
	"fmt"
	"math"
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// stepBook counts what trials trained: what their forks say that they trained, once the ledger says that it counts.
type stepBook struct {
	// done is how far each trial is saved, or has come at its end, as the sum of what its leases trained.
	done map[trialKey]float64
	// checkpoints of each trial that can be read, oldest first.
	checkpoints map[trialKey][]checkpoint
	// unheard is what forks trained up to each checkpoint that the ledger has not heard of, in order of saving.
	unheard map[string][]float64
	// finishing is what forks trained until their code ended, by lease; last is each trial's newest lease.
	finishing map[uint64]float64
	last      map[trialKey]uint64
	// clones go on from where others were.
	clones map[trialKey]bool
	// exact is the world's: how far training was at each checkpoint, by its key.
	exact map[string]float64
}

type checkpoint struct {
	key string
	// done at it.
	done float64
	// foreign is another trial's, which this one is a clone of.
	foreign bool
}

func newStepBook(exact map[string]float64) *stepBook {
	return &stepBook{
		done: map[trialKey]float64{}, checkpoints: map[trialKey][]checkpoint{}, unheard: map[string][]float64{},
		finishing: map[uint64]float64{}, last: map[trialKey]uint64{}, clones: map[trialKey]bool{}, exact: exact,
	}
}

func (b *stepBook) saving(key string, steps float64) { b.unheard[key] = append(b.unheard[key], steps) }

func (b *stepBook) granted(key trialKey, lease uint64) { b.last[key] = lease }

// saved: a checkpoint is in the ledger. One of a trial that is a clone of another by now counts for nothing.
func (b *stepBook) saved(key trialKey, name string, stale bool) {
	steps := 0.0
	if heard := b.unheard[name]; len(heard) > 0 {
		steps, b.unheard[name] = heard[0], heard[1:]
	}
	if len(b.unheard[name]) == 0 {
		delete(b.unheard, name)
	}
	if stale {
		return
	}
	b.done[key] += steps
	if c := b.checkpoints[key]; len(c) > 0 && c[0].foreign {
		b.checkpoints[key] = nil // it has its own now
	}
	b.checkpoints[key] = append(b.checkpoints[key], checkpoint{key: name, done: b.done[key]})
}

// dropped: nothing starts from a checkpoint any more.
func (b *stepBook) dropped(key trialKey, name string) {
	b.checkpoints[key] = slices.DeleteFunc(b.checkpoints[key], func(c checkpoint) bool { return c.key == name })
}

// cloned: a trial goes on from another's checkpoint.
func (b *stepBook) cloned(key trialKey, from string, step float64) {
	b.clones[key] = true
	b.done[key] = step
	b.checkpoints[key] = []checkpoint{{key: from, done: step, foreign: true}}
}

// rounding is how far sums of steps may be off.
const rounding = 1e-6

// started: a fork goes on from what was saved, no more and no less.
func (b *stepBook) started(key trialKey, from int64) error {
	done := 0.0
	if saved := b.checkpoints[key]; len(saved) > 0 {
		last := saved[len(saved)-1]
		done = last.done
		// The source of a clone may have saved again since at the same whole step, under the same key.
		if exact, ok := b.exact[last.key]; ok && last.foreign {
			done = exact
		}
	}
	b.done[key] = done
	if int64(done) != from && int64(done+rounding) != from {
		return fmt.Errorf("trial %d of %s starts from step %d; its leases trained %g", key.trial, key.sweep, from, done)
	}
	return nil
}

// finished: a trial's code ended under its newest lease.
func (b *stepBook) finished(key trialKey) {
	b.done[key] += b.finishing[b.last[key]]
	delete(b.finishing, b.last[key])
}

// end checks that a trial that completed trained all of it: until its target, or the steps after which its code ends, 0 for
// never.
func (b *stepBook) end(key trialKey, t *state.Trial, steps float64) error {
	if t.State != outbidv1.TrialState_TRIAL_STATE_COMPLETED {
		return nil
	}
	done, until := b.done[key], float64(t.UntilStep)
	if until > 0 && (steps == 0 || until < steps) {
		steps = until
	}
	if b.clones[key] {
		done = math.Min(done, steps) // it may have gone on from beyond its own end
	}
	if steps > 0 && math.Abs(done-steps) > 1e-6*steps+1e-3 {
		return fmt.Errorf("trial %d of %s completed after %g steps of %g", key.trial, key.sweep, done, steps)
	}
	return nil
}
