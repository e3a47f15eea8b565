// Package auto is the default tuner: Bayesian search that stops trials early where trials report steps.
//
// The training code decides when a trial ends, so the usual length of a trial is learned from those that ended. From then
// on a trial is judged at marks, steps that grow by 1.4, by its rank among the others there (package population). It is
// stopped if a new trial has a much better chance, for its steps, to become the best. Beliefs about how well ranks predict
// ends are learned from the sweep, so that few trials are stopped where early ranks mislead. A stopped trial is not
// resumed, so trials need no checkpoints.
package auto

import (
	"fmt"
	"math"
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/curve/population"
	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/engine"
	"github.com/outbid-dev/outbid/orchestrator/tuner/progress"
	"github.com/outbid-dev/outbid/orchestrator/tuner/singlestage"
)

const (
	// leastEnds is the number of trials that must have trained to the end before any is stopped.
	leastEnds = 3
	// leastReports is the number of steps that a trial must have reported before it is stopped: a trial that reports once
	// has ended.
	leastReports = 2
	// A trial is stopped if its chance for the steps that it needs is below caution times that of a new trial.
	caution = 0.5
	// Trials are judged from the part firstLook to the part lastLook of the usual length.
	firstLook, lastLook = 1.0 / 40, 0.85
)

// auto trains trials until their code ends, or until they are stopped.
type auto struct {
	*singlestage.Rules
	state
	// looks are the steps of the judgements, and the usual length; marks are the indices of their marks. Both
	// follow from the length.
	looks   []int64
	marks   []int
	gittins *population.GittinsIndex
}

// state is the part of a snapshot besides the trials and their curves.
type state struct {
	// Length is the usual length, or 0 before it is known. Ends is the number of trials that it follows from.
	Length int64
	Ends   int
	// Beliefs are how well ranks were found to predict ends. Judged is the number of judgements since the last change of
	// Length or Ends.
	Beliefs population.Beliefs
	Judged  int
	Flat    singlestage.State
}

// beliefsEvery is the number of judgements between two updates of Beliefs, which take longer than a judgement.
const beliefsEvery = 8

// Kind describes the tuner to the registry.
func Kind() *engine.Kind {
	return &engine.Kind{
		Name: "auto", Rule: true, Curves: true, Traits: tuner.Traits{Endless: true},
		Fresh: func(c *engine.Core) (engine.Rules, error) { return &auto{Rules: singlestage.NewSampled(c)}, nil },
	}
}

// Reported implements engine.Rules.
func (a *auto) Reported(e tuner.Reported) {
	if a.Passed && a.Curves.Trials[e.Trial].Reports >= leastReports && a.stops() {
		a.judge(e.Trial, e.Step)
	}
}

// stops reports whether enough trials have ended after several looks for others to be stopped. It updates the looks.
func (a *auto) stops() bool {
	var lengths []int64
	for _, c := range a.Curves.Trials[a.Curves.First():] {
		if c.Whole && c.Reports > 0 {
			lengths = append(lengths, c.Step)
		}
	}
	if len(lengths) < leastEnds {
		return false
	}
	slices.Sort(lengths)
	length := a.Steps
	if length == 0 {
		length = rounded(lengths[len(lengths)/2])
	}
	if length != a.Length {
		a.setLooks(length)
	}
	if length != a.Length || len(lengths) != a.Ends {
		a.Length, a.Ends, a.Judged = length, len(lengths), 0
	}
	return len(a.marks) > 0
}

// rounded returns a length with an error of at most 5 %, so that looks seldom change.
func rounded(length int64) int64 {
	return int64(math.Round(math.Exp2(math.Round(8*math.Log2(float64(length))) / 8)))
}

func (a *auto) setLooks(length int64) {
	a.looks, a.marks = nil, nil
	for k := 0; k < progress.MaxMarks && float64(progress.Mark(k)) < lastLook*float64(length); k++ {
		if m := progress.Mark(k); float64(m) >= firstLook*float64(length) {
			a.looks, a.marks = append(a.looks, m), append(a.marks, k)
		}
	}
	a.looks = append(a.looks, length)
	a.gittins = population.NewGittinsIndex(a.looks)
}

// judge stops a trial if it has little chance for the steps that it needs.
func (a *auto) judge(t tuner.Trial, step int64) {
	length, index := a.Length, int(t)-a.Curves.First()
	if step < a.looks[0] || step >= length || index < 0 {
		return
	}
	curves := a.known()
	if costs := curves[index].Costs; len(costs) == 0 || math.IsNaN(costs[len(costs)-1]) {
		return
	}
	if a.Judged%beliefsEvery == 0 {
		a.Beliefs = population.Believe(curves, a.gittins)
	}
	a.Judged++
	m := population.Learn(curves, population.Settings{Gittins: a.gittins, Beliefs: a.Beliefs})
	own, fresh := m.Chances(index)
	if left := float64(length-step) / float64(length); own >= caution*fresh*left {
		return
	}
	place, of := m.Standing(index)
	a.End(t, false, fmt.Sprintf("step %d of about %d: number %d of %d by %s; its chance to become the best is %.2g, that of a new trial %.2g",
		step, length, place, of, a.MetricName(), own, fresh))
}

// known returns the costs at the looks of the trials whose curves are kept.
func (a *auto) known() []population.Curve {
	var curves []population.Curve
	for _, c := range a.Curves.Trials[a.Curves.First():] {
		ended := c.Reports > 0 && (c.Whole || c.Step >= a.Length)
		var costs []float64
		for _, k := range a.marks {
			switch {
			case k < len(c.Costs):
				costs = append(costs, c.Costs[k])
			case ended: // it was shorter than usual
				costs = append(costs, c.Last)
			}
		}
		if ended {
			costs = append(costs, c.Last)
		}
		curves = append(curves, population.Curve{Costs: costs})
	}
	return curves
}

// Save implements engine.Rules.
func (a *auto) Save() (any, error) {
	a.Flat = a.State
	return a.state, nil
}

// Load implements engine.Rules.
func (a *auto) Load(decode func(any) error) error {
	if err := decode(&a.state); err != nil {
		return err
	}
	if a.Length < 0 {
		return tuner.ErrBadSnapshot
	}
	if !a.Beliefs.Whole() { // none yet, or written by a version with other models
		a.Judged = 0
	}
	if a.Length > 0 {
		a.setLooks(a.Length)
	}
	a.State = a.Flat
	return a.State.Check(len(a.Trials))
}
