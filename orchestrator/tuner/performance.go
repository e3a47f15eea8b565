package tuner

import (
	"fmt"
	"math"
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/curve"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// performance forecasts from its learning curve how each trial will end. The idea is that of Rasley, He, Yan, Ruwase
// and Fonseca, "HyperDrive: Exploring Hyperparameters with POP Scheduling" (Middleware 2017): by its chance to get to
// the target a trial is promising, opportunistic or poor; poor ones are stopped, and slots are split between the
// others. The forecasts are ours (package curve), and so is what follows.
//
// Every trial is looked at each interval. Without a target, its chance is that of ending better than the best that is
// known: the best trial that completed, or what any other trial gets to with a chance of 3 in 4, whichever is better.
// Promising trials go on. Poor is one whose chance is below a bound, and lower for the steps that it still needs than
// that of a trial that is not begun; that chance is 1/(n+1) after n trials, that of a new draw to be the best. An
// opportunistic trial yields its slot to one that waits, or is not begun, with a better chance for its steps.
//
// Forecasts are checked when their steps come, and the checks calibrate later ones. Unless at least 20 were checked
// and the 90 % intervals held 85 to 95 % of them, no forecast decides anything: a rank rule does, which stops the worst
// 1/eta of those that got to a rung, at rungs grace_steps * eta^k, asynchronously. It is milder than ASHA, because it
// rules where early ranks may mean as little as forecasts. A share of the trials, keep, is trained on although it
// should be stopped; when their forecasts are checked they stand for those that were. Which ones is settled by the seed
// and the trial's number.
type performance struct {
	*flat
	performanceState
	// live holds the trials that have not ended.
	live map[Trial]*watched
	// running counts those that are wanted on a device.
	running int
}

// performanceState is what a snapshot holds beside the trials.
type performanceState struct {
	// Interval and Grace are steps, as they were settled when the sweep began.
	Interval, Grace int64
	// Watched are the live trials, by number.
	Watched []watched
	// Waiting are paused trials, the one with the best chance for its steps on top.
	Waiting []entry
	// Rungs are those of the rank rule.
	Rungs []rankRung
	// Known is what became of forecasts.
	Known curve.Calibration
	// Best is the best trial that completed, if Completed is above 0.
	Best      entry
	Completed int
	// Done is the step at which trials that completed before an extension stand.
	Done int64
	// Slots is how many trials can run at once, as far as was seen.
	Slots int
	// Ended counts the trials that ended, and EndedSteps what they trained.
	Ended      int
	EndedSteps int64
	Flat       flatState
}

// A watched is what is kept of a live trial.
type watched struct {
	Trial  Trial
	Points []curve.Point
	// Fresh: a point came since the last look. Lost: the newest metric was NaN.
	Fresh, Lost bool
	Claims      []curve.Claim
	// NextClaim is the step from which on forecasts are kept to be checked.
	NextClaim int64
	// Chance to beat the target or the best, and the cost at the end that it is sure to beat, as of the last look; NaN
	// before there was a forecast.
	Chance, Sure float64
	// Step of the last look.
	Step int64
	// Place among those that got to the last rung: the share of them that were better; NaN before the first rung.
	Place float64
	// Kept: it is trained on although it should be stopped.
	Kept bool
}

// keepStream keeps the draw of which trials are kept apart from the seed's other uses.
const keepStream = 0x6b656570

// maxKeptWeight bounds for how many trials one that was kept may stand.
const maxKeptWeight = 20

// maxWatchedPoints bounds the points that are kept of a trial.
const maxWatchedPoints = 128

func newPerformance(c *core) (rules, error) {
	f, err := newFlat(c, "random draw")
	if err != nil {
		return nil, err
	}
	if samplerName(c.spec.GetTuner()) == "sobol" {
		f.label = "Sobol point"
	}
	set := c.spec.GetTuner().GetPerformanceCurve()
	if err := checkPerformance(set); err != nil {
		return nil, fmt.Errorf("tuner.performance_curve.%w", err)
	}
	p := &performance{flat: f, live: map[Trial]*watched{}}
	if p.Interval = set.GetInterval(); p.Interval == 0 {
		p.Interval = max(1, set.GetMaxSteps()/20)
	}
	if p.Grace = set.GetGraceSteps(); p.Grace == 0 {
		p.Grace = min(2*p.Interval, set.GetMaxSteps())
	}
	return p, nil
}

func checkPerformance(set *outbidv1.PerformanceCurve) error {
	most := set.GetMaxSteps()
	switch {
	case most < 1:
		return fmt.Errorf("max_steps: %d steps are no training; use 1 or more", most)
	case set.GetInterval() < 0 || set.GetInterval() > most:
		return fmt.Errorf("interval: %d is not from 1 to max_steps %d, or 0 for a twentieth of it", set.GetInterval(), most)
	case set.GetGraceSteps() < 0 || set.GetGraceSteps() > most:
		return fmt.Errorf("grace_steps: %d is not from 1 to max_steps %d, or 0 for two intervals", set.GetGraceSteps(), most)
	case !(set.GetPoor() >= 0 && set.GetPoor() < 1):
		return fmt.Errorf("poor: %v is not a chance below 1; 0.05 is usual", set.GetPoor())
	case !(set.GetKeep() >= 0 && set.GetKeep() <= 1):
		return fmt.Errorf("keep: %v is not a share from 0 to 1; 0.1 is usual", set.GetKeep())
	case set.GetEta() < 0 || set.GetEta() == 1:
		return fmt.Errorf("eta: %d is too small; the least is 2, 3 is usual", set.GetEta())
	}
	return nil
}

func (p *performance) settings() *outbidv1.PerformanceCurve {
	return p.spec.GetTuner().GetPerformanceCurve()
}

func (p *performance) poor() float64 {
	if v := p.settings().GetPoor(); v > 0 {
		return v
	}
	return 0.05
}

func (p *performance) keep() float64 {
	if set := p.settings(); set.Keep != nil {
		return set.GetKeep()
	}
	return 0.1
}

func (p *performance) eta() int64 {
	if eta := p.settings().GetEta(); eta > 0 {
		return int64(eta)
	}
	return 3
}

// next is the step of the next look after a step.
func (p *performance) next(step int64) int64 {
	looks := step / p.Interval
	return min(p.steps(), times(looks+1, p.Interval))
}

func (p *performance) watch(t Trial) *watched {
	w := p.live[t]
	if w == nil {
		w = &watched{Trial: t, Chance: math.NaN(), Sure: math.NaN(), Place: math.NaN(), NextClaim: p.Grace}
		p.live[t] = w
	}
	return w
}

func (p *performance) reported(e Reported) {
	given := !math.IsNaN(e.Metric)
	if !given {
		_, given = e.Metrics[p.spec.GetMetric()]
	}
	if given {
		p.watch(e.Trial).take(e.Step, e.Metric)
	}
}

// take keeps a point. When there are too many, neighbours are averaged.
func (w *watched) take(step int64, metric float64) {
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

func (p *performance) reached(e Reached) error {
	w := p.watch(e.Trial)
	w.hear(e)
	w.Fresh, w.Step = false, e.Step
	p.check(w, e)
	switch {
	case e.Step >= p.steps():
		p.complete(w, e)
	case w.Lost:
		p.stop(w, fmt.Sprintf("step %d: %s is not a finite number", e.Step, p.metricName()))
	default:
		p.judge(w, e)
	}
	return nil
}

// hear takes the newest metric of a trial that reached its target, which may be one that was heard of before. NaN
// says that the newest report was NaN, or that there was none yet.
func (w *watched) hear(e Reached) {
	n := len(w.Points)
	switch {
	case math.IsNaN(e.Metric) && n == 0:
	case w.Fresh && n > 0 && e.Metric == w.Points[n-1].Value:
	default:
		w.take(e.Step, e.Metric)
	}
}

// check learns from the forecasts of this step.
func (p *performance) check(w *watched, e Reached) {
	w.Claims = slices.DeleteFunc(w.Claims, func(c curve.Claim) bool {
		if c.Step == e.Step {
			value := e.Metric
			if w.Lost {
				value = math.NaN()
			}
			weight := 1.0
			if w.Kept {
				// It stands for those like it that were stopped.
				weight = min(maxKeptWeight, 1/p.keep())
			}
			p.Known.Learn(c, value, weight)
		}
		return c.Step <= e.Step
	})
}

func (p *performance) complete(w *watched, e Reached) {
	if now := (entry{p.cost(e.Metric), e.Trial}); !math.IsNaN(now.Cost) {
		if p.Completed == 0 || ahead(now, p.Best) {
			p.Best = now
		}
		p.Completed++
	}
	p.forget(w)
	p.end(e.Trial, true, fmt.Sprintf("trained for all its %s", count(int(e.Step), "step")))
}

// stop ends a trial that runs before its time.
func (p *performance) stop(w *watched, reason string) {
	p.forget(w)
	p.end(w.Trial, false, reason)
}

// forget drops a trial that runs and ends now.
func (p *performance) forget(w *watched) {
	p.running--
	p.Ended++
	p.EndedSteps = plus(p.EndedSteps, w.Step)
	delete(p.live, w.Trial)
}

func (p *performance) left(e Exited, before phase) {
	if before == running {
		p.running--
	}
	p.Ended++
	p.EndedSteps = plus(p.EndedSteps, max(0, e.Step))
	delete(p.live, e.Trial)
}

// extend keeps the interval. Trials that completed are no longer the best there can be: they are forecast again.
func (p *performance) extend(old Settings) error {
	if p.steps() <= maxSteps(old.Spec) {
		return nil
	}
	before := len(p.Resume)
	if err := p.flat.extend(old); err != nil {
		return err
	}
	again := len(p.Resume) - before
	p.Ended -= again
	p.EndedSteps = max(0, p.EndedSteps-times(int64(again), maxSteps(old.Spec)))
	p.Completed, p.Best, p.Done = 0, entry{}, maxSteps(old.Spec)
	waiting := p.heap()
	items := slices.Clone(waiting.items)
	waiting.items = nil
	for _, e := range items {
		if w := p.live[e.Trial]; w != nil {
			waiting.push(entry{-p.merit(w), e.Trial})
		}
	}
	p.Waiting = waiting.items
	return nil
}
