package tuner

import (
	"fmt"
	"math"

	"github.com/dustin/go-humanize/english"

	"github.com/outbid-dev/outbid/orchestrator/curve/population"
	"github.com/outbid-dev/outbid/orchestrator/tuner/sample"
	"github.com/outbid-dev/outbid/orchestrator/tuner/setting"
	"github.com/outbid-dev/outbid/orchestrator/tuner/space"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// freeze trains many trials a little at a time, after Swersky, Snoek and Adams, "Freeze-Thaw Bayesian Optimization"
// (2014). At each look, all waiting trials and a new one are forecast (package population), and the trial whose steps
// are worth most is trained until its next look. The worth is the Gittins index of ending among the best. A part of the
// steps goes to kept trials, which are trained to the end regardless of their forecast. This part is small if ranks at
// looks predict final ranks, and nearly everything if they do not.
//
// All decisions follow from the state in a snapshot: forecasts are recomputed from the costs at the looks.
type freeze struct {
	*singleStage
	freezeState
	// live holds the trials that have not ended.
	live map[Trial]*frozen
	// running is the number of trials that should be on a device.
	running int
	// view is the current forecast of all trials, or nil if it must be recomputed.
	view    *freezeView
	gittins *population.GittinsIndex
}

// freezeState is the part of a snapshot besides the trials.
type freezeState struct {
	// Looks are the steps after which trials are judged; the last one is the end.
	Looks []int64
	// Live are the trials that have not ended, by number. Past are the most recent trials that ended.
	Live, Past []frozen
	// Scale is what was learned of configurations, Beliefs how well ranks were found to predict.
	Scale   population.Scale
	Beliefs population.Beliefs
	// Best is the trial with the best cost seen, if Seen is above 0.
	Best entry
	Seen int
	// Reaches is the number of looks that trials reached, over all trials.
	Reaches int
	Ended   int
	Worked  int64
	// Spent is the number of steps that all trials trained, Given the number of steps assigned to kept trials.
	Spent, Given int64
	// Done is the step where trials completed before an extension.
	Done int64
	Flat singleStageState
}

// A frozen is the state of a trial.
type frozen struct {
	Trial Trial
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

func freezeKind() *kind {
	return &kind{
		name: "freeze_thaw", fresh: newFreeze, rule: true, Traits: Traits{Endless: true, Forecasts: true},
		sampler: func(t *outbidv1.Tuner, s *space.Space) (sample.Sampler, error) {
			if setting.SamplerName(t) == "sobol" {
				return sample.NewSobol(s, t.GetSeed()), nil
			}
			return sample.NewRandom(s, t.GetSeed()), nil // also for the configurations that the model does not choose
		},
	}
}

func newFreeze(c *core) (rules, error) {
	z := &freeze{singleStage: newSampled(c), live: map[Trial]*frozen{}}
	first := z.settings().GetMinSteps()
	if first == 0 {
		part := setting.Part(z.settings().ProtoReflect(), "min_steps")
		first = (z.steps + part - 1) / part
	}
	z.Looks = looksUp(first, z.steps)
	z.gittins = population.NewGittinsIndex(z.Looks)
	z.Scale, z.Beliefs = population.NewScale(z.configs.space.Dims()), population.Prior()
	return z, nil
}

func (z *freeze) settings() *outbidv1.FreezeThaw { return z.tuner.GetFreezeThaw() }

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
	return z.steps
}

func (z *freeze) reported(e Reported) {
	given := !math.IsNaN(e.Metric)
	if !given {
		_, given = e.Metrics[z.spec.GetMetric()]
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
	if now := (entry{Cost: z.cost(metric), Trial: w.Trial}); z.Seen == 0 || ahead(now, z.Best) {
		z.Best = now
	}
	z.Seen++
}

func (z *freeze) reached(e Reached) error {
	w := z.live[e.Trial]
	if w == nil {
		return fmt.Errorf("trial %d reached a step, but it is not running", e.Trial)
	}
	if !math.IsNaN(e.Metric) || w.Heard {
		z.recordMetric(w, e.Metric)
	}
	z.Spent = plus(z.Spent, max(0, e.Step-w.Step))
	z.recordCosts(w, e.Step)
	z.view = nil
	if z.Reaches++; z.Reaches%beliefsEvery == 0 {
		z.Beliefs = population.Believe(z.curves(), z.gittins)
	}
	if z.modelled() && !w.Lost && e.Step < z.steps {
		z.view = z.forecastAll(scaleTries)
	}
	switch {
	case e.Step >= z.steps:
		z.stop(w, true, fmt.Sprintf("trained for all its %s", english.Plural(int(e.Step), "step", "")))
		z.Beliefs = population.Believe(z.curves(), z.gittins)
	case w.Lost:
		z.stop(w, false, fmt.Sprintf("step %d: %s is not a finite number", e.Step, z.metricName()))
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
			cost = z.cost(w.Newest)
		}
		w.Costs = append(w.Costs, cost)
	}
	w.Step = step
}

// stop ends a running or waiting trial.
func (z *freeze) stop(w *frozen, whole bool, reason string) {
	z.moveToPast(w, z.trials[w.Trial].phase == running, w.Step)
	z.end(w.Trial, whole, reason)
}

// moveToPast moves a trial to Past.
func (z *freeze) moveToPast(w *frozen, ran bool, worked int64) {
	if ran {
		z.running--
	}
	z.Ended++
	z.Worked = plus(z.Worked, max(0, worked))
	delete(z.live, w.Trial)
	z.view = nil
	if len(z.Past) >= maxPast {
		z.Past = z.Past[len(z.Past)-maxPast+1:]
	}
	z.Past = append(z.Past, *w)
}

func (z *freeze) handleExit(e Exited, before phase) {
	if w := z.live[e.Trial]; w != nil {
		z.moveToPast(w, before == running, e.Step)
	}
}

// extend adds looks after the existing ones.
func (z *freeze) extend(old Settings) error {
	z.view = nil
	if len(z.Scale.Lengths) != z.configs.space.Dims() {
		z.Scale = population.NewScale(z.configs.space.Dims())
	}
	before := MaxSteps(old.Spec.GetTuner())
	if z.steps <= before {
		return nil
	}
	resumed := len(z.Resume)
	if err := z.singleStage.extend(old); err != nil {
		return err
	}
	z.Looks = append(z.Looks, looksUp(int64(math.Ceil(float64(before)*math.Sqrt2)), z.steps)...)
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
func (z *freeze) restoreEnded(t Trial, step int64) *frozen {
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

// outlook errs on the long side, like that of performance_curve.
func (z *freeze) outlook() Outlook {
	return longSide(z.limit(), len(z.trials), z.Ended, z.Worked, z.steps)
}
