package tuner

import (
	"fmt"
	"maps"
	"math"
	"slices"
)

// median is the median stopping rule of Golovin, Solnik, Moitra, Kochanski, Karro and Sculley, "Google Vizier: A
// Service for Black-Box Optimization" (KDD 2017), section 3.2.2: a trial is stopped at step s if its best objective by
// s is strictly worse than the median of the running averages up to s of the other trials. The paper averages over
// completed trials; here, as in Ray Tune, over all that got to step s, so that stopping begins before the first trial
// is done.
//
// Trials are judged at checkpoints: grace_steps, 2 grace_steps, 4 grace_steps and so on, each at the first report at
// or past it. That bounds what is kept to one number for each trial and checkpoint. A report without the metric says
// nothing; one whose metric is NaN makes the trial the worst at its next checkpoint, as average and as best.
type median struct {
	*flat
	medianState
	// live is the state of the trials under way, and of those that completed, for an extension.
	live map[Trial]*course
}

// medianState is what a snapshot holds beside the trials.
type medianState struct {
	Points []checkpoint
	Curves []course
	Flat   flatState
}

// A course is what is kept of a trial under way.
type course struct {
	Trial Trial
	Step  int64
	Sum   float64
	Best  float64
	N     int32
	// Lost: its newest metric was NaN.
	Lost bool
}

// A checkpoint holds the running averages, as costs, of the trials that got there: the better half and the others,
// and the number of those that are NaN.
type checkpoint struct {
	Better, Worse []float64
	NaN           int
}

func newMedian(c *core) (rules, error) {
	f, err := newFlat(c, "random draw")
	if err != nil {
		return nil, err
	}
	if samplerName(c.spec.GetTuner()) == "sobol" {
		f.label = "Sobol point"
	}
	set := c.spec.GetTuner().GetMedian()
	switch {
	case set.GetMaxSteps() < 1:
		return nil, fmt.Errorf("tuner.median.max_steps: %d steps are no training; use 1 or more", set.GetMaxSteps())
	case set.GetGraceSteps() < 0:
		return nil, fmt.Errorf("tuner.median.grace_steps: %d is negative; use 1 or more", set.GetGraceSteps())
	case set.GetMinTrials() < 0:
		return nil, fmt.Errorf("tuner.median.min_trials: %d is negative; use 1 or more", set.GetMinTrials())
	}
	return &median{flat: f, live: map[Trial]*course{}}, nil
}

func (m *median) grace() int64 { return max(1, m.spec.GetTuner().GetMedian().GetGraceSteps()) }

func (m *median) minTrials() int {
	if n := int(m.spec.GetTuner().GetMedian().GetMinTrials()); n > 0 {
		return n
	}
	return 3
}

func (m *median) reported(e Reported) {
	given := !math.IsNaN(e.Metric)
	if !given {
		_, given = e.Metrics[m.spec.GetMetric()]
	}
	if !given {
		return
	}
	m.judge(e.Trial, e.Step, e.Metric)
}

// judge takes in a report, and ends the trial if it passed a checkpoint badly.
func (m *median) judge(t Trial, step int64, metric float64) {
	c, passed := m.take(t, step, metric)
	if passed < 0 {
		return
	}
	p, best := &m.Points[passed], c.best()
	if others := p.len(); others >= m.minTrials() {
		if mid := p.median(); best > mid || math.IsNaN(best) && !math.IsNaN(mid) {
			m.end(t, false, fmt.Sprintf("step %d: its best %s (%.6g) is worse than the median of the running averages of "+
				"%d others (%.6g)", step, m.metricName(), m.cost(best), others, m.cost(mid)))
		}
	}
	p.add(c.average())
	if m.trials[t].phase.ended() {
		delete(m.live, t)
	}
}

// take counts in a report. It returns the last checkpoint that the trial passed with it, -1 if none; the trial is in
// those it passed before.
func (m *median) take(t Trial, step int64, metric float64) (*course, int) {
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
		c.Sum += m.cost(metric)
		c.N++
		c.Best = min(c.Best, m.cost(metric))
	}
	passed := -1
	for k := m.first(from); k < maxRungs && m.at(k) <= min(step, m.steps()-1); k++ {
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

func (m *median) reached(e Reached) error {
	if !math.IsNaN(e.Metric) {
		if c, passed := m.take(e.Trial, e.Step, e.Metric); passed >= 0 {
			m.Points[passed].add(c.average())
		}
	}
	return m.flat.reached(e)
}

func (m *median) left(e Exited, _ phase) { delete(m.live, e.Trial) }

// at is the step of the k-th checkpoint.
func (m *median) at(k int) int64 { return times(m.grace(), power(2, k)) }

// first is the first checkpoint past a step.
func (m *median) first(step int64) int {
	k := 0
	for k < maxRungs && m.at(k) <= step {
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

// add counts a running average in. Better holds the lower ceil(n/2) of all n, as far as they are numbers.
func (p *checkpoint) add(cost float64) {
	better := heap[float64]{func(a, b float64) bool { return a > b }, p.Better}
	worse := heap[float64]{func(a, b float64) bool { return a < b }, p.Worse}
	if math.IsNaN(cost) {
		p.NaN++
	} else {
		better.push(cost)
		worse.push(better.pop())
	}
	for n := better.len() + worse.len() + p.NaN; better.len() < (n+1)/2 && worse.len() > 0; {
		better.push(worse.pop())
	}
	p.Better, p.Worse = better.items, worse.items
}

// median is the middle one, or halfway between the two in the middle; NaN if one of those is.
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

func (m *median) save() (any, error) {
	m.medianState.Flat = m.flatState
	m.medianState.Curves = nil
	for _, t := range slices.Sorted(maps.Keys(m.live)) {
		m.medianState.Curves = append(m.medianState.Curves, *m.live[t])
	}
	return m.medianState, nil
}

func (m *median) load(decode func(any) error) error {
	if err := decode(&m.medianState); err != nil {
		return err
	}
	m.flatState = m.medianState.Flat
	for _, c := range m.Curves {
		m.live[c.Trial] = &c
	}
	m.Curves = nil
	return m.flatState.check(len(m.trials))
}
