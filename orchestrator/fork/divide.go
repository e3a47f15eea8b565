package fork

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Divide divides a trial's remaining steps over nodes with known rates in steps per second. While there are more
// steps than all nodes can train within a slot, each node gets a share in proportion to its rate, and trains until
// the slot ends. In the last slot, only as many of the fastest nodes get a share as can train the rest within the
// slot. A slot of 0 does not end: the fastest node trains all steps.
//
// The shares add up to left exactly. A node that is not needed, or whose rate is not above 0, has a share of 0. If no
// rate is above 0, all shares are 0.
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
		shares[n] = min(int64(exact), left-given) // a float64 of many steps is not exact
		given += shares[n]
		parts[i] = part{n, exact - math.Floor(exact)}
	}
	// The steps lost by rounding down go to the nodes that lost most by it, and of these to the fastest.
	slices.SortStableFunc(parts, func(a, b part) int { return cmp.Compare(b.lost, a.lost) })
	for i := 0; given < left; i = (i + 1) % len(parts) {
		more := max(1, (left-given)/int64(len(parts)))
		shares[parts[i].node] += more
		given += more
	}
	return shares
}

// fastest returns the nodes with a usable rate, the fastest first.
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

// needed returns how many of the fastest nodes can train the remaining steps within a slot, or all if even they
// cannot.
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
