package auction_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/outbid-dev/outbid/orchestrator/bidder"
	"github.com/outbid-dev/outbid/orchestrator/policy/themis/auction"
)

// othersWorth returns the sum of log(nothing/rho) of all bidders but one in an allocation.
func othersWorth(b []auction.Bidder, rows []int, without int) float64 {
	sum := 0.0
	for i, row := range rows {
		if i != without && row >= 0 {
			sum += math.Log(b[i].Nothing / b[i].Rows[row].Rho)
		}
	}
	return sum
}

// mostWorth returns the highest worth that all bidders but one can have, for one type of single devices, by dynamic
// programming over the devices.
func mostWorth(devices int, b []auction.Bidder, without int) float64 {
	best := make([]float64, devices+1)
	for i := range b {
		if i == without {
			continue
		}
		next := append([]float64(nil), best...)
		for _, row := range b[i].Rows {
			n, worth := row.Gangs[0].Size(), math.Log(b[i].Nothing/row.Rho)
			for d := n; d <= devices; d++ {
				next[d] = max(next[d], best[d-n]+worth)
			}
		}
		best = next
	}
	return best[devices]
}

// crowd returns bidders for one node of single devices, whose rows take any number of devices.
func crowd(r *rand.Rand, bidders, devices int) ([]bidder.Lot, []auction.Bidder) {
	b := make([]auction.Bidder, bidders)
	for i := range b {
		work, power := 1+19*r.Float64(), .5+r.Float64()/2
		b[i].Nothing = 10 * work * (1 + r.Float64())
		for n := 1; n <= devices/4; n += 1 + r.IntN(3) {
			gangs := []bidder.Gangs{{Count: n, Machines: 1, Devices: 1, Type: "a"}}
			b[i].Rows = append(b[i].Rows, bidder.Row{Rho: work / math.Pow(float64(n), power), Gangs: gangs})
		}
	}
	return []bidder.Lot{{Node: "n", Type: "a", Free: devices}}, b
}

// With many bidders, payments are near those of the others' best allocation, which dynamic programming finds, and never
// below the stated bound.
func TestPaymentsOfManyBiddersAreNearExact(t *testing.T) {
	t.Parallel()
	const most = .01
	for _, n := range []int{4, 16, 24, 48} {
		winners, wrong := 0, 0.0
		for seed := range uint64(6) {
			devices := 2 * n
			lots, b := crowd(rand.New(rand.NewPCG(seed, uint64(n))), n, devices)
			got := auction.Run(lots, b)
			for i, row := range got.Rows {
				if row < 0 {
					continue
				}
				winners++
				exact := math.Exp(min(0, othersWorth(b, got.Rows, i)-mostWorth(devices, b, i)))
				wrong = max(wrong, got.Keeps[i]-exact)
				if got.Keeps[i] < exact-1e-9 || got.LeastKeeps[i] > exact+1e-9 {
					t.Errorf("%d bidders: bidder %d keeps %v, at least %v, exactly %v", n, i, got.Keeps[i], got.LeastKeeps[i], exact)
				}
			}
		}
		t.Logf("%d bidders: %d winners keep at most %.5f too much", n, winners, wrong)
		if wrong > most {
			t.Errorf("%d bidders: a winner keeps %v too much, want at most %v", n, wrong, most)
		}
	}
}

// In any auction the part that a bidder keeps lies between the stated bound and 1, and the exact part is not below the
// bound.
func TestPaymentsAreWithinTheirBound(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l, b := small(t)
		got := auction.Run(l, b)
		for i, row := range got.Rows {
			if row < 0 {
				continue
			}
			exact := math.Exp(min(0, welfare(b, got.Rows, i)-optimum(l, b, i)))
			if least := got.LeastKeeps[i]; least > got.Keeps[i]+1e-9 || least > exact+1e-9 {
				t.Fatalf("bidder %d keeps %v, at least %v, exactly %v", i, got.Keeps[i], least, exact)
			}
		}
	})
}

// In auctions of the built-in bidder's tables, where devices are scarce, a winner keeps hardly more than the bound allows:
// local search alone kept up to 0.5 too much with 16 bidders.
func TestPaymentsOfScarceDevicesAreNearTheirBound(t *testing.T) {
	t.Parallel()
	for _, n := range []int{8, 16, 24} {
		winners, width := 0, 0.0
		for seed := range uint64(6) {
			l, b := bids(t, seed, n, 4*n, "v100", "p100", "k80")
			got := auction.Run(l, b)
			for i, row := range got.Rows {
				if row >= 0 {
					winners++
					width += got.Keeps[i] - got.LeastKeeps[i]
				}
			}
		}
		t.Logf("%d bidders: %d winners keep %.4f more than their bounds on average", n, winners, width/float64(winners))
		if width > .02*float64(winners) {
			t.Errorf("%d bidders: winners keep %v more than their bounds on average, want at most 0.02", n, width/float64(winners))
		}
	}
}
