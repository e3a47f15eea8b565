// Package progress records the costs of trials at growing steps. It forecasts the final cost that a stopped or paused
// trial would have had, so that a sampler can compare it with trials that trained longer.
package progress

import (
	"cmp"
	"math"
	"slices"
)

// Curves are the known parts of the learning curves of a sweep. They are plain data and part of a snapshot.
type Curves struct{ Trials []Curve }

// A Curve is the known part of one trial's learning curve.
type Curve struct {
	// Costs[k] is the cost of the first report at or past step Mark(k). It is +Inf if that was not a finite number, and
	// NaN if the report also passed the next mark.
	Costs []float64
	// Last is the newest cost, Step its step, and Reports the number of steps with a report.
	Last    float64
	Step    int64
	Reports int32
	// Whole is set if the trial trained to its end.
	Whole bool
}

const (
	// MaxMarks is the number of marks. The largest mark is the largest power of two that is a valid step.
	MaxMarks = 124
	// Recent is the number of the newest trials whose curves are kept and used.
	Recent = 256
	// leastThere is the number of trials that must have reached a mark or the end before others are forecast there.
	leastThere = 3
)

// Mark returns the step of a mark: 1, 2, 3, 4, 6, 8, 11 and so on, each about 1.4 times the one before.
func Mark(k int) int64 {
	if k == 0 {
		return 1
	}
	return int64(math.Round(math.Pow(2, float64(k+1)/2)))
}

// First returns the number of the oldest trial whose curve is kept.
func (c *Curves) First() int { return max(0, len(c.Trials)-Recent) }

// Report records a trial's cost at a step and reports whether the trial passed a mark. A second report of a step
// replaces the newest cost.
func (c *Curves) Report(trial int, step int64, cost float64) bool {
	t := c.of(trial)
	if trial < c.First() || step <= 0 || step < t.Step {
		return false
	}
	if math.IsNaN(cost) || math.IsInf(cost, 0) {
		cost = math.Inf(1)
	}
	if step > t.Step {
		t.Reports++
	}
	t.Step, t.Last = step, cost
	before := len(t.Costs)
	for k := before; k < MaxMarks && Mark(k) <= step; k++ {
		if k > before {
			t.Costs[k-1] = math.NaN()
		}
		t.Costs = append(t.Costs, cost)
	}
	return len(t.Costs) > before
}

// SetWhole records whether a trial trained to its end. An extension to more steps may undo that.
func (c *Curves) SetWhole(trial int, whole bool) { c.of(trial).Whole = whole }

func (c *Curves) of(trial int) *Curve {
	for trial >= len(c.Trials) {
		if old := len(c.Trials) - Recent; old >= 0 {
			c.Trials[old].Costs = nil
		}
		c.Trials = append(c.Trials, Curve{})
	}
	return &c.Trials[trial]
}

// A Forecaster forecasts the ends of trials from the curves at one time.
type Forecaster struct {
	curves *Curves
	// there holds, for each mark, the costs at the mark and at the end of the trials that went furthest.
	there map[int][]pair
}

// A pair is the cost of a trial at a mark and at a later step.
type pair struct{ now, later float64 }

// Forecaster returns a forecaster for the curves as they are now.
func (c *Curves) Forecaster() *Forecaster { return &Forecaster{c, map[int][]pair{}} }

// Of returns the expected final cost of a trial, or false if it has not reported. It is the mean end of the
// two trials whose costs at the same mark were the nearest above and below. Before three trials have ended, it is the cost
// at the last mark that three trials have reached.
func (f *Forecaster) Of(trial int) (float64, bool) {
	if trial < f.curves.First() || trial >= len(f.curves.Trials) || f.curves.Trials[trial].Reports == 0 {
		return math.NaN(), false
	}
	t := &f.curves.Trials[trial]
	k := len(t.Costs) - 1
	if t.Whole || k < 0 || math.IsInf(t.Costs[k], 1) {
		return t.Last, true
	}
	if _, known := f.there[k]; !known {
		f.there[k] = f.curves.pairs(k)
	}
	pairs, now := f.there[k], t.Costs[k]
	i, _ := slices.BinarySearchFunc(pairs, now, func(p pair, v float64) int { return cmp.Compare(p.now, v) })
	switch {
	case len(pairs) == 0:
		return t.Last, true
	case i == 0:
		return pairs[0].later, true
	case i == len(pairs): // behind all: by as much as it is now
		worst := pairs[i-1]
		return worst.later + now - worst.now, true
	}
	return (pairs[i-1].later + pairs[i].later) / 2, true
}

// pairs returns the costs at a mark, in ascending order, of the trials that ended, or of those at the last mark that
// enough have reached. It returns nil if too few have gone further.
func (c *Curves) pairs(k int) []pair {
	whole := c.collect(k, func(t *Curve) (float64, bool) { return t.Last, t.Whole })
	if len(whole) >= leastThere {
		return whole
	}
	longest := 0
	for i := c.First(); i < len(c.Trials); i++ {
		longest = max(longest, len(c.Trials[i].Costs))
	}
	for far := longest - 1; far > k; far-- {
		there := c.collect(k, func(t *Curve) (float64, bool) {
			if far >= len(t.Costs) {
				return 0, false
			}
			return t.Costs[far], true
		})
		if len(there) >= leastThere {
			return there
		}
	}
	return nil
}

// collect returns the finite costs at a mark with the later ones, in ascending order.
func (c *Curves) collect(k int, later func(*Curve) (float64, bool)) []pair {
	finite := func(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }
	var all []pair
	for i := c.First(); i < len(c.Trials); i++ {
		t := &c.Trials[i]
		if k >= len(t.Costs) || !finite(t.Costs[k]) {
			continue
		}
		if v, ok := later(t); ok && finite(v) {
			all = append(all, pair{t.Costs[k], v})
		}
	}
	slices.SortFunc(all, func(a, b pair) int { return cmp.Or(cmp.Compare(a.now, b.now), cmp.Compare(a.later, b.later)) })
	return all
}
