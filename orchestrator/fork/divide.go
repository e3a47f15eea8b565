package fork

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Divide divides the steps that a trial has left over nodes that train it at some rates, in steps per second. While there
// is more to do than all of them can within a slot, each node gets a share in proportion to its rate, and trains until the
// slot ends. In the last round only as many of the fastest nodes get one as can do the rest within the slot. A slot of 0 has
// no end: there the fastest does it all.
//
// The shares add up to left, to the step. A node that is not needed, or whose rate is not above 0, has a share of 0; where
// no rate is, all have.
func Divide(left int64, rates []float64, slot time.Duration) []int64 {
	shares := make([]int64, len(rates))
	nodes := fastest(rates)
	if left <= 0 || len(nodes) == 0 {
		return shares
	}
	needed := nodes[:needed(float64(left), rates, nodes, slot.Seconds())]
	sum := 0.0
	for _, n := range needed {
		sum += rates[n]
	}
	type part struct {
		node int
		lost float64
	}
	given, parts := int64(0), make([]part, len(needed))
	for i, n := range needed {
		exact := float64(left) * (rates[n] / sum)
		shares[n] = min(int64(exact), left-given) // a float of many steps is not exact
		given += shares[n]
		parts[i] = part{n, exact - math.Floor(exact)}
	}
	// The steps that rounding down left over go to those that it cost most, and of these to the fastest.
	slices.SortStableFunc(parts, func(a, b part) int { return cmp.Compare(b.lost, a.lost) })
	for i := 0; given < left; i = (i + 1) % len(parts) {
		more := max(1, (left-given)/int64(len(parts)))
		shares[parts[i].node] += more
		given += more
	}
	return shares
}

// fastest are the nodes that train at all, the fastest first.
func fastest(rates []float64) []int {
	var nodes []int
	for i, r := range rates {
		if r > 0 && !math.IsInf(r, 0) {
			nodes = append(nodes, i)
		}
	}
	slices.SortStableFunc(nodes, func(a, b int) int { return cmp.Compare(rates[b], rates[a]) })
	return nodes
}

// needed is how many of the fastest nodes do all that is left within a slot; all if even they do not.
func needed(left float64, rates []float64, nodes []int, slot float64) int {
	if slot <= 0 {
		return 1
	}
	for i, n := range nodes {
		if left -= rates[n] * slot; left <= 0 {
			return i + 1
		}
	}
	return len(nodes)
}
