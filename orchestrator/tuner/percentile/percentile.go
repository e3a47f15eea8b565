// Package percentile stops a trial that is not among the best at its step, like Optuna's PercentilePruner: its best
// metric so far is compared with those that other trials had at the same step.
//
// Trials are compared at checks: grace_steps, 2 grace_steps, 4 grace_steps and so on, each at the first report at or
// past it. Reports without the metric are ignored. NaN is never an improvement.
package percentile

import (
	"fmt"
	"math"
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/engine"
	"github.com/outbid-dev/outbid/orchestrator/tuner/ladder"
	"github.com/outbid-dev/outbid/orchestrator/tuner/saturate"
	"github.com/outbid-dev/outbid/orchestrator/tuner/singlestage"
)

// percentile remembers the best costs of all trials.
type percentile struct {
	*singlestage.Rules
	state
}

// state is the part of a snapshot besides the trials.
type state struct {
	// Checks lists, for each check, the best costs that trials had there, in ascending order.
	Checks [][]float64
	// Courses is indexed by trial.
	Courses []course
	Flat    singlestage.State
}

// A course is the best cost of a trial so far and the number of checks that it passed.
type course struct {
	Best   float64
	Passed int
}

// Kind describes the tuner to the registry.
func Kind() *engine.Kind {
	return &engine.Kind{
		Name: "percentile", Rule: true, Traits: tuner.Traits{Endless: true},
		Fresh: func(c *engine.Core) (engine.Rules, error) {
			return &percentile{Rules: singlestage.NewSampled(c)}, nil
		},
	}
}

func (p *percentile) Reported(e tuner.Reported) {
	if _, given := e.Metrics[p.Spec.GetMetric()]; !given && math.IsNaN(e.Metric) {
		return
	}
	for int(e.Trial) >= len(p.Courses) {
		p.Courses = append(p.Courses, course{Best: math.Inf(1)})
	}
	set, c := p.Tuner.GetPercentile(), &p.Courses[e.Trial]
	if cost := p.Cost(e.Metric); cost < c.Best {
		c.Best = cost
	}
	place, others := 0, 0
	for c.Passed < ladder.MaxRungs && saturate.Times(set.GetGraceSteps(), saturate.Power(2, c.Passed)) <= e.Step {
		place, others = p.enter(c.Passed, c.Best)
		c.Passed++
	}
	keeps := int(math.Ceil(set.GetPercentile() / 100 * float64(others+1)))
	if others >= int(set.GetMinTrials()) && place >= keeps {
		p.End(e.Trial, false, fmt.Sprintf("step %d: its best %s (%.6g) is not among the best %d of %d here", e.Step,
			p.MetricName(), p.Cost(c.Best), keeps, others+1))
	}
}

// enter adds a trial's best cost to a check. It returns the number of better ones and of all others.
func (p *percentile) enter(check int, best float64) (place, others int) {
	for len(p.Checks) <= check {
		p.Checks = append(p.Checks, nil)
	}
	others = len(p.Checks[check])
	place, _ = slices.BinarySearch(p.Checks[check], best)
	p.Checks[check] = slices.Insert(p.Checks[check], place, best)
	return place, others
}

func (p *percentile) Save() (any, error) {
	p.Flat = p.State
	return p.state, nil
}

func (p *percentile) Load(decode func(any) error) error {
	if err := decode(&p.state); err != nil {
		return err
	}
	wrong := func(c course) bool { return c.Passed < 0 || math.IsNaN(c.Best) }
	if len(p.Checks) > ladder.MaxRungs || slices.ContainsFunc(p.Courses, wrong) {
		return tuner.ErrBadSnapshot
	}
	p.State = p.Flat
	return p.State.Check(len(p.Trials))
}
