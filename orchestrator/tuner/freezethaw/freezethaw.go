// Package freezethaw trains many trials a little at a time, after Swersky, Snoek and Adams, "Freeze-Thaw Bayesian
// Optimization" (2014). At each look, all waiting trials and a new one are forecast (package population), and the trial
// whose steps are worth most is trained until its next look. The worth is the Gittins index of ending among the best. A
// part of the steps goes to kept trials, which are trained to the end regardless of their forecast. This part is small
// if ranks at looks predict final ranks, and nearly everything if they do not.
//
// All decisions follow from the state in a snapshot: forecasts are recomputed from the costs at the looks.
package freezethaw

import (
	"fmt"
	"math"

	"github.com/dustin/go-humanize/english"

	"github.com/outbid-dev/outbid/orchestrator/curve/population"
	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/engine"
	"github.com/outbid-dev/outbid/orchestrator/tuner/rank"
	"github.com/outbid-dev/outbid/orchestrator/tuner/sample"
	"github.com/outbid-dev/outbid/orchestrator/tuner/saturate"
	"github.com/outbid-dev/outbid/orchestrator/tuner/setting"
	"github.com/outbid-dev/outbid/orchestrator/tuner/singlestage"
	"github.com/outbid-dev/outbid/orchestrator/tuner/space"
	"github.com/outbid-dev/outbid/orchestrator/tuner/workleft"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// freeze chooses the trial to train next.
type freeze struct {
	*singlestage.Rules
	state
	// live holds the trials that have not ended.
	live map[tuner.Trial]*frozen
	// running is the number of trials that should be on a device.
	running int
	// view is the current forecast of all trials, or nil if it must be recomputed.
	view    *view
	gittins *population.GittinsIndex
}

// state is the part of a snapshot besides the trials.
type state struct {
	// Looks are the steps after which trials are judged; the last one is the end.
	Looks []int64
	// Live are the trials that have not ended, by number. Past are the most recent trials that ended.
	Live, Past []frozen
	// Scale is what was learned of configurations, Beliefs how well ranks were found to predict.
	Scale   population.Scale
	Beliefs population.Beliefs
	// Best is the trial with the best cost seen, if Seen is above 0.
	Best rank.Entry
	Seen int
	// Reaches is the number of looks that trials reached, over all trials.
	Reaches int
	Ended   int
	Worked  int64
	// Spent is the number of steps that all trials trained, Given the number of steps assigned to kept trials.
	Spent, Given int64
	// Done is the step where trials completed before an extension.
	Done int64
	Flat singlestage.State
}

// A frozen is the state of a trial.
type frozen struct {
	Trial tuner.Trial
	// X is its configuration in the unit cube, or nil if the model does not learn from it.
	X []float64
	// Costs are the costs at the looks that it reached, NaN where none was known.
	Costs []float64
	// Newest is the newest metric if Heard is set. Lost is set if it was NaN.
	Newest      float64
	Heard, Lost bool
	// Step is the step of the last look.
	Step int64
	// Kept is set if the trial is trained to the end regardless of its forecast.
	Kept bool
}

const (
	// maxPast is the maximum number of ended trials that the model learns from, maxWaiting that of waiting trials.
	maxPast, maxWaiting = 256, 256
	// beliefsEvery is the number of looks reached between updates of Beliefs; each completed trial also updates them.
	beliefsEvery = 4
)

// Kind describes the tuner to the registry.
func Kind() *engine.Kind {
	return &engine.Kind{
		Name: "freeze_thaw", Fresh: func(c *engine.Core) (engine.Rules, error) { return newFreeze(c) }, Rule: true, Traits: tuner.Traits{Endless: true, Forecasts: true},
		Sampler: func(t *outbidv1.Tuner, s *space.Space) (sample.Sampler, error) {
			name := setting.SamplerName(t)
			if name == "model" {
				name = "random" // for the configurations that the model does not choose
			}
			return sample.New(name, s, t.GetSeed())
		},
	}
}

func newFreeze(c *engine.Core) (*freeze, error) {
	z := &freeze{Rules: singlestage.NewSampled(c), live: map[tuner.Trial]*frozen{}}
	first := z.settings().GetMinSteps()
	if first == 0 {
		part := setting.Part(z.settings().ProtoReflect(), "min_steps")
		first = (z.Steps + part - 1) / part
	}
	z.Looks = looksUp(first, z.Steps)
	z.gittins = population.NewGittinsIndex(z.Looks)
	z.Scale, z.Beliefs = population.NewScale(z.Configs.Space.Dims()), population.Prior()
	return z, nil
}

func (z *freeze) settings() *outbidv1.FreezeThaw { return z.Tuner.GetFreezeThaw() }

// looksUp returns the steps of the looks from first to last, each about 1.4 times the one before.
func looksUp(first, last int64) []int64 {
	var looks []int64
	for at := float64(first); at < float64(last)*0.85; at *= math.Sqrt2 {
		if step := int64(math.Round(at)); len(looks) == 0 || step > looks[len(looks)-1] {
			looks = append(looks, step)
		}
	}
	return append(looks, last)
}

// modelled reports whether the model chooses configurations. Otherwise they are drawn, and the model does not learn
// from them.
func (z *freeze) modelled() bool { return z.settings().GetSampler() == "model" }

func (z *freeze) poor() float64 { return z.settings().GetPoor() }

// next returns the first look after a step.
func (z *freeze) next(step int64) int64 {
	for _, look := range z.Looks {
		if look > step {
			return look
		}
	}
	return z.Steps
}

func (z *freeze) Reported(e tuner.Reported) {
	given := !math.IsNaN(e.Metric)
	if !given {
		_, given = e.Metrics[z.Spec.GetMetric()]
	}
	if w := z.live[e.Trial]; given && w != nil {
		z.recordMetric(w, e.Metric)
	}
}

// recordMetric records a metric.
func (z *freeze) recordMetric(w *frozen, metric float64) {
	w.Newest, w.Heard, w.Lost = metric, true, math.IsNaN(metric) || math.IsInf(metric, 0)
	if w.Lost {
		return
	}
	if now := (rank.Entry{Cost: z.Cost(metric), Trial: w.Trial}); z.Seen == 0 || rank.Ahead(now, z.Best) {
		z.Best = now
	}
	z.Seen++
}

func (z *freeze) Reached(e tuner.Reached) error {
	w := z.live[e.Trial]
	if w == nil {
		return fmt.Errorf("trial %d reached a step, but it is not running", e.Trial)
	}
	if !math.IsNaN(e.Metric) || w.Heard {
		z.recordMetric(w, e.Metric)
	}
	z.Spent = saturate.Plus(z.Spent, max(0, e.Step-w.Step))
	z.recordCosts(w, e.Step)
	z.view = nil
	if z.Reaches++; z.Reaches%beliefsEvery == 0 {
		z.Beliefs = population.Believe(z.curves(), z.gittins)
	}
	if z.modelled() && !w.Lost && e.Step < z.Steps {
		z.view = z.forecastAll(scaleTries)
	}
	switch {
	case e.Step >= z.Steps:
		z.stop(w, true, fmt.Sprintf("trained for all its %s", english.Plural(int(e.Step), "step", "")))
		z.Beliefs = population.Believe(z.curves(), z.gittins)
	case w.Lost:
		z.stop(w, false, fmt.Sprintf("step %d: %s is not a finite number", e.Step, z.MetricName()))
	default:
		z.judge(w)
	}
	return nil
}

// recordCosts records the newest cost at the look of a step. A diverged trial keeps infinite cost.
func (z *freeze) recordCosts(w *frozen, step int64) {
	for k, look := range z.Looks {
		if look > step && !w.Lost {
			break
		}
		if k < len(w.Costs) {
			continue
		}
		cost := math.NaN()
		switch {
		case w.Lost:
			cost = math.Inf(1)
		case look == step && w.Heard:
			cost = z.Cost(w.Newest)
		}
		w.Costs = append(w.Costs, cost)
	}
	w.Step = step
}

// stop ends a running or waiting trial.
func (z *freeze) stop(w *frozen, whole bool, reason string) {
	z.moveToPast(w, z.Trials[w.Trial].Phase == engine.Running, w.Step)
	z.End(w.Trial, whole, reason)
}

// moveToPast moves a trial to Past.
func (z *freeze) moveToPast(w *frozen, ran bool, worked int64) {
	if ran {
		z.running--
	}
	z.Ended++
	z.Worked = saturate.Plus(z.Worked, max(0, worked))
	delete(z.live, w.Trial)
	z.view = nil
	if len(z.Past) >= maxPast {
		z.Past = z.Past[len(z.Past)-maxPast+1:]
	}
	z.Past = append(z.Past, *w)
}

func (z *freeze) HandleExit(e tuner.Exited, before engine.Phase) {
	if w := z.live[e.Trial]; w != nil {
		z.moveToPast(w, before == engine.Running, e.Step)
	}
}

// Extend adds looks after the existing ones.
func (z *freeze) Extend(old tuner.Settings) error {
	z.view = nil
	if len(z.Scale.Lengths) != z.Configs.Space.Dims() {
		z.Scale = population.NewScale(z.Configs.Space.Dims())
	}
	before := tuner.MaxSteps(old.Spec.GetTuner())
	if z.Steps <= before {
		return nil
	}
	resumed := len(z.Resume)
	if err := z.Rules.Extend(old); err != nil {
		return err
	}
	z.Looks = append(z.Looks, looksUp(int64(math.Ceil(float64(before)*math.Sqrt2)), z.Steps)...)
	for _, t := range z.Resume[resumed:] {
		z.live[t] = z.restoreEnded(t, before)
		z.Ended--
		z.Worked = max(0, z.Worked-before)
	}
	z.Done = before
	z.gittins = population.NewGittinsIndex(z.Looks)
	z.Beliefs = population.Believe(z.curves(), z.gittins)
	return nil
}

// restoreEnded returns the state of a trial that completed.
func (z *freeze) restoreEnded(t tuner.Trial, step int64) *frozen {
	for i, w := range z.Past {
		if w.Trial == t {
			z.Past = append(z.Past[:i:i], z.Past[i+1:]...)
			return &w
		}
	}
	w := &frozen{Trial: t, Step: step}
	for _, look := range z.Looks {
		if look <= step {
			w.Costs = append(w.Costs, math.NaN())
		}
	}
	return w
}

// Outlook errs on the long side, like that of performance_curve.
func (z *freeze) Outlook() tuner.Outlook {
	return workleft.Outlook(z.Limit(), len(z.Trials), z.Ended, z.Worked, z.Steps)
}
