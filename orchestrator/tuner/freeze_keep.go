package tuner

import (
	"fmt"
	"maps"
	"math"
	"slices"
)

// Kept trials are trained to the end whatever is said of them. Where standings tell of ends they get few of the steps: just enough to see that
// standings still do. Where they do not, or nobody knows yet, kept trials get nearly all: new trials are begun, each is looked at early, and all but
// the worst go on to the end. Such a sweep is random search but for this one early cut, which costs it hardly an end.

const (
	// leastKept is the part of all steps that kept trials get at least, and doubtKept what they get where standings are trusted by no more than a half.
	leastKept, doubtKept = 0.03, 0.9
	// worstKept is the part of the trials at a look of which none is kept. For that they must have had keptFrom of all of training. Trained to
	// the end but for the worst third after 6 %, as many steps left a regret of 0.20 on AlgoPerf's fourteen tasks where all trained to the end
	// left 0.24, and less on twelve of them; to cut later, or again, or more, helped some and cost others more than that.
	worstKept, keptFrom = 1.0 / 3, 0.06
)

// kept is the part of all steps that kept trials get.
func (z *freeze) kept() float64 {
	return max(leastKept, doubtKept*min(1, 2*(1-z.Beliefs.Trust())))
}

// owing reports whether kept trials have not had their part of the steps: at the very first, and once it is known how much trials differ.
func (z *freeze) owing() bool {
	return float64(z.Given) <= z.kept()*float64(z.Spent) && (len(z.trials) == 0 || !z.narrow())
}

// young reports whether a trial was not trained for long enough to say whether it is to be kept.
func (z *freeze) young(w *frozen) bool { return float64(w.Step) < keptFrom*float64(z.steps()) }

// keepable reports whether a trial that is not young is to be kept: it is not among the worst. The index is its place among those that live, by number.
func (z *freeze) keepable(index int) bool {
	place, of := z.look().model.Standing(index)
	return float64(place)-0.5 <= (1-worstKept)*float64(of)
}

// nextKept is the trial that waits and is the next to get what kept ones are owed: the oldest that is to be kept, or else that is too young to say. Nil if there
// is none.
func (z *freeze) nextKept() *frozen {
	var young *frozen
	for i, t := range slices.Sorted(maps.Keys(z.live)) {
		w := z.live[t]
		switch {
		case z.trials[t].phase != paused:
		case !z.young(w) && z.keepable(i):
			return w
		case z.young(w) && young == nil:
			young = w
		}
	}
	return young
}

// keep gives a trial some of what kept ones are owed, and says what for: its next look if it is young, and otherwise all of training.
func (z *freeze) keep(w *frozen) string {
	if z.young(w) {
		z.Given = plus(z.Given, z.next(w.Step)-w.Step)
		return fmt.Sprintf("trained for %s before it is said whether it is kept", count(int(math.Ceil(keptFrom*float64(z.steps()))), "step"))
	}
	w.Kept = true
	z.Given = plus(z.Given, z.steps()-w.Step)
	return z.keeps()
}

// keeps says why a trial is kept.
func (z *freeze) keeps() string {
	return fmt.Sprintf("kept, one of the %.0f %% of steps that go to trials that are trained to the end whatever is said of them", 100*z.kept())
}
