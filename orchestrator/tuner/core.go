package tuner

import (
	"fmt"
	"math"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// A phase is the tuner's view of a trial's state.
type phase uint8

const (
	// running: the trial should be on a device until it reaches its target.
	running phase = iota
	// paused: the trial reached its target and waits for a decision.
	paused
	// ready: the trial will be resumed by one of the next Asks.
	ready
	// stopped, completed and exited are final, except that an extension to more steps may resume a completed trial.
	stopped
	completed
	exited
)

func (p phase) ended() bool { return p >= stopped }

// A record is the state kept for every trial; it takes 16 bytes.
type record struct {
	// metric is the value at the newest rung, for tuners that have rungs.
	metric float64
	// bracket is an index into the tuner's brackets. rung is the one that the trial trains towards or waits in.
	bracket int32
	rung    uint8
	phase   phase
}

// mayContinue reports whether the trial completed the rung that was the last one before an extension added rungs above
// it.
func (r record) mayContinue(top int) bool {
	return r.phase == completed && int(r.rung) < top && !math.IsNaN(r.metric)
}

// A core holds what all built-in tuners share: the trials, the source of configurations, and the actions of the current
// event.
type core struct {
	spec *outbidv1.SweepSpec
	// tuner has the spec's settings with their defaults, and steps is its max_steps.
	tuner    *outbidv1.Tuner
	steps    int64
	maximise bool
	trials   []record
	configs  *configs
	out      []Action
}

func newCore(s Settings, k *kind) (*core, error) {
	if l := s.Spec.GetLimits().GetTrials(); l < 0 {
		return nil, fmt.Errorf("limits.trials: %d is negative; use 0 for no limit", l)
	}
	c := &core{}
	c.use(s.Spec)
	var err error
	c.configs, err = newConfigs(s.Spec, c.tuner, k)
	return c, err
}

func (c *core) use(spec *outbidv1.SweepSpec) {
	c.spec, c.tuner = spec, Settings{Spec: spec}.withDefaults()
	c.steps = MaxSteps(c.tuner)
	c.maximise = spec.GetMode() == "max"
}

// limit returns the maximum number of trials, or 0 for no limit.
func (c *core) limit() int { return int(c.spec.GetLimits().GetTrials()) }

// canCreate reports whether the trial limit and the sampler allow another trial.
func (c *core) canCreate() bool {
	return !c.configs.dry && len(c.trials) < math.MaxInt32 && (c.limit() == 0 || len(c.trials) < c.limit())
}

// create makes the next trial and returns its configuration. If no configuration is left, it does nothing and returns
// false.
func (c *core) create(r record, until int64, label int, reason string) (Config, bool, error) {
	config, ok, err := c.configs.next(Trial(len(c.trials)))
	if err != nil || !ok {
		return nil, false, err
	}
	if t, n := len(c.trials), len(c.configs.points); t < n {
		reason += fmt.Sprintf(", the configuration given as point %d of %d", t+1, n)
	}
	c.add(r, config, until, label, reason)
	return config, true, nil
}

// add makes the next trial with a given configuration.
func (c *core) add(r record, config Config, until int64, label int, reason string) {
	t := Trial(len(c.trials))
	c.trials = append(c.trials, r)
	c.do(Create{Config: config, UntilStep: until, Bracket: label, Seed: c.configs.seed(t), Reason: reason})
}

func (c *core) do(a Action) { c.out = append(c.out, a) }

func (c *core) train(t Trial, until int64, reason string) {
	c.trials[t].phase = running
	c.do(Train{Trial: t, UntilStep: until, Reason: reason})
}

func (c *core) pause(t Trial, reason string) {
	c.trials[t].phase = paused
	c.do(Pause{Trial: t, Reason: reason})
}

func (c *core) end(t Trial, whole bool, reason string) {
	c.trials[t].phase = stopped
	if whole {
		c.trials[t].phase = completed
	}
	c.do(End{Trial: t, Completed: whole, Reason: reason})
}

// giveUp marks a trial that completed before an extension and will not continue. Outside the tuner it ended long ago,
// so no action is needed. It returns the trial.
func (c *core) giveUp(t Trial) Trial {
	if c.trials[t].phase == completed {
		c.trials[t].phase = stopped
	}
	return t
}

// cost converts a metric into the value that rankings use: lower is better. NaN stays NaN.
func (c *core) cost(metric float64) float64 {
	if c.maximise {
		return -metric
	}
	return metric
}

func (c *core) entry(t Trial) entry { return entry{Cost: c.cost(c.trials[t].metric), Trial: t} }

func (c *core) metricName() string {
	if name := c.spec.GetMetric(); name != "" {
		return name
	}
	return "the metric"
}

// tooEarly returns an error for an early Reached. A tuner that accepted the event would wait forever for the trial.
func tooEarly(e Reached, target int64) error {
	return fmt.Errorf("trial %d reached step %d, but it was to train until step %d", e.Trial, e.Step, target)
}
