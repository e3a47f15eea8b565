package tuner

import (
	"fmt"
	"maps"
	"slices"
)

// Kept trials are trained to the end whatever is said of them. Where standings tell of ends they get few of the steps: just enough to see that
// standings still do. Where they do not, or nobody knows yet, kept trials get most steps, in the order in which they were begun, so that such a
// sweep is near to random search.

const (
	// leastKept is the part of all steps that kept trials get at least, and doubtKept what they get where standings are not to be trusted at all:
	// the rest of the steps still go to what training is worth, as on most hard tasks some course fits after some ends.
	leastKept, doubtKept = 0.03, 0.6
	// worstKept is the part of the trials at a look of which none is kept that waits: on seven of eight hard tasks of development the worst eighth
	// after a 16th of training was never among the best at the end, and the next one seldom. Of all of training they must have had keptFrom for that.
	worstKept, keptFrom = 0.25, 0.06
)

// kept is the part of all steps that kept trials get.
func (z *freeze) kept() float64 { return max(leastKept, doubtKept*(1-z.Beliefs.Trust())) }

// owing reports whether the next trial that gets a device is one to keep: at the very first, and once it is known how much trials differ.
func (z *freeze) owing() bool {
	return float64(z.Given) <= z.kept()*float64(z.Spent) && (len(z.trials) == 0 || !z.narrow())
}

// keepable is the oldest trial that waits and is to be kept: it is not among the worst. Nil if there is none.
func (z *freeze) keepable() *frozen {
	for i, t := range slices.Sorted(maps.Keys(z.live)) {
		w := z.live[t]
		if z.trials[t].phase != paused || float64(w.Step) < keptFrom*float64(z.steps()) {
			continue
		}
		if place, of := z.look().model.Standing(i); float64(place)-0.5 <= (1-worstKept)*float64(of) {
			return w
		}
	}
	return nil
}

// keep trains a trial that waits to the end.
func (z *freeze) keep(w *frozen) {
	w.Kept = true
	z.Given = plus(z.Given, z.steps()-w.Step)
	z.thaw(w.Trial, z.next(w.Step), fmt.Sprintf("step %d: %s; %s", w.Step, z.keeps(), z.says(w)))
}

// keeps says why a trial is kept.
func (z *freeze) keeps() string {
	return fmt.Sprintf("kept, one of the %.0f %% of steps that go to trials that are trained to the end whatever is said of them", 100*z.kept())
}
