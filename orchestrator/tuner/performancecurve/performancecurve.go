// Package performancecurve forecasts each trial's final metric from its learning curve. The idea is that of Rasley, He,
// Yan, Ruwase and Fonseca, "HyperDrive: Exploring Hyperparameters with POP Scheduling" (Middleware 2017): the
// probability of reaching the target makes a trial promising, opportunistic or poor; poor trials are stopped, and slots
// are divided between the others. The forecasts (package curve) and the following rules are Outbid's.
//
// Every trial is judged at each interval. Without a target, its chance is the probability of ending better than the
// best known value: that of the best completed trial, or the value that another trial reaches with probability 3/4,
// whichever is better. Promising trials continue. A trial is poor if its chance is below a bound, and if its chance
// divided by its remaining steps is below that of a new trial. The chance of a new trial after n trials is 1/(n+1), the
// probability that a new draw is the best. An opportunistic trial yields its slot to a waiting or new trial with a
// better chance for its steps.
//
// Forecasts are checked when their steps are reached, and the checks calibrate later forecasts. Forecasts decide only
// if at least 20 were checked and the 90 % intervals contained 85 to 95 % of the values. Otherwise a rank rule decides:
// it asynchronously stops the worst 1/eta of the trials that reached a rung, at rungs grace_steps * eta^k. It is milder
// than ASHA because it applies where early ranks may say as little as forecasts. A share of the trials, keep, continues
// although the rules would stop them. When their forecasts are checked, they represent the trials that were stopped.
// Which trials are kept follows from the seed and the trial's number.
package performancecurve

import (
	"fmt"
	"math"
	"slices"

	"github.com/dustin/go-humanize/english"

	"github.com/outbid-dev/outbid/orchestrator/curve"
	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/engine"
	"github.com/outbid-dev/outbid/orchestrator/tuner/rank"
	"github.com/outbid-dev/outbid/orchestrator/tuner/saturate"
	"github.com/outbid-dev/outbid/orchestrator/tuner/setting"
	"github.com/outbid-dev/outbid/orchestrator/tuner/singlestage"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// performance judges trials by their forecasts.
type performance struct {
	*singlestage.Rules
	state
	// live holds the trials that have not ended.
	live map[tuner.Trial]*watched
	// running is the number of trials that should be on a device.
	running int
}

// state is the part of a snapshot besides the trials.
type state struct {
	// Interval and Grace are numbers of steps, fixed when the sweep began.
	Interval, Grace int64
	// Watched are the live trials, by number.
	Watched []watched
	// Waiting is a heap of the paused trials; the one with the best chance for its steps is on top.
	Waiting []rank.Entry
	// Rungs are the rungs of the rank rule.
	Rungs []rankRung
	// Known holds the outcomes of the forecasts.
	Known curve.Calibration
	// Best is the best completed trial if Completed is above 0.
	Best      rank.Entry
	Completed int
	// Done is the step where trials completed before an extension.
	Done int64
	// Slots is the highest number of trials that can run at once, as far as known.
	Slots int
	// Ended is the number of trials that ended, EndedSteps the sum of their steps.
	Ended      int
	EndedSteps int64
	Flat       singlestage.State
}

// A watched is the state of a live trial.
type watched struct {
	Trial  tuner.Trial
	Points []curve.Point
	// Fresh is set if a point was added since the trial was last judged. Lost is set if the newest metric was NaN.
	Fresh, Lost bool
	Claims      []curve.Claim
	// NextClaim is the step from which forecasts are kept for checking.
	NextClaim int64
	// Chance is the probability of beating the target or the best trial. Sure is the final cost that the trial beats
	// with probability sureness. Both are as of the last forecast, and NaN before the first.
	Chance, Sure float64
	// Step is the step of the trial's last judgement.
	Step int64
	// Place is the share of the trials in its last rung that were better; NaN before the first rung.
	Place float64
	// Kept is set if the trial continues although it should be stopped.
	Kept bool
}

// keepStream separates the draws that decide which trials are kept from other uses of the seed.
const keepStream = 0x6b656570

// maxKeptWeight is the maximum number of trials that a kept trial represents.
const maxKeptWeight = 20

// maxWatchedPoints is the maximum number of points that are kept of a trial.
const maxWatchedPoints = 128

// Kind describes the tuner to the registry.
func Kind() *engine.Kind {
	return &engine.Kind{
		Name: "performance_curve", Fresh: fresh, Rule: true, Traits: tuner.Traits{Endless: true, Forecasts: true},
	}
}

func fresh(c *engine.Core) (engine.Rules, error) {
	p := &performance{Rules: singlestage.NewSampled(c), live: map[tuner.Trial]*watched{}}
	set := p.settings()
	if p.Interval = set.GetInterval(); p.Interval == 0 {
		p.Interval = max(1, p.Steps/setting.Part(set.ProtoReflect(), "interval"))
	}
	if p.Grace = set.GetGraceSteps(); p.Grace == 0 {
		p.Grace = min(2*p.Interval, p.Steps)
	}
	return p, nil
}

func (p *performance) settings() *outbidv1.PerformanceCurve { return p.Tuner.GetPerformanceCurve() }

func (p *performance) poor() float64 { return p.settings().GetPoor() }

func (p *performance) keepShare() float64 { return p.settings().GetKeep() }

func (p *performance) eta() int64 { return int64(p.settings().GetEta()) }

// next returns the step after a given one when a trial is judged again.
func (p *performance) next(step int64) int64 {
	looks := step / p.Interval
	return min(p.Steps, saturate.Times(looks+1, p.Interval))
}

func (p *performance) watch(t tuner.Trial) *watched {
	w := p.live[t]
	if w == nil {
		w = &watched{Trial: t, Chance: math.NaN(), Sure: math.NaN(), Place: math.NaN(), NextClaim: p.Grace}
		p.live[t] = w
	}
	return w
}

func (p *performance) Reported(e tuner.Reported) {
	given := !math.IsNaN(e.Metric)
	if !given {
		_, given = e.Metrics[p.Spec.GetMetric()]
	}
	if given {
		p.watch(e.Trial).addPoint(e.Step, e.Metric)
	}
}

// addPoint adds a point. If there are too many points, neighbours are averaged.
func (w *watched) addPoint(step int64, metric float64) {
	w.Fresh = true
	if w.Lost = math.IsNaN(metric) || math.IsInf(metric, 0); w.Lost {
		return
	}
	if n := len(w.Points); n > 0 && step <= w.Points[n-1].Step {
		return
	}
	w.Points = append(w.Points, curve.Point{Step: step, Value: metric})
	if len(w.Points) < maxWatchedPoints {
		return
	}
	half := w.Points[:0]
	for i := 0; i+1 < len(w.Points); i += 2 {
		a, b := w.Points[i], w.Points[i+1]
		half = append(half, curve.Point{Step: b.Step, Value: a.Value/2 + b.Value/2})
	}
	w.Points = half
}

func (p *performance) Reached(e tuner.Reached) error {
	w := p.watch(e.Trial)
	w.addMetric(e)
	w.Fresh, w.Step = false, e.Step
	p.check(w, e)
	switch {
	case e.Step >= p.Steps:
		p.complete(w, e)
	case w.Lost:
		p.stop(w, fmt.Sprintf("step %d: %s is not a finite number", e.Step, p.MetricName()))
	default:
		p.judge(w, e)
	}
	return nil
}

// addMetric adds the metric of a Reached, which may repeat the newest report. NaN means that the newest report was NaN,
// or that the trial has not reported the metric.
func (w *watched) addMetric(e tuner.Reached) {
	n := len(w.Points)
	switch {
	case math.IsNaN(e.Metric) && n == 0:
	case w.Fresh && n > 0 && e.Metric == w.Points[n-1].Value:
	default:
		w.addPoint(e.Step, e.Metric)
	}
}

// check calibrates with the forecasts that were made for this step.
func (p *performance) check(w *watched, e tuner.Reached) {
	w.Claims = slices.DeleteFunc(w.Claims, func(c curve.Claim) bool {
		if c.Step == e.Step {
			value := e.Metric
			if w.Lost {
				value = math.NaN()
			}
			weight := 1.0
			if w.Kept {
				// It represents similar trials that were stopped.
				weight = min(maxKeptWeight, 1/p.keepShare())
			}
			p.Known.Learn(c, value, weight)
		}
		return c.Step <= e.Step
	})
}

func (p *performance) complete(w *watched, e tuner.Reached) {
	if now := (rank.Entry{Cost: p.Cost(e.Metric), Trial: e.Trial}); !math.IsNaN(now.Cost) {
		if p.Completed == 0 || rank.Ahead(now, p.Best) {
			p.Best = now
		}
		p.Completed++
	}
	p.drop(w)
	p.End(e.Trial, true, fmt.Sprintf("trained for all its %s", english.Plural(int(e.Step), "step", "")))
}

// stop prunes a running trial.
func (p *performance) stop(w *watched, reason string) {
	p.drop(w)
	p.End(w.Trial, false, reason)
}

// drop removes a running trial that ends now.
func (p *performance) drop(w *watched) {
	p.running--
	p.Ended++
	p.EndedSteps = saturate.Plus(p.EndedSteps, w.Step)
	delete(p.live, w.Trial)
}

func (p *performance) HandleExit(e tuner.Exited, before engine.Phase) {
	if before == engine.Running {
		p.running--
	}
	p.Ended++
	p.EndedSteps = saturate.Plus(p.EndedSteps, max(0, e.Step))
	delete(p.live, e.Trial)
}

// Extend keeps the interval. Completed trials are forecast again, because they can still improve.
func (p *performance) Extend(old tuner.Settings) error {
	if p.Steps <= tuner.MaxSteps(old.Spec.GetTuner()) {
		return nil
	}
	before := len(p.Resume)
	if err := p.Rules.Extend(old); err != nil {
		return err
	}
	again := len(p.Resume) - before
	p.Ended -= again
	p.EndedSteps = max(0, p.EndedSteps-saturate.Times(int64(again), tuner.MaxSteps(old.Spec.GetTuner())))
	p.Completed, p.Best, p.Done = 0, rank.Entry{}, tuner.MaxSteps(old.Spec.GetTuner())
	waiting := p.heap()
	items := slices.Clone(waiting.Items)
	waiting.Items = nil
	for _, e := range items {
		if w := p.live[e.Trial]; w != nil {
			waiting.Push(rank.Entry{Cost: -p.merit(w), Trial: e.Trial})
		}
	}
	p.Waiting = waiting.Items
	return nil
}
