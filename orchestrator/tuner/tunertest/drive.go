// Package tunertest is the conformance suite of tuners: it checks what the control loop and users rely on for every
// tuner. Authors of tuners run it with Check. Drive, the simulator that it uses, helps to test properties of one tuner.
package tunertest

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/outbid-dev/outbid/orchestrator/tuner"
)

// Options configure a simulated sweep.
type Options struct {
	// Seed decides everything random: the trial that moves next, and failures.
	Seed uint64
	// Workers is the number of trials that run at once; 4 if 0.
	Workers int
	// Metric returns a trial's metric at a step; if nil, it is a fixed random number for each trial.
	Metric func(t tuner.Trial, config tuner.Config, step int64) float64
	// NaN, Fail, Quit and Late are probabilities for each move of a trial: that the metric is NaN, that the trial
	// fails, that its code ends early, and that an ended trial sends another report.
	NaN, Fail, Quit, Late float64
	// ReportEvery is the number of steps between reports; 0 for none before the target.
	ReportEvery int64
	// CodeSteps is the number of steps after which the code of a trial without a target ends; 3 if 0.
	CodeSteps int64
	// MaxTrials stops Asks, for tuners without an end; 0 for no limit.
	MaxTrials int
	// MaxEvents limits the simulation; 1,000,000 if 0.
	MaxEvents int
	// Extend lists the settings to extend the sweep to, one after another, each time it is done.
	Extend []tuner.Settings
	// Observe is called after each event.
	Observe func(Step) error
}

// A Step is an event and the tuner's answer.
type Step struct {
	Event   tuner.Event
	Actions []tuner.Action
}

// A Fact is the history of a trial.
type Fact struct {
	Create tuner.Create
	// Targets are the targets it was given, in order.
	Targets []int64
	// Step is the step it got to, Reached the targets that it reached.
	Step    int64
	Reached []int64
	// Ended is set after End or Exited; Completed and Failed say how it ended.
	Ended, Completed, Failed bool
	// Clones is the number of times it copied another trial.
	Clones int

	config tuner.Config
	phase  phase
}

type phase int

const (
	queued phase = iota
	running
	atTarget
	paused
	gone
)

// A Result is a simulated sweep.
type Result struct {
	Steps  []Step
	Trials []Fact
}

// Drive simulates a sweep to its end. It returns an error if the tuner violates its contract or the sweep does not end.
func Drive(t tuner.Tuner, o Options) (*Result, error) {
	d := &driver{tuner: t, o: o, rng: rand.New(rand.NewPCG(o.Seed, 0x6472697665))}
	d.defaults()
	if err := d.run(); err != nil {
		return &d.Result, err
	}
	return &d.Result, d.atEnd()
}

type driver struct {
	Result
	tuner tuner.Tuner
	o     Options
	rng   *rand.Rand
	// waiting trials are queued for a worker, busy ones have one.
	waiting, busy []tuner.Trial
	ended         []tuner.Trial
	// extended is set while completed trials may be resumed.
	extended bool
}

func (d *driver) defaults() {
	if d.o.Workers == 0 {
		d.o.Workers = 4
	}
	if d.o.CodeSteps == 0 {
		d.o.CodeSteps = 3
	}
	if d.o.MaxEvents == 0 {
		d.o.MaxEvents = 1_000_000
	}
	if d.o.Metric == nil {
		d.o.Metric = func(t tuner.Trial, _ tuner.Config, _ int64) float64 { return RandomMetric(d.o.Seed, t) }
	}
}

// RandomMetric returns a number in [0, 1) that depends only on the seed and the trial.
func RandomMetric(seed uint64, t tuner.Trial) float64 {
	return rand.New(rand.NewPCG(seed, uint64(t))).Float64()
}

func (d *driver) run() error {
	for {
		if err := d.untilIdle(); err != nil {
			return err
		}
		if len(d.o.Extend) == 0 {
			return nil
		}
		if err := d.atEnd(); err != nil {
			return err
		}
		d.extended = true
		next := d.o.Extend[0]
		d.o.Extend = d.o.Extend[1:]
		if err := d.send(tuner.Extended{Settings: next}); err != nil {
			return err
		}
	}
}

// untilIdle runs until no trial is running and the tuner has nothing to start.
func (d *driver) untilIdle() error {
	idle := 0
	for {
		if len(d.Steps) > d.o.MaxEvents {
			return fmt.Errorf("no end after %d events", len(d.Steps))
		}
		room := d.o.Workers - len(d.busy) - len(d.waiting)
		full := d.o.MaxTrials > 0 && len(d.Trials) >= d.o.MaxTrials
		if room > 0 && !full && !d.tuner.Status().Waiting {
			before := len(d.waiting)
			if err := d.send(tuner.Ask{N: room}); err != nil {
				return err
			}
			if idle++; idle > 1000 && len(d.waiting) == before {
				return fmt.Errorf("the tuner is neither waiting nor exhausted, but returns no actions")
			}
		}
		for len(d.waiting) > 0 && len(d.busy) < d.o.Workers {
			d.Trials[d.waiting[0]].phase = running
			d.busy = append(d.busy, d.waiting[0])
			d.waiting = d.waiting[1:]
			idle = 0
		}
		if len(d.busy) == 0 {
			if full || d.tuner.Status().Waiting {
				return nil
			}
			continue
		}
		if err := d.move(); err != nil {
			return err
		}
	}
}

// move advances one of the running trials.
func (d *driver) move() error {
	if len(d.ended) > 0 && d.chance(d.o.Late) {
		t := d.ended[d.rng.IntN(len(d.ended))]
		late := tuner.Reported{Trial: t, Step: d.Trials[t].Step + 1, Metric: d.rng.Float64()}
		if err := d.send(late); err != nil {
			return err
		}
	}
	t := d.busy[d.rng.IntN(len(d.busy))]
	f := &d.Trials[t]
	target := f.Targets[len(f.Targets)-1]
	metric := d.o.Metric(t, f.config, f.Step)
	if d.chance(d.o.NaN) {
		metric = math.NaN()
	}
	switch {
	case d.chance(d.o.Fail):
		return d.exit(t, true, metric)
	case d.chance(d.o.Quit), target == 0 && f.Step >= d.o.CodeSteps:
		return d.exit(t, false, metric)
	}
	step := target
	if target == 0 {
		step = f.Step + 1
	}
	if d.o.ReportEvery > 0 {
		step = min(step, f.Step+d.o.ReportEvery)
	}
	f.Step = step
	if metric = d.o.Metric(t, f.config, step); d.chance(d.o.NaN) {
		metric = math.NaN()
	}
	if step != target {
		return d.send(tuner.Reported{
			Trial: t, Step: step, Metric: metric, Metrics: map[string]float64{"loss": -metric},
		})
	}
	f.Reached = append(f.Reached, step)
	f.phase = atTarget
	return d.send(tuner.Reached{Trial: t, Step: step, Metric: metric})
}

func (d *driver) exit(t tuner.Trial, failed bool, metric float64) error {
	f := &d.Trials[t]
	f.Failed = failed
	d.leave(t, gone)
	f.Ended = true
	return d.send(tuner.Exited{Trial: t, Step: f.Step, Failed: failed, Metric: metric})
}

func (d *driver) chance(p float64) bool { return p > 0 && d.rng.Float64() < p }

// send passes an event to the tuner and carries out its actions.
func (d *driver) send(e tuner.Event) error {
	actions, err := d.tuner.Handle(e)
	step := Step{e, actions}
	d.Steps = append(d.Steps, step)
	if err != nil {
		return fmt.Errorf("event %d, %+v: %w", len(d.Steps)-1, e, err)
	}
	if err := d.apply(e, actions); err != nil {
		return fmt.Errorf("event %d, %+v: %w", len(d.Steps)-1, e, err)
	}
	if d.o.Observe != nil {
		return d.o.Observe(step)
	}
	return nil
}
