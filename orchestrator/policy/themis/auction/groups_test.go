package auction_test

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/outbid-dev/outbid/orchestrator/bidder"
	"github.com/outbid-dev/outbid/orchestrator/policy/themis/auction"
)

// grouped draws a small auction with two groups of bidders.
func grouped(t *rapid.T) (l []bidder.Lot, b []auction.Bidder, limits []int) {
	l, b = small(t)
	for i := range b {
		b[i].Group = rapid.IntRange(0, 1).Draw(t, "group")
	}
	return l, b, []int{rapid.IntRange(0, 8).Draw(t, "limit"), rapid.IntRange(0, 8).Draw(t, "limit")}
}

// keepTo reports whether every group is within its limit.
func keepTo(b []auction.Bidder, choice, limits []int) bool {
	has := make([]int, len(limits))
	for i, r := range choice {
		if r < 0 {
			continue
		}
		for _, g := range b[i].Rows[r].Gangs {
			has[b[i].Group] += g.Size()
		}
	}
	for g := range has {
		if has[g] > limits[g] {
			return false
		}
	}
	return true
}

// No group wins more than its limit, and a choice called exact is the best within the limits.
func TestGroupsKeepToTheirLimits(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l, b, limits := grouped(t)
		got := auction.RunWithin(l, b, limits)
		if !keepTo(b, got.Rows, limits) {
			t.Fatalf("%v is more than %v", got.Rows, limits)
		}
		best := math.Inf(-1)
		every(l, b, func(choice []int) {
			if keepTo(b, choice, limits) {
				best = max(best, welfare(b, choice, -1))
			}
		})
		have := welfare(b, got.Rows, -1)
		if math.Abs(have-got.Log) > 1e-9 || got.Bound < best-1e-9 || got.Exact && have < best-1e-9 {
			t.Fatalf("the welfare is %v, reported %v, bound %v, the best within limits %v", have, got.Log, got.Bound, best)
		}
	})
}

// Within limits, too, no bidder gains by lying, against its own group or the other.
func TestLyingInAGroupGainsNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l, b, limits := grouped(t)
		nothingGainedBy(t, b, func(b []auction.Bidder) auction.Result { return auction.RunWithin(l, b, limits) })
	})
}
