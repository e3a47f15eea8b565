package sia

import (
	"cmp"
	"math"
	"slices"
)

// choice is a configuration of a job: a number of devices of a type, and its worth if the job gets it.
type choice struct {
	kind, devices int
	worth         float64
	held          bool
}

// exactWork bounds the steps of the exact program.
const exactWork = 4_000_000

// solve chooses at most one configuration per job, -1 for none, so that no type is used beyond free and the worth is
// largest. Up to exactWork the choice is optimal.
func solve(sets [][]choice, free []int) []int {
	states, options := 1, 0
	for _, n := range free {
		if states = states * (n + 1); states > exactWork {
			break
		}
	}
	for _, s := range sets {
		options += len(s) + 1
	}
	if states <= exactWork/max(options, 1) {
		return exact(sets, free, states)
	}
	return relaxed(sets, free)
}

// exact is a dynamic program over the devices used of each type.
func exact(sets [][]choice, free []int, states int) []int {
	width := make([]int, len(free)) // of a state's index by type
	for k, w := 0, 1; k < len(free); k++ {
		width[k] = w
		w *= free[k] + 1
	}
	best, next := make([]float64, states), make([]float64, states)
	taken := make([][]int16, len(sets))
	for i, set := range sets {
		copy(next, best)
		taken[i] = make([]int16, states)
		for s := range states {
			taken[i][s] = -1
			for c, o := range set {
				if s/width[o.kind]%(free[o.kind]+1) < o.devices {
					continue
				}
				if w := best[s-o.devices*width[o.kind]] + o.worth; w > next[s]+1e-12 {
					next[s], taken[i][s] = w, int16(c)
				}
			}
		}
		best, next = next, best
	}
	picked, s := make([]int, len(sets)), states-1
	for i := len(sets) - 1; i >= 0; i-- {
		picked[i] = int(taken[i][s])
		if picked[i] >= 0 {
			o := sets[i][picked[i]]
			s -= o.devices * width[o.kind]
		}
	}
	return picked
}

// relaxed prices the devices of each type by a subgradient method, lets each job choose at these prices what is left,
// those with the most profit per device first, and then improves single jobs while that is possible.
func relaxed(sets [][]choice, free []int) []int {
	prices := pricesOf(sets, free)
	left := slices.Clone(free)
	picked, order := make([]int, len(sets)), make([]int, len(sets))
	profit := make([]float64, len(sets))
	for i, set := range sets {
		picked[i], order[i] = -1, i
		if c := bestAt(set, prices, nil); c >= 0 {
			profit[i] = (set[c].worth - float64(set[c].devices)*prices[set[c].kind]) / float64(set[c].devices)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(profit[b], profit[a]) })
	for _, i := range order {
		if c := bestAt(sets[i], prices, left); c >= 0 {
			picked[i] = c
			left[sets[i][c].kind] -= sets[i][c].devices
		}
	}
	improve(sets, picked, left, order)
	return picked
}

// subgradientSteps is the number of steps for the prices.
const subgradientSteps = 200

// pricesOf returns the prices of the types' devices with the smallest dual value that the method finds.
func pricesOf(sets [][]choice, free []int) []float64 {
	prices, best := make([]float64, len(free)), make([]float64, len(free))
	scale := 0.0
	for _, set := range sets {
		for _, o := range set {
			scale = max(scale, o.worth/float64(o.devices))
		}
	}
	least := math.Inf(1)
	for step := range subgradientSteps {
		dual, used := 0.0, make([]int, len(free))
		for k, n := range free {
			dual += prices[k] * float64(n)
		}
		for _, set := range sets {
			if c := bestAt(set, prices, nil); c >= 0 {
				dual += set[c].worth - float64(set[c].devices)*prices[set[c].kind]
				used[set[c].kind] += set[c].devices
			}
		}
		if dual < least {
			least = dual
			copy(best, prices)
		}
		for k, n := range free {
			excess := float64(used[k]-n) / float64(max(n, 1))
			prices[k] = max(0, prices[k]+scale*min(max(excess, -1), 1)/float64(step+2))
		}
	}
	return best
}

// bestAt returns the configuration with the most profit at these prices among those that fit, or -1 if none has any.
// With left == nil all fit.
func bestAt(set []choice, prices []float64, left []int) int {
	best, most := -1, 0.0
	for c, o := range set {
		if left != nil && left[o.kind] < o.devices {
			continue
		}
		if profit := o.worth - float64(o.devices)*prices[o.kind]; profit > most {
			best, most = c, profit
		}
	}
	return best
}

// exchanges bounds how often all pairs are tried.
const exchanges = 4

// improve gives jobs better configurations from free devices, or at the cost of one other job, while that gains.
func improve(sets [][]choice, picked, left, order []int) {
	e := &exchange{sets, picked, left}
	for range exchanges {
		again := false
		for _, i := range order {
			for c, o := range sets[i] {
				if o.worth <= e.worth(i)+1e-12 {
					continue
				}
				for _, other := range order {
					if e.try(i, c, other) {
						again = true
						break
					}
				}
			}
		}
		if !again {
			return
		}
	}
}

// exchange is a solution that is being improved.
type exchange struct {
	sets         [][]choice
	picked, left []int
}

func (e *exchange) worth(i int) float64 {
	if e.picked[i] < 0 {
		return 0
	}
	return e.sets[i][e.picked[i]].worth
}

// set gives job i a configuration, or none with -1.
func (e *exchange) set(i, c int) {
	if was := e.picked[i]; was >= 0 {
		e.left[e.sets[i][was].kind] += e.sets[i][was].devices
	}
	if e.picked[i] = c; c >= 0 {
		e.left[e.sets[i][c].kind] -= e.sets[i][c].devices
	}
}

// try gives job i configuration c. If devices are missing, the job other gives up its own for the best that remains. It is
// undone unless both together gain.
func (e *exchange) try(i, c, other int) bool {
	was, others, gain := e.picked[i], e.picked[other], e.sets[i][c].worth-e.worth(i)
	kind := e.sets[i][c].kind
	e.set(i, c)
	if other != i && e.left[kind] < 0 && others >= 0 && e.sets[other][others].kind == kind {
		gain -= e.worth(other)
		if e.set(other, -1); e.left[kind] >= 0 {
			e.set(other, bestAt(e.sets[other], make([]float64, len(e.left)), e.left))
			gain += e.worth(other)
		}
	}
	if e.left[kind] >= 0 && gain > 1e-12 {
		return true
	}
	e.set(i, -1)
	if other != i {
		e.set(other, others)
	}
	e.set(i, was)
	return false
}
