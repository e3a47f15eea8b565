package tuner

import (
	"fmt"
	"math"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// A phase says where the tuner has a trial.
type phase uint8

const (
	// running: wanted on a device until its target.
	running phase = iota
	// paused: reached its target and waits for a decision.
	paused
	// ready: is to go on, and will be trained at one of the next Asks.
	ready
	// stopped, completed and exited are ends; only an extension to longer steps takes a completed trial up again.
	stopped
	completed
	exited
)

func (p phase) ended() bool { return p >= stopped }

// A record is all that is kept of a trial: 16 bytes.
type record struct {
	// metric at the newest rung, for the tuners that have rungs.
	metric float64
	// bracket is an index into the tuner's list of brackets, rung the one that the trial is on its way to or waits in.
	bracket int32
	rung    uint8
	phase   phase
}

// mayGoOn reports whether the trial completed what was the last rung before an extension put others above it.
func (r record) mayGoOn(top int) bool {
	return r.phase == completed && int(r.rung) < top && !math.IsNaN(r.metric)
}

// A core is what all built-in tuners share: the trials, where configurations come from, and the actions under way.
type core struct {
	spec     *outbidv1.SweepSpec
	maximise bool
	trials   []record
	configs  *configs
	out      []Action
}

func newCore(s Settings) (*core, error) {
	if l := s.Spec.GetLimits().GetTrials(); l < 0 {
		return nil, fmt.Errorf("limits.trials: %d is negative; use 0 for no limit", l)
	}
	c := &core{}
	c.use(s.Spec)
	var err error
	c.configs, err = newConfigs(s.Spec)
	return c, err
}

func (c *core) use(spec *outbidv1.SweepSpec) {
	c.spec = spec
	c.maximise = spec.GetMode() == "max"
}

// limit is the most trials that may be created, 0 for no limit.
func (c *core) limit() int { return int(c.spec.GetLimits().GetTrials()) }

// canCreate reports whether the limit of trials and the supply of configurations allow another trial.
func (c *core) canCreate() bool {
	return !c.configs.dry && len(c.trials) < math.MaxInt32 && (c.limit() == 0 || len(c.trials) < c.limit())
}

// create makes the next trial and returns its configuration. It reports false, and does nothing, if there is none left.
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

// add makes the next trial of a configuration.
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

// giveUp marks a trial that completed before an extension and is not to go on: for everybody else it has ended long
// ago. It returns the trial.
func (c *core) giveUp(t Trial) Trial {
	if c.trials[t].phase == completed {
		c.trials[t].phase = stopped
	}
	return t
}

// cost turns a metric into what rankings order by: lower is better. NaN stays NaN.
func (c *core) cost(metric float64) float64 {
	if c.maximise {
		return -metric
	}
	return metric
}

func (c *core) entry(t Trial) entry { return entry{c.cost(c.trials[t].metric), t} }

func (c *core) metricName() string {
	if name := c.spec.GetMetric(); name != "" {
		return name
	}
	return "the metric"
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
