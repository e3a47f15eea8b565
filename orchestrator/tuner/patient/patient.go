// Package patient stops a trial that no longer improves, like Optuna's PatientPruner and the early stopping of Keras
// (Prechelt, "Early Stopping - But When?", 1998): its best metric has not improved by more than min_delta for patience
// steps. It compares a trial only with itself, so that it suits sweeps of few trials, and trials that overfit.
//
// Reports without the metric are ignored. NaN is never an improvement.
package patient

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/engine"
	"github.com/outbid-dev/outbid/orchestrator/tuner/singlestage"
)

// patient remembers the last improvement of each trial.
type patient struct {
	*singlestage.Rules
	// best is the last improvement of each trial that has not ended.
	best map[tuner.Trial]improvement
}

// An improvement is a step where a trial's best cost improved.
type improvement struct {
	Trial tuner.Trial
	Step  int64
	Cost  float64
}

// state is the part of a snapshot besides the trials.
type state struct {
	Best []improvement
	Flat singlestage.State
}

// Kind describes the tuner to the registry.
func Kind() *engine.Kind {
	return &engine.Kind{
		Name: "patient", Rule: true, Traits: tuner.Traits{Endless: true},
		Fresh: func(c *engine.Core) (engine.Rules, error) {
			return &patient{singlestage.NewSampled(c), map[tuner.Trial]improvement{}}, nil
		},
	}
}

func (p *patient) Reported(e tuner.Reported) {
	_, given := e.Metrics[p.Spec.GetMetric()]
	if !given && math.IsNaN(e.Metric) {
		return
	}
	set, cost := p.Tuner.GetPatient(), p.Cost(e.Metric)
	last, known := p.best[e.Trial]
	switch {
	case !known:
		p.best[e.Trial] = improvement{e.Trial, e.Step, cost}
	case cost < last.Cost-set.GetMinDelta(), math.IsNaN(last.Cost) && !math.IsNaN(cost):
		p.best[e.Trial] = improvement{e.Trial, e.Step, cost}
	case e.Step-last.Step >= set.GetPatience():
		delete(p.best, e.Trial)
		p.End(e.Trial, false, fmt.Sprintf("step %d: %s has not improved on %.6g since step %d", e.Step, p.MetricName(),
			p.Cost(last.Cost), last.Step))
	}
}

func (p *patient) HandleExit(e tuner.Exited, _ engine.Phase) { delete(p.best, e.Trial) }

func (p *patient) Save() (any, error) {
	s := state{Flat: p.State}
	for _, t := range slices.Sorted(maps.Keys(p.best)) {
		s.Best = append(s.Best, p.best[t])
	}
	return s, nil
}

func (p *patient) Load(decode func(any) error) error {
	var s state
	if err := decode(&s); err != nil {
		return err
	}
	p.State = s.Flat
	for _, b := range s.Best {
		p.best[b.Trial] = b
	}
	return p.State.Check(len(p.Trials))
}
