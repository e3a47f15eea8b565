package engine

import (
	"fmt"
	"math"

	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/progress"
	"github.com/outbid-dev/outbid/orchestrator/tuner/rank"
	"github.com/outbid-dev/outbid/orchestrator/tuner/sample"
	"github.com/outbid-dev/outbid/orchestrator/tuner/setting"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// A Phase is the tuner's view of a trial's state.
type Phase uint8

const (
	// Running means that the trial should be on a device until it reaches its target.
	Running Phase = iota
	// Paused means that the trial reached its target and waits for a decision.
	Paused
	// Ready means that the trial will be resumed by one of the next Asks.
	Ready
	// Stopped means that the tuner has ended the trial. This phase and the next two are final.
	Stopped
	// Completed means that the trial has trained to its end. Only an extension to more steps may resume it.
	Completed
	// Exited means that the trial has ended without the tuner.
	Exited
)

// Ended reports whether the phase is final.
func (p Phase) Ended() bool { return p >= Stopped }

// A Record is the state kept for every trial; it takes 16 bytes.
type Record struct {
	// Metric is the value at the newest rung, for tuners that have rungs.
	Metric float64
	// Bracket is an index into the tuner's brackets. Rung is the one that the trial trains towards or waits in.
	Bracket int32
	Rung    uint8
	Phase   Phase
}

// MayContinue reports whether the trial completed the rung that was the last one before an extension added rungs above
// it.
func (r Record) MayContinue(top int) bool {
	return r.Phase == Completed && int(r.Rung) < top && !math.IsNaN(r.Metric)
}

// A Core holds what all built-in tuners share: the trials, the source of configurations, and the actions of the current
// event.
type Core struct {
	Spec *outbidv1.SweepSpec
	// Tuner has the spec's settings with their defaults, and Steps is its max_steps.
	Tuner    *outbidv1.Tuner
	Steps    int64
	Maximise bool
	Trials   []Record
	Configs  *Configs
	// Curves are the trials' curves, or nil if neither the rules nor the sampler use them. Passed is set if the report
	// that is being handled passed a mark.
	Curves *progress.Curves
	Passed bool
	out    []tuner.Action
}

func newCore(s tuner.Settings, k *Kind) (*Core, error) {
	if l := s.Spec.GetLimits().GetTrials(); l < 0 {
		return nil, fmt.Errorf("limits.trials: %d is negative; use 0 for no limit", l)
	}
	c := &Core{}
	c.use(s.Spec)
	var err error
	c.Configs, err = newConfigs(s, c.Tuner, k)
	if k.Curves || setting.SamplerName(c.Tuner) == sample.BayesName {
		c.Curves = &progress.Curves{}
	}
	return c, err
}

func (c *Core) use(spec *outbidv1.SweepSpec) {
	c.Spec, c.Tuner = spec, tuner.Settings{Spec: spec}.WithDefaults()
	c.Steps = tuner.MaxSteps(c.Tuner)
	c.Maximise = spec.GetMode() == "max"
}

// Limit returns the maximum number of trials, or 0 for no limit.
func (c *Core) Limit() int { return int(c.Spec.GetLimits().GetTrials()) }

// CanCreate reports whether the trial limit and the sampler allow another trial.
func (c *Core) CanCreate() bool {
	return !c.Configs.dry && len(c.Trials) < math.MaxInt32 && (c.Limit() == 0 || len(c.Trials) < c.Limit())
}

// Create makes the next trial and returns its configuration. If no configuration is left, it does nothing and returns
// false.
func (c *Core) Create(r Record, until int64, label int, reason string) (tuner.Config, bool, error) {
	c.teach()
	config, ok, err := c.Configs.next(tuner.Trial(len(c.Trials)))
	if err != nil || !ok {
		return nil, false, err
	}
	if t, n := len(c.Trials), len(c.Configs.Points); t < n {
		reason += fmt.Sprintf(", the configuration given as point %d of %d", t+1, n)
	}
	c.Add(r, config, until, label, reason)
	return config, true, nil
}

// Add makes the next trial with a given configuration.
func (c *Core) Add(r Record, config tuner.Config, until int64, label int, reason string) {
	t := tuner.Trial(len(c.Trials))
	c.Trials = append(c.Trials, r)
	c.Do(tuner.Create{Config: config, UntilStep: until, Bracket: label, Seed: c.Configs.seed(t), Reason: reason})
}

// Do appends an action to the answer.
func (c *Core) Do(a tuner.Action) { c.out = append(c.out, a) }

// Train continues a trial until a later step.
func (c *Core) Train(t tuner.Trial, until int64, reason string) {
	c.Trials[t].Phase = Running
	c.Do(tuner.Train{Trial: t, UntilStep: until, Reason: reason})
}

// Pause takes a trial off its device.
func (c *Core) Pause(t tuner.Trial, reason string) {
	c.Trials[t].Phase = Paused
	c.Do(tuner.Pause{Trial: t, Reason: reason})
}

// End ends a trial; whole is set if it trained for all its steps.
func (c *Core) End(t tuner.Trial, whole bool, reason string) {
	c.Trials[t].Phase = Stopped
	if whole {
		c.Trials[t].Phase = Completed
	}
	c.Do(tuner.End{Trial: t, Completed: whole, Reason: reason})
}

// GiveUp marks a trial that completed before an extension and will not continue. Outside the tuner it ended long ago,
// so no action is needed. It returns the trial.
func (c *Core) GiveUp(t tuner.Trial) tuner.Trial {
	if c.Trials[t].Phase == Completed {
		c.Trials[t].Phase = Stopped
	}
	return t
}

// Cost converts a metric into the value that rankings use: lower is better. NaN stays NaN.
func (c *Core) Cost(metric float64) float64 {
	if c.Maximise {
		return -metric
	}
	return metric
}

// Entry returns a trial with the cost of its newest rung, for a ranking.
func (c *Core) Entry(t tuner.Trial) rank.Entry {
	return rank.Entry{Cost: c.Cost(c.Trials[t].Metric), Trial: t}
}

// MetricName returns the name of the sweep's metric for reasons.
func (c *Core) MetricName() string {
	if name := c.Spec.GetMetric(); name != "" {
		return name
	}
	return "the metric"
}

// TooEarly returns an error for an early Reached. A tuner that accepted the event would wait forever for the trial.
func TooEarly(e tuner.Reached, target int64) error {
	return fmt.Errorf("trial %d reached step %d, but it was to train until step %d", e.Trial, e.Step, target)
}
