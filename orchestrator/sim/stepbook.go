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
	// done is how far each trial is saved, or has come at its end, as the sum of what its leases trained that led. lines are
	// how far the forks are saved that run, by lease: from where each began on.
	done  map[trialKey]float64
	lines map[uint64]float64
	// begin are the steps at which forks may begin that have not, by lease, where their trial has several: there it was saved
	// when the second was granted, and since.
	begin map[uint64]starts
	// checkpoints of each trial that can be read, oldest first.
	checkpoints map[trialKey][]checkpoint
	// unheard is what forks trained up to each checkpoint that the ledger has not heard of, in order of saving.
	unheard map[string][]float64
	// finishing is what forks trained until their code ended, by lease; last is the lease of each trial that leads, or led.
	finishing map[uint64]float64
	last      map[trialKey]uint64
	// over are the trials whose code ended by itself: what their other forks still save counts for nothing. gave is where a
	// trial was when its lead ended, beside others.
	over map[trialKey]bool
	gave map[trialKey]handedOver
	// clones go on from where others were, and of forked trials several forks trained a part.
	clones, forked map[trialKey]bool
	// exact is the world's: how far training was at each checkpoint, by its key.
	exact map[string]float64
}

// standing is what a lease is among those that its trial holds.
type standing struct {
	lease uint64
	// leads: it is the oldest; ends: it was told to end.
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
	// done at it.
	done float64
	// lease that it was saved under; foreign is another trial's, which this one is a clone of.
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

// ended: a lease is over. What its code trained until its end may still be asked for.
func (b *stepBook) ended(lease uint64) {
	delete(b.lines, lease)
	delete(b.begin, lease)
}

// lead has another lease lead a trial: the trial is where its fork is, if it goes on.
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

// saved: a checkpoint is in the ledger. One of a trial that is a clone of another by now counts for nothing. What a fork
// saves that does not lead comes before the newest, as nobody begins from it while the lead has one; so does what one saves that
// led no more than its own end, if that is further back.
func (b *stepBook) saved(key trialKey, l standing, name string, stale bool) {
	steps := b.heard(name)
	if stale {
		return
	}
	b.lines[l.lease] += steps
	if c := b.checkpoints[key]; len(c) > 0 && c[0].foreign {
		b.checkpoints[key] = nil // it has its own now
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

// heard is what a fork trained until a checkpoint, of which the ledger hears now.
func (b *stepBook) heard(name string) (steps float64) {
	if heard := b.unheard[name]; len(heard) > 0 {
		steps, b.unheard[name] = heard[0], heard[1:]
	}
	if len(b.unheard[name]) == 0 {
		delete(b.unheard, name)
	}
	return steps
}

// together: a round of forks has ended, and the trial goes on from what they saved; "" from where they began.
func (b *stepBook) together(key trialKey, step int64, name string) {
	b.done[key], b.forked[key] = float64(step), true
	delete(b.over, key)
	if name != "" {
		b.checkpoints[key] = append(b.checkpoints[key], checkpoint{key: name, done: float64(step)})
	}
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

// saveOf is how far a trial is at its checkpoint of record.
func (b *stepBook) saveOf(key trialKey) float64 {
	saved := b.checkpoints[key]
	if len(saved) == 0 {
		return 0
	}
	last := saved[len(saved)-1]
	// The source of a clone may have saved again since at the same whole step, under the same key.
	if exact, ok := b.exact[last.key]; ok && last.foreign {
		return exact
	}
	return last.done
}

// started: a fork goes on from what was saved, no more and no less. Beside others it may have been ordered to before they
// saved again.
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
		return fmt.Errorf("trial %d of %s starts from step %d; its leases trained %g", key.trial, key.sweep, from, done)
	}
	return nil
}

// finished: a trial's code ended under the lease that led.
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
	if b.clones[key] || b.forked[key] {
		done = math.Min(done, steps) // it may have gone on from beyond its own end
	}
	if steps > 0 && math.Abs(done-steps) > 1e-6*steps+1e-3 {
		return fmt.Errorf("trial %d of %s completed after %g steps of %g", key.trial, key.sweep, done, steps)
	}
	return nil
}
