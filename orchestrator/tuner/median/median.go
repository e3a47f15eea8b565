// Package median is the median stopping rule of Golovin, Solnik, Moitra, Kochanski, Karro and Sculley, "Google Vizier:
// A Service for Black-Box Optimization" (KDD 2017), section 3.2.2. It stops a trial at step s if its best objective up
// to s is strictly worse than the median of the other trials' running averages up to s. The paper averages over
// completed trials. This implementation, like Ray Tune, averages over all trials that reached s, so that stopping
// begins before the first trial is done.
//
// Trials are judged at checkpoints: grace_steps, 2 grace_steps, 4 grace_steps and so on, each at the first report at or
// past it. This limits the state to one number for each trial and checkpoint. A report without the metric is ignored. A
// report whose metric is NaN makes the trial the worst at its next checkpoint, both as average and as best.
package median

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/engine"
	"github.com/outbid-dev/outbid/orchestrator/tuner/ladder"
	"github.com/outbid-dev/outbid/orchestrator/tuner/rank"
	"github.com/outbid-dev/outbid/orchestrator/tuner/saturate"
	"github.com/outbid-dev/outbid/orchestrator/tuner/singlestage"
)

// median stops trials below the median.
type median struct {
	*singlestage.Rules
	state
	// live is the state of running trials, and of completed ones in case of an extension.
	live map[tuner.Trial]*course
}

// state is the part of a snapshot besides the trials.
type state struct {
	Points []checkpoint
	Curves []course
	Flat   singlestage.State
}

// A course is the state of one trial.
type course struct {
	Trial tuner.Trial
	Step  int64
	Sum   float64
	Best  float64
	N     int32
	// Lost is set if the newest metric was NaN.
	Lost bool
}

// A checkpoint holds the running averages, as costs, of the trials that reached it: the better half, the worse half,
// and the number of trials whose average is NaN.
type checkpoint struct {
	Better, Worse []float64
	NaN           int
}

// Kind describes the tuner to the registry.
func Kind() *engine.Kind {
	return &engine.Kind{
		Name: "median", Rule: true, Traits: tuner.Traits{Endless: true},
		Fresh: func(c *engine.Core) (engine.Rules, error) {
			return &median{Rules: singlestage.NewSampled(c), live: map[tuner.Trial]*course{}}, nil
		},
	}
}

func (m *median) grace() int64 { return m.Tuner.GetMedian().GetGraceSteps() }

func (m *median) minTrials() int { return int(m.Tuner.GetMedian().GetMinTrials()) }

func (m *median) Reported(e tuner.Reported) {
	given := !math.IsNaN(e.Metric)
	if !given {
		_, given = e.Metrics[m.Spec.GetMetric()]
	}
	if !given {
		return
	}
	m.judge(e.Trial, e.Step, e.Metric)
}

// judge records a report and ends the trial if it fails at a checkpoint.
func (m *median) judge(t tuner.Trial, step int64, metric float64) {
	c, passed := m.record(t, step, metric)
	if passed < 0 {
		return
	}
	p, best := &m.Points[passed], c.best()
	if others := p.len(); others >= m.minTrials() {
		if mid := p.median(); best > mid || math.IsNaN(best) && !math.IsNaN(mid) {
			m.End(t, false, fmt.Sprintf("step %d: its best %s (%.6g) is worse than the median of the running averages of "+
				"%d others (%.6g)", step, m.MetricName(), m.Cost(best), others, m.Cost(mid)))
		}
	}
	p.add(c.average())
	if m.Trials[t].Phase.Ended() {
		delete(m.live, t)
	}
}

// record records a report. It returns the last checkpoint that the trial passed with it, or -1 if none, and adds the
// trial to the checkpoints passed before that one.
func (m *median) record(t tuner.Trial, step int64, metric float64) (*course, int) {
	c := m.live[t]
	if c == nil {
		c = &course{Trial: t, Best: math.Inf(1)}
		m.live[t] = c
	}
	from := c.Step
	if step <= from {
		return c, -1
	}
	c.Step = step
	if c.Lost = math.IsNaN(metric); !c.Lost {
		c.Sum += m.Cost(metric)
		c.N++
		c.Best = min(c.Best, m.Cost(metric))
	}
	passed := -1
	for k := m.first(from); k < ladder.MaxRungs && m.at(k) <= min(step, m.Steps-1); k++ {
		for len(m.Points) <= k {
			m.Points = append(m.Points, checkpoint{})
		}
		if passed >= 0 {
			m.Points[passed].add(c.average())
		}
		passed = k
	}
	return c, passed
}

func (m *median) Reached(e tuner.Reached) error {
	if !math.IsNaN(e.Metric) {
		if c, passed := m.record(e.Trial, e.Step, e.Metric); passed >= 0 {
			m.Points[passed].add(c.average())
		}
	}
	return m.Rules.Reached(e)
}

func (m *median) HandleExit(e tuner.Exited, _ engine.Phase) { delete(m.live, e.Trial) }

// at returns the step of the k-th checkpoint.
func (m *median) at(k int) int64 { return saturate.Times(m.grace(), saturate.Power(2, k)) }

// first returns the index of the first checkpoint past a step.
func (m *median) first(step int64) int {
	k := 0
	for k < ladder.MaxRungs && m.at(k) <= step {
		k++
	}
	return k
}

func (c *course) average() float64 {
	if c.Lost || c.N == 0 {
		return math.NaN()
	}
	return c.Sum / float64(c.N)
}

func (c *course) best() float64 {
	if c.Lost || c.N == 0 {
		return math.NaN()
	}
	return c.Best
}

func (p *checkpoint) len() int { return len(p.Better) + len(p.Worse) + p.NaN }

// add records a running average. Better holds the lower ceil(n/2) of all n averages, if that many are not NaN.
func (p *checkpoint) add(cost float64) {
	better := rank.HeapOf(func(a, b float64) bool { return a > b }, p.Better)
	worse := rank.HeapOf(func(a, b float64) bool { return a < b }, p.Worse)
	if math.IsNaN(cost) {
		p.NaN++
	} else {
		better.Push(cost)
		worse.Push(better.Pop())
	}
	for n := better.Len() + worse.Len() + p.NaN; better.Len() < (n+1)/2 && worse.Len() > 0; {
		better.Push(worse.Pop())
	}
	p.Better, p.Worse = better.Items, worse.Items
}

// median returns the middle average, or the mean of the two middle ones. It is NaN if one of those is NaN.
func (p *checkpoint) median() float64 {
	n := p.len()
	switch {
	case n == 0 || len(p.Better) < (n+1)/2:
		return math.NaN()
	case n%2 == 1:
		return p.Better[0]
	case len(p.Worse) == 0:
		return math.NaN()
	default:
		return p.Better[0]/2 + p.Worse[0]/2
	}
}

func (m *median) Save() (any, error) {
	m.state.Flat = m.State
	m.state.Curves = nil
	for _, t := range slices.Sorted(maps.Keys(m.live)) {
		m.state.Curves = append(m.state.Curves, *m.live[t])
	}
	return m.state, nil
}

func (m *median) Load(decode func(any) error) error {
	if err := decode(&m.state); err != nil {
		return err
	}
	m.State = m.state.Flat
	for _, c := range m.Curves {
		m.live[c.Trial] = &c
	}
	m.Curves = nil
	return m.State.Check(len(m.Trials))
}
