package tuner

import (
	"fmt"
	"maps"
	"math"
	"slices"
)

// patient stops a trial that no longer improves, like Optuna's PatientPruner and the early stopping of Keras (Prechelt,
// "Early Stopping - But When?", 1998): its best metric has not improved by more than min_delta for patience steps. It
// compares a trial only with itself, so that it suits sweeps of few trials, and trials that overfit.
//
// Reports without the metric are ignored. NaN is never an improvement.
type patient struct {
	*singleStage
	// best is the last improvement of each trial that has not ended.
	best map[Trial]improvement
}

// An improvement is a step at which a trial's best cost improved.
type improvement struct {
	Trial Trial
	Step  int64
	Cost  float64
}

// patientState is the part of a snapshot besides the trials.
type patientState struct {
	Best []improvement
	Flat singleStageState
}

func patientKind() *kind {
	return &kind{
		name: "patient", rule: true, Traits: Traits{Endless: true},
		fresh: func(c *core) (rules, error) { return &patient{newSampled(c), map[Trial]improvement{}}, nil },
	}
}

func (p *patient) reported(e Reported) {
	_, given := e.Metrics[p.spec.GetMetric()]
	if !given && math.IsNaN(e.Metric) {
		return
	}
	set, cost := p.tuner.GetPatient(), p.cost(e.Metric)
	last, known := p.best[e.Trial]
	switch {
	case !known:
		p.best[e.Trial] = improvement{e.Trial, e.Step, cost}
	case cost < last.Cost-set.GetMinDelta(), math.IsNaN(last.Cost) && !math.IsNaN(cost):
		p.best[e.Trial] = improvement{e.Trial, e.Step, cost}
	case e.Step-last.Step >= set.GetPatience():
		delete(p.best, e.Trial)
		p.end(e.Trial, false, fmt.Sprintf("step %d: %s has not improved on %.6g since step %d", e.Step, p.metricName(),
			p.cost(last.Cost), last.Step))
	}
}

func (p *patient) handleExit(e Exited, _ phase) { delete(p.best, e.Trial) }

func (p *patient) save() (any, error) {
	s := patientState{Flat: p.singleStageState}
	for _, t := range slices.Sorted(maps.Keys(p.best)) {
		s.Best = append(s.Best, p.best[t])
	}
	return s, nil
}

func (p *patient) load(decode func(any) error) error {
	var s patientState
	if err := decode(&s); err != nil {
		return err
	}
	p.singleStageState = s.Flat
	for _, b := range s.Best {
		p.best[b.Trial] = b
	}
	return p.singleStageState.check(len(p.trials))
}
