package sim

import (
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
)

// A Model determines how trials train.
type Model interface {
	// Start is called when a fork's process starts, on the node of its rank 0. An error aborts the run.
	Start(f ForkInfo) (Training, error)
}

// ForkInfo is the information about a fork for its model.
type ForkInfo struct {
	Sweep, Config string
	// Job is the trial's behaviour in its App, or nil if that does not have it.
	Job *Job
	// Nodes are those of the cluster, and Gang the places that the fork holds.
	Nodes []cluster.Node
	Gang  cluster.Gang
	// Random is the run's random generator.
	Random *rand.Rand
}

// Training is the training of one fork. Steps may be fractional; checkpoints and reports have the whole step below.
type Training interface {
	// Next returns the next visible event of a fork that is at a step and trains until another; 0 means without a
	// target.
	Next(step float64, until int64) Sight
	// At returns the step after a time; passed may be negative.
	At(step float64, passed time.Duration) float64
	// Metric returns the metric reported at a step, or false if nothing is reported.
	Metric(step float64) (value float64, reports bool)
	// Stop returns the time that the process takes to end when ordered to.
	Stop() time.Duration
}

// Sight is a visible event of a fork: the time until then, the step, and the kind.
type Sight struct {
	After time.Duration
	Step  float64
	What  Seen
}

// Seen is a kind of visible event.
type Seen int

// Unseen means that nothing happens without an order. Otherwise the fork reports, reaches its target, its code ends, or
// it crashes its worker.
const (
	Unseen Seen = iota
	Reports
	Reaches
	Finishes
	Kills
)

// Curves is the model for traces. A trial trains at its Job's rate on its gang and reports its loss at intervals. It
// computes the time of the next event directly.
type Curves struct{}

// Start implements Model.
func (Curves) Start(f ForkInfo) (Training, error) {
	if f.Job == nil {
		return nil, errors.New("its app has no Jobs, which the model Curves needs")
	}
	rate := cluster.RateOf(f.Nodes, f.Gang, f.Job.Speeds)
	if rate <= 0 {
		return nil, fmt.Errorf("it was placed on %d devices of type %s, on which it does not run", f.Gang.Size(), cluster.TypeOf(f.Nodes, f.Gang))
	}
	return &curve{f.Job, rate}, nil
}

type curve struct {
	job  *Job
	rate float64
}

// Next implements Training.
func (c *curve) Next(step float64, until int64) Sight {
	next := Sight{Step: math.Inf(1), What: Reaches}
	if until > 0 {
		next.Step = float64(until)
	}
	if c.job.Steps > 0 && float64(c.job.Steps) <= next.Step {
		next.Step, next.What = float64(c.job.Steps), Finishes
	}
	every := c.job.Every
	if every == 0 && c.job.Reports > 0 {
		every = float64(c.job.Steps) / float64(c.job.Reports)
	}
	if c.job.Loss != nil && every > 0 {
		if at := (math.Floor(step/every+1e-9) + 1) * every; at < next.Step-1e-9 {
			next.Step, next.What = at, Reports
		}
	}
	if math.IsInf(next.Step, 1) {
		return Sight{Step: next.Step}
	}
	next.Step = max(next.Step, step) // forks, or the source of a clone, may be past the end of its code
	seconds := (next.Step - step) / c.rate
	next.After = time.Duration(math.Ceil(seconds * 1e9))
	return next
}

// At implements Training.
func (c *curve) At(step float64, passed time.Duration) float64 {
	at := step + c.rate*passed.Seconds()
	if end := float64(c.job.Steps); end > 0 && at > end && passed > 0 {
		return max(end, step)
	}
	return at
}

// Metric implements Training.
func (c *curve) Metric(step float64) (float64, bool) {
	if c.job.Loss == nil {
		return 0, false
	}
	return c.job.Loss(step), true
}

// Stop implements Training.
func (c *curve) Stop() time.Duration { return 0 }

// Steps is the model for sweeps without jobs: each step takes about the same time and is reported. The metric converges
// to the configuration's quality with the number of steps and depends on nothing else, so that a run with faults must
// end like one without.
type Steps struct {
	// Time is the time of a step on a device of full speed. With 0, targets are reached at once and nothing else
	// happens.
	Time time.Duration
	// Deadly is the name of a sweep whose trials crash their worker at their third step.
	Deadly string
}

// Start implements Model.
func (m Steps) Start(f ForkInfo) (Training, error) {
	h := fnv.New64a()
	_, _ = h.Write([]byte(f.Config))
	s := &steps{
		time: float64(m.Time), quality: float64(h.Sum64()%1_000_003) / 1_000_003, random: f.Random,
		deadly: m.Deadly != "" && strings.HasPrefix(f.Sweep, m.Deadly+"-"),
	}
	place := f.Gang[0]
	if speed := f.Nodes[place.Node].Devices[place.Devices[0]].Speed; speed > 0 {
		s.time /= speed
	}
	return s, nil
}

type steps struct {
	time, quality float64
	random        *rand.Rand
	deadly        bool
}

// Next implements Training.
func (s *steps) Next(step float64, until int64) Sight {
	switch {
	case until > 0 && step >= float64(until):
		return Sight{Step: step, What: Reaches}
	case s.time == 0:
		return Sight{}
	case s.deadly && step == 2:
		return Sight{s.uneven(), step + 1, Kills}
	default:
		return Sight{s.uneven(), step + 1, Reports}
	}
}

// uneven returns the time of one step.
func (s *steps) uneven() time.Duration { return time.Duration(s.time * (0.9 + 0.2*s.random.Float64())) }

// At implements Training: an unfinished step does not count.
func (s *steps) At(step float64, _ time.Duration) float64 { return step }

// Metric implements Training.
func (s *steps) Metric(step float64) (float64, bool) {
	return s.quality * (1 - math.Exp(-step/3)), s.time > 0
}

// mostStop is the maximum time that a process takes to end.
const mostStop = 500 * time.Millisecond

// Stop implements Training.
func (s *steps) Stop() time.Duration { return time.Duration(s.random.Int64N(int64(mostStop))) }
