package tuner

import (
	"fmt"
	"math"

	"github.com/outbid-dev/outbid/orchestrator/curve/population"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// freeze trains many trials a little at a time, after Swersky, Snoek and Adams, "Freeze-Thaw Bayesian Optimization" (2014): at
// each look all trials that wait, and ones that are not begun, are forecast (package population), and the one whose steps are
// worth most is trained on until its next look: by Gittins's index of ending among the best. A part of the steps goes to trials that
// are kept: trained to the end whatever is said of them. It is small where standings tell of ends, and nearly all where they do not.
//
// Everything is decided from what a snapshot holds: forecasts are made anew from the costs at the looks.
type freeze struct {
	*flat
	freezeState
	// live holds the trials that have not ended.
	live map[Trial]*frozen
	// running counts those that are wanted on a device.
	running int
	// view is what is thought of all trials now, nil if it has to be thought through.
	view   *freezeView
	worths *population.Worths
}

// freezeState is what a snapshot holds beside the trials.
type freezeState struct {
	// Looks are the steps at which trials are looked at; the last one is the end.
	Looks []int64
	// Live are the trials that have not ended, by number, and Past those that have, the newest.
	Live, Past []frozen
	// Scale is what was learned of configurations, and Beliefs what standings proved to be worth.
	Scale   population.Scale
	Beliefs population.Beliefs
	// Best is the best cost that was seen and Holder whose it is, if Seen is above 0.
	Best entry
	Seen int
	// Reaches counts the looks that trials got to.
	Reaches int
	Ended   int
	Worked  int64
	// Spent is the steps that all trials trained, and Given those that kept ones were promised.
	Spent, Given int64
	// Done is the step at which trials that completed before an extension stand.
	Done int64
	Flat flatState
}

// A frozen is what is kept of a trial.
type frozen struct {
	Trial Trial
	// X is its configuration in the unit cube, nil if that is not learned from.
	X []float64
	// Costs at the looks that it got to, NaN where none was known.
	Costs []float64
	// Newest metric, if any was Heard; Lost says that it was NaN.
	Newest      float64
	Heard, Lost bool
	// Step of the last look.
	Step int64
	// Kept: it is trained to the end whatever is said of it.
	Kept bool
}

const (
	// pastKept bounds the trials that ended and are still learned from, and waitingKept those that wait.
	pastKept, waitingKept = 256, 256
	// believes is how many looks trials get to before what standings are worth is thought through anew; it is at each end too.
	believes = 4
	// looksTo is how many times the first look goes into all steps, at the most, if nothing else is said.
	looksTo = 40
)

func newFreeze(c *core) (rules, error) {
	f, err := newFlat(c, "random draw")
	if err != nil {
		return nil, err
	}
	set := c.spec.GetTuner().GetFreezeThaw()
	if err := checkFreeze(set); err != nil {
		return nil, fmt.Errorf("tuner.freeze_thaw.%w", err)
	}
	z := &freeze{flat: f, live: map[Trial]*frozen{}}
	first := set.GetMinSteps()
	if first == 0 {
		first = (set.GetMaxSteps() + looksTo - 1) / looksTo
	}
	z.Looks = looksUp(first, set.GetMaxSteps())
	z.worths = population.NewWorths(z.Looks)
	z.Scale, z.Beliefs = population.NewScale(z.configs.space.Dims()), population.Prior()
	if samplerName(c.spec.GetTuner()) == "sobol" {
		f.label = "Sobol point"
	}
	return z, nil
}

func checkFreeze(set *outbidv1.FreezeThaw) error {
	switch most := set.GetMaxSteps(); {
	case most < 1:
		return fmt.Errorf("max_steps: %d steps are no training; use 1 or more", most)
	case set.GetMinSteps() < 0 || set.GetMinSteps() > most:
		return fmt.Errorf("min_steps: %d is not from 1 to max_steps %d, or 0 for a 40th of it", set.GetMinSteps(), most)
	case !(set.GetPoor() >= 0 && set.GetPoor() < 1):
		return fmt.Errorf("poor: %v is not a chance below 1; 0.01 is usual", set.GetPoor())
	}
	return nil
}

// looksUp are the steps of looks from a first one to a last, about 1.4 times as far apart each time.
func looksUp(first, last int64) []int64 {
	var looks []int64
	for at := float64(first); at < float64(last)*0.85; at *= math.Sqrt2 {
		if step := int64(math.Round(at)); len(looks) == 0 || step > looks[len(looks)-1] {
			looks = append(looks, step)
		}
	}
	return append(looks, last)
}

// modelled reports whether configurations are chosen by the model; otherwise they are drawn, and nothing is learned from them.
func (z *freeze) modelled() bool {
	name := samplerName(z.spec.GetTuner())
	return name == "" || name == "model"
}

func (z *freeze) poor() float64 {
	if v := z.spec.GetTuner().GetFreezeThaw().GetPoor(); v > 0 {
		return v
	}
	return 0.01
}

// next is the first look after a step.
func (z *freeze) next(step int64) int64 {
	for _, look := range z.Looks {
		if look > step {
			return look
		}
	}
	return z.steps()
}

func (z *freeze) reported(e Reported) {
	given := !math.IsNaN(e.Metric)
	if !given {
		_, given = e.Metrics[z.spec.GetMetric()]
	}
	if w := z.live[e.Trial]; given && w != nil {
		z.hear(w, e.Metric)
	}
}

// hear takes a metric in.
func (z *freeze) hear(w *frozen, metric float64) {
	w.Newest, w.Heard, w.Lost = metric, true, math.IsNaN(metric) || math.IsInf(metric, 0)
	if w.Lost {
		return
	}
	if now := (entry{z.cost(metric), w.Trial}); z.Seen == 0 || ahead(now, z.Best) {
		z.Best = now
	}
	z.Seen++
}

func (z *freeze) reached(e Reached) error {
	w := z.live[e.Trial]
	if w == nil {
		return fmt.Errorf("trial %d is not trained", e.Trial)
	}
	if !math.IsNaN(e.Metric) || w.Heard {
		z.hear(w, e.Metric)
	}
	z.Spent = plus(z.Spent, max(0, e.Step-w.Step))
	z.note(w, e.Step)
	z.view = nil
	if z.Reaches++; z.Reaches%believes == 0 {
		z.Beliefs = population.Believe(z.curves(), z.worths)
	}
	if z.modelled() && !w.Lost && e.Step < z.steps() {
		z.view = z.think(scaleTries)
	}
	switch {
	case e.Step >= z.steps():
		z.stop(w, true, fmt.Sprintf("trained for all its %s", count(int(e.Step), "step")))
		z.Beliefs = population.Believe(z.curves(), z.worths)
	case w.Lost:
		z.stop(w, false, fmt.Sprintf("step %d: %s is not a finite number", e.Step, z.metricName()))
	default:
		z.judge(w)
	}
	return nil
}

// note enters the newest cost at the look of a step. A trial that diverged stays as bad as can be.
func (z *freeze) note(w *frozen, step int64) {
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

// stop ends a trial that runs or waits.
func (z *freeze) stop(w *frozen, whole bool, reason string) {
	z.forget(w, z.trials[w.Trial].phase == running, w.Step)
	z.end(w.Trial, whole, reason)
}

// forget moves a trial to the past.
func (z *freeze) forget(w *frozen, ran bool, worked int64) {
	if ran {
		z.running--
	}
	z.Ended++
	z.Worked = plus(z.Worked, max(0, worked))
	delete(z.live, w.Trial)
	z.view = nil
	if len(z.Past) >= pastKept {
		z.Past = z.Past[len(z.Past)-pastKept+1:]
	}
	z.Past = append(z.Past, *w)
}

func (z *freeze) left(e Exited, before phase) {
	if w := z.live[e.Trial]; w != nil {
		z.forget(w, before == running, e.Step)
	}
}

// extend adds looks beyond those that there are.
func (z *freeze) extend(old Settings) error {
	z.view = nil
	if len(z.Scale.Lengths) != z.configs.space.Dims() {
		z.Scale = population.NewScale(z.configs.space.Dims())
	}
	before := maxSteps(old.Spec)
	if z.steps() <= before {
		return nil
	}
	resumed := len(z.Resume)
	if err := z.flat.extend(old); err != nil {
		return err
	}
	z.Looks = append(z.Looks, looksUp(int64(math.Ceil(float64(before)*math.Sqrt2)), z.steps())...)
	for _, t := range z.Resume[resumed:] {
		z.live[t] = z.remember(t, before)
		z.Ended--
		z.Worked = max(0, z.Worked-before)
	}
	z.Done = before
	z.worths = population.NewWorths(z.Looks)
	z.Beliefs = population.Believe(z.curves(), z.worths)
	return nil
}

// remember is what is known of a trial that completed.
func (z *freeze) remember(t Trial, step int64) *frozen {
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

// outlook errs on the long side, as that of performance_curve does.
func (z *freeze) outlook() Outlook {
	return longSide(z.limit(), len(z.trials), z.Ended, z.Worked, z.steps())
}
