package pricing_test

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/outbid-dev/outbid/orchestrator/policy/pricing"
)

func TestPricesRiseFromLowToHigh(t *testing.T) {
	t.Parallel()
	r := pricing.Range{Low: 0.01, High: 1}
	for used, want := range map[int]float64{0: 0.01, 1: 0.1, 2: 1, 3: 1} {
		if got := r.At(used, 2); math.Abs(got-want) > 1e-12 {
			t.Errorf("%d of 2 used: %v; want %v", used, got, want)
		}
	}
	if got := r.Competitive(); math.Abs(got-math.Log(100)) > 1e-12 {
		t.Errorf("alpha is %v", got)
	}
	if got := (pricing.Range{Low: 1, High: 1}).Competitive(); got != 1 {
		t.Errorf("alpha of one price is %v", got)
	}
}

// Lemma 3's relationship: the cost of one more device is at most alpha times the rise of the price, times the capacity.
func TestPricesKeepTheAllocationCostRelationship(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := pricing.Range{Low: rapid.Float64Range(1e-6, 1).Draw(t, "low")}
		r.High = r.Low * rapid.Float64Range(1, 1e6).Draw(t, "ratio")
		capacity := rapid.IntRange(1, 64).Draw(t, "capacity")
		used := rapid.IntRange(0, capacity-1).Draw(t, "used")
		price, next := r.At(used, capacity), r.At(used+1, capacity)
		if price < r.Low*(1-1e-9) || next > r.High*(1+1e-9) || next < price {
			t.Fatalf("from %v to %v in %+v", price, next, r)
		}
		// dk = k' dgamma, and k' = k ln(High/Low) / capacity: so alpha k dgamma >= capacity dk locally; convexity keeps
		// the chord above the tangent.
		if rise := float64(capacity) * (next - price); rise < price*math.Log(r.High/r.Low)*(1-1e-9) {
			t.Fatalf("the price rises by %v in all, less than its slope says", rise)
		}
	})
}
