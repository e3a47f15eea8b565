package outbid

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/outbid-dev/outbid/orchestrator/policy/astraea/accounts"
)

// TestPartsGoToTheLeastServed compares the parts with a search for the most urgent one before each device.
func TestPartsGoToTheLeastServed(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := &shared{floor: rapid.Float64Range(0, 1).Draw(t, "floor"), lease: 600}
		n, offered := rapid.IntRange(1, 8).Draw(t, "sharers"), rapid.IntRange(0, 40).Draw(t, "offered")
		var keeps []int
		for range n {
			weight := float64(rapid.IntRange(1, 4).Draw(t, "weight"))
			s.weights += weight
			s.all = append(s.all, &sharer{Account: &accounts.Account{
				Weight: weight, Demand: float64(rapid.IntRange(0, 20).Draw(t, "demand")),
				Had: float64(rapid.IntRange(0, 3).Draw(t, "had")) * 6000, Due: float64(rapid.IntRange(0, 3).Draw(t, "due")) * 6000,
			}})
			keeps = append(keeps, rapid.IntRange(0, 12).Draw(t, "keeps"))
		}
		s.devices = float64(offered)
		for _, k := range keeps {
			s.devices += float64(k)
		}
		for _, a := range s.all {
			a.Quota = max(1, s.devices) * a.Weight / s.weights
		}
		want := make([]int, n)
		for range offered {
			best, low, least := -1, false, math.Inf(1)
			for i, a := range s.all {
				has := float64(keeps[i] + want[i])
				if has >= a.Demand {
					continue
				}
				below := has+1 <= s.floor*s.devices*a.Weight/s.weights
				if rho := a.After(s.lease, has+1); best < 0 || below && !low || below == low && rho < least {
					best, low, least = i, below, rho
				}
			}
			if best < 0 {
				break
			}
			want[best]++
		}
		if got := s.parts(offered, keeps); !slices.Equal(got, want) {
			t.Fatalf("parts are %v, want %v", got, want)
		}
	})
}
