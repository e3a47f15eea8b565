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
	live liveTrials
	// running is the number of trials that should be on a device.
	running int
	// view is the current forecast of all trials, or nil if it must be recomputed.
	view    *view
	gittins *population.GittinsIndex
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
	z := &freeze{Rules: singlestage.NewSampled(c), live: liveTrials{}}
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
		z.Beliefs = population.Believe(z.curves(z.live), z.gittins)
	}
	if z.modelled() && !w.Lost && e.Step < z.Steps {
		z.view = z.forecastAll(scaleTries)
	}
	switch {
	case e.Step >= z.Steps:
		z.stop(w, true, fmt.Sprintf("trained for all its %s", english.Plural(int(e.Step), "step", "")))
		z.Beliefs = population.Believe(z.curves(z.live), z.gittins)
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
	delete(z.live, w.Trial)
	z.view = nil
	z.addPast(w, worked)
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
		z.live[t] = z.takePast(t, before)
	}
	z.Done = before
	z.gittins = population.NewGittinsIndex(z.Looks)
	z.Beliefs = population.Believe(z.curves(z.live), z.gittins)
	return nil
}

// Outlook errs on the long side, like that of performance_curve.
func (z *freeze) Outlook() tuner.Outlook {
	return workleft.Outlook(z.Limit(), len(z.Trials), z.Ended, z.Worked, z.Steps)
}
