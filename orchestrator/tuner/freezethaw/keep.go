package freezethaw

import (
	"fmt"
	"math"

	"github.com/dustin/go-humanize/english"

	"github.com/outbid-dev/outbid/orchestrator/tuner/engine"
	"github.com/outbid-dev/outbid/orchestrator/tuner/saturate"
)

// Kept trials are trained to the end regardless of their forecast. If ranks predict final ranks, kept trials get only
// the few steps that verify that. If ranks do not, or it is not known yet, kept trials get nearly all steps: new trials
// are begun, each is judged early, and all except the worst continue to the end. Such a sweep is random search with one
// early cut, which hardly lowers the number of completed trials.

const (
	// leastKept is the least part of all steps that kept trials get; doubtKept is their part if ranks are trusted by at
	// most a half.
	leastKept, doubtKept = 0.03, 0.9
	// No trial in the worst part worstKept at a look is kept, once it has trained for the part keptFrom of a full
	// training. With the worst third cut after 6 %, the same number of steps left a regret of 0.20 on AlgoPerf's
	// fourteen tasks, against 0.24 without a cut, and less on twelve of them. Cutting later, again or more helped on
	// some tasks and cost more on others.
	worstKept, keptFrom = 1.0 / 3, 0.06
)

// isKeptDue reports whether kept trials are due more steps. The first trial is always due; after that, none is until it
// is known how much trials differ.
func (z *freeze) isKeptDue() bool {
	return float64(z.Given) <= z.keptShare()*float64(z.Spent) && (len(z.Trials) == 0 || !z.isWarmingUp())
}

// isYoung reports whether a trial has trained too little to decide whether it is kept.
func (z *freeze) isYoung(w *frozen) bool { return float64(w.Step) < keptFrom*float64(z.Steps) }

// keepable reports whether a trial that is not young may be kept because it is not among the worst. index is its
// position among the live trials.
func (z *freeze) keepable(index int) bool {
	place, of := z.currentView().model.Standing(index)
	return float64(place)-0.5 <= (1-worstKept)*float64(of)
}

// nextKept returns the waiting trial that gets the next steps due to kept trials: the oldest one that may be kept,
// otherwise the oldest one that is still young, or nil if neither exists.
func (z *freeze) nextKept() *frozen {
	var young *frozen
	for i, t := range z.live.numbers() {
		w := z.live[t]
		switch {
		case z.Trials[t].Phase != engine.Paused:
		case !z.isYoung(w) && z.keepable(i):
			return w
		case z.isYoung(w) && young == nil:
			young = w
		}
	}
	return young
}

// assignKept assigns a trial steps that are due to kept trials and returns the reason: until its next look if it is
// young, otherwise until the end.
func (z *freeze) assignKept(w *frozen) string {
	if z.isYoung(w) {
		z.Given = saturate.Plus(z.Given, z.next(w.Step)-w.Step)
		return fmt.Sprintf("trained for %s before it is said whether it is kept", english.Plural(int(math.Ceil(keptFrom*float64(z.Steps))), "step", ""))
	}
	w.Kept = true
	z.Given = saturate.Plus(z.Given, z.Steps-w.Step)
	return z.keptReason()
}
