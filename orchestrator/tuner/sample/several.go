package sample

import (
	"math"
	"math/rand/v2"
	"slices"
)

// A SeveralLearner is a Learner that can learn from several costs of each trial.
type SeveralLearner interface {
	Learner
	// ToldAll records the costs of a trial that ended, one for each objective; lower is better. A trial without one of
	// them, which is NaN or infinite, counts as failed. All calls have the same number of costs.
	ToldAll(trial int, costs []float64)
}

var _ SeveralLearner = (*Bayes)(nil)

const (
	// weightStream separates the weights of objectives from other uses of a sweep's seed.
	weightStream = 0x77656967687473
	// sumShare is the share of the weighted sum in the cost of several objectives (rho of Knowles 2006, equation 2).
	sumShare = 0.05
)

// ToldAll implements SeveralLearner.
func (b *Bayes) ToldAll(trial int, costs []float64) {
	i, kept := slices.BinarySearch(b.Kept, trial)
	if !kept {
		return
	}
	if b.Vectors == nil {
		b.Vectors = make([][]float64, len(b.Kept))
	}
	if slices.ContainsFunc(costs, func(c float64) bool { return math.IsNaN(c) || math.IsInf(c, 0) }) {
		b.Told(trial, math.NaN())
		return
	}
	b.Vectors[i] = slices.Clone(costs)
	b.Told(trial, 0)
}

// weighted returns the costs of the kept trials as one number each, under weights that are drawn for each new trial, so
// that the trials spread along the Pareto front (ParEGO, Knowles 2006, equation 2: the largest weighted cost plus a part of
// the sum). Costs are first scaled so that the front reaches from 0 to 1. With one objective they are returned as they are.
func (b *Bayes) weighted() []float64 {
	if b.Vectors == nil {
		return b.Costs
	}
	low, high := b.reach()
	weights := make([]float64, len(low))
	random := rand.New(rand.NewPCG(b.seed, weightStream+uint64(b.Trials)))
	sum := 0.0
	for k := range weights { // uniform on the simplex
		weights[k] = random.ExpFloat64()
		sum += weights[k]
	}
	costs := slices.Clone(b.Costs)
	for i, v := range b.Vectors {
		if !b.isKnown(i) {
			continue
		}
		largest, total := math.Inf(-1), 0.0
		for k, c := range v {
			w := weights[k] / sum * (c - low[k]) / (high[k] - low[k])
			largest, total = max(largest, w), total+w
		}
		costs[i] = min(largest+float64(sumShare*total), math.MaxFloat64) // an infinite cost is that of a running trial
	}
	return costs
}

// isKnown reports whether a kept trial has ended with a cost for each objective.
func (b *Bayes) isKnown(i int) bool {
	return len(b.Vectors[i]) > 0 && !math.IsInf(b.Costs[i], 0) && !math.IsNaN(b.Costs[i])
}

// reach returns the least and the largest cost of each objective among the trials that no other one dominates. Where these
// have the same cost, the largest one is that of all trials.
func (b *Bayes) reach() (low, high []float64) {
	var worst []float64
	beaten := b.beaten()
	for i, v := range b.Vectors {
		if !b.isKnown(i) {
			continue
		}
		if worst == nil {
			worst = slices.Clone(v)
		}
		for k, c := range v {
			worst[k] = max(worst[k], c)
		}
		if beaten[i] > 0 {
			continue
		}
		if low == nil {
			low, high = slices.Clone(v), slices.Clone(v)
		}
		for k, c := range v {
			low[k], high[k] = min(low[k], c), max(high[k], c)
		}
	}
	for k := range low {
		if high[k] <= low[k] {
			high[k] = worst[k]
		}
		if high[k] <= low[k] {
			high[k] = low[k] + 1 // all trials have this cost
		}
	}
	return low, high
}

// beaten returns for each kept trial with known costs how many others dominate it.
func (b *Bayes) beaten() []int {
	found := make([]int, len(b.Vectors))
	for i, v := range b.Vectors {
		for j, w := range b.Vectors {
			if i != j && b.isKnown(i) && b.isKnown(j) && dominates(w, v) {
				found[i]++
			}
		}
	}
	return found
}

// dominates reports whether costs are nowhere larger than others, and somewhere smaller.
func dominates(a, b []float64) bool {
	smaller := false
	for k := range a {
		if a[k] > b[k] {
			return false
		}
		smaller = smaller || a[k] < b[k]
	}
	return smaller
}

// ranks returns a cost for each kept trial that orders them for forgetting: its own cost, or with several objectives how
// many others dominate it.
func (b *Bayes) ranks() []float64 {
	if b.Vectors == nil {
		return b.Costs
	}
	costs := slices.Clone(b.Costs)
	for i, n := range b.beaten() {
		if b.isKnown(i) {
			costs[i] = float64(n)
		}
	}
	return costs
}
