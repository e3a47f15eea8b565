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

// A Model says how trials train.
type Model interface {
	// Start is called when a fork's process starts, on the node where its rank 0 is. An error breaks off the run.
	Start(f ForkInfo) (Training, error)
}

// ForkInfo is what a model knows of a fork.
type ForkInfo struct {
	Sweep, Config string
	// Job is how the trial behaves by its App; nil if that does not say.
	Job *Job
	// Nodes of the cluster, and the places on them that the fork holds.
	Nodes []cluster.Node
	Gang  cluster.Gang
	// Random draws whatever is random; it is the run's own.
	Random *rand.Rand
}

// Training is how one fork trains. Steps may be broken: checkpoints and reports say the whole step below.
type Training interface {
	// Next says what is seen next of a fork that is at a step and is to train until another; 0 for no such target.
	Next(step float64, until int64) Sight
	// At is the step at which a fork is that was at step, so long before; passed may be below 0.
	At(step float64, passed time.Duration) float64
	// Metric is what is reported at a step; false if nothing is.
	Metric(step float64) (value float64, reports bool)
	// Stop is how long the process takes to end when it is told to.
	Stop() time.Duration
}

// Sight is what is seen of a fork: after how long, at which step, and what.
type Sight struct {
	After time.Duration
	Step  float64
	What  Seen
}

// Seen is what may be seen of a fork.
type Seen int

// Unseen is nothing until it is told something. Otherwise it reports, has reached its target, its code has ended, or it has
// taken its worker down with it.
const (
	Unseen Seen = iota
	Reports
	Reaches
	Finishes
	Kills
)

// Curves is the model of traces: a trial trains at the rate that its Job has on its gang, and reports its loss now and then.
// It works out when something will next be seen, however long that is.
type Curves struct{}

// Start implements Model.
func (Curves) Start(f ForkInfo) (Training, error) {
	if f.Job == nil {
		return nil, errors.New("its app does not say how it trains: the model Curves needs Jobs")
	}
	rate := cluster.RateOf(f.Nodes, f.Gang, f.Job.Speeds)
	if rate <= 0 {
		return nil, fmt.Errorf("it is on %d devices of type %s, where it does not run", f.Gang.Size(), cluster.TypeOf(f.Nodes, f.Gang))
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
	next.Step = max(next.Step, step) // forks, or who it is a clone of, came further than its own code would
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

// Steps is the model of sweeps that bring no jobs: each step takes about the same time, and is reported. How good a
// configuration is shows more and more as it trains, and depends on nothing else, so that a run with faults must end as one
// without.
type Steps struct {
	// Time of a step on a device of full speed; 0 lets nothing happen by itself but that targets are reached.
	Time time.Duration
	// Deadly is the name of a sweep whose trials take their worker down at their third step.
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

// uneven is how long one step takes.
func (s *steps) uneven() time.Duration { return time.Duration(s.time * (0.9 + 0.2*s.random.Float64())) }

// At implements Training: a step that is not done counts for nothing.
func (s *steps) At(step float64, _ time.Duration) float64 { return step }

// Metric implements Training.
func (s *steps) Metric(step float64) (float64, bool) {
	return s.quality * (1 - math.Exp(-step/3)), s.time > 0
}

// mostStop is the longest that a process takes to end.
const mostStop = 500 * time.Millisecond

// Stop implements Training.
func (s *steps) Stop() time.Duration { return time.Duration(s.random.Int64N(int64(mostStop))) }
