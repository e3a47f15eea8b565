package auction_test

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/outbid-dev/outbid/orchestrator/bidder"
	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/policy/themis/auction"
)

// drawForked draws an offer of unlike nodes with one device each, and bids of sweeps with one or two trials; some may
// be forked.
func drawForked(t *rapid.T) ([]bidder.Lot, []auction.Bidder) {
	o := &bidder.Offer{}
	var stock []bidder.Stock
	for _, kind := range []string{"k80", "p100", "v100"} {
		n := rapid.IntRange(1, 2).Draw(t, kind)
		stock = append(stock, bidder.Stock{Type: kind, Devices: n, Machines: n})
		for i := range n {
			o.Lots = append(o.Lots, bidder.Lot{Node: fmt.Sprint(kind, i), Type: kind, Free: 1})
		}
	}
	var apps []*bidder.AppState
	for i := range rapid.IntRange(2, 4).Draw(t, "apps") {
		s := &bidder.AppState{
			App: fmt.Sprint("app", i), Tuner: "random", MeanApps: 2, Cluster: stock, Demand: cluster.Demand{Min: 1, Max: 1},
			Elapsed: rapid.Float64Range(0, 1000).Draw(t, "elapsed"), Speeds: &cluster.Speeds{Measured: []cluster.Speed{
				{Type: "k80", Devices: 1, Rate: 1},
				{Type: "p100", Devices: 1, Rate: rapid.Float64Range(1, 3).Draw(t, "p100 is faster")},
				{Type: "v100", Devices: 1, Rate: rapid.Float64Range(2, 6).Draw(t, "v100 is faster")},
			}},
		}
		s.Forks, s.LeastForks = rapid.SampledFrom([]int{0, 0, 2, 99}).Draw(t, "forks"), 1
		for range rapid.IntRange(1, 2).Draw(t, "jobs") {
			s.Jobs = append(s.Jobs, bidder.Job{
				Total: rapid.Float64Range(100, 10_000).Draw(t, "steps"), Min: 1, Max: 1, Speeds: s.Speeds, Forks: s.Forks, LeastForks: 1,
			})
		}
		apps = append(apps, s)
	}
	tables, err := bidder.BuiltIn{}.Bid(o, apps)
	if err != nil {
		t.Fatal(err)
	}
	var bidders []auction.Bidder
	for i := range tables {
		bidders = append(bidders, auction.Bidder{Nothing: tables[i].Rho, Rows: tables[i].Rows})
	}
	return o.Lots, bidders
}

// With forks too, a sweep has the highest expectation if its bids for mixed subsets are truthful.
func TestLyingAboutForksGainsNothing(t *testing.T) {
	t.Parallel()
	mixed := 0
	rapid.Check(t, func(t *rapid.T) {
		l, b := drawForked(t)
		honest := auction.Run(l, b)
		if !honest.Exact {
			return
		}
		liar := rapid.IntRange(0, len(b)-1).Draw(t, "liar")
		lied := append([]auction.Bidder(nil), b...)
		lied[liar].Rows = append([]bidder.Row(nil), b[liar].Rows...)
		for i := range lied[liar].Rows {
			lied[liar].Rows[i].Rho *= rapid.Float64Range(.2, 5).Draw(t, "factor")
		}
		got := auction.Run(l, lied)
		if !got.Exact {
			return
		}
		truth := honest.Keeps[liar] / rho(b[liar], honest.Rows[liar])
		lie := got.Keeps[liar] / rho(b[liar], got.Rows[liar])
		if lie > truth*(1+1e-9) {
			t.Fatalf("bidder %d has %v if it lies, and %v if it says the truth", liar, lie, truth)
		}
		for _, row := range honest.Rows {
			if row >= 0 {
				mixed++
			}
		}
	})
	if mixed == 0 {
		t.Error("no bidder won anything")
	}
}

// Sharing incentive: what a sweep wins, forked or not, is worth at least as much to it as nothing, and the total gain
// is at least the gain of any one sweep that had the whole offer.
func TestAuctionOfForksHarmsNoBidder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l, b := drawForked(t)
		got := auction.Run(l, b)
		if !got.Exact {
			return
		}
		gained := 1.0
		for i := range b {
			has := rho(b[i], got.Rows[i])
			if has > b[i].Nothing {
				t.Fatalf("bidder %d has rho %v, and %v with nothing", i, has, b[i].Nothing)
			}
			gained *= b[i].Nothing / has
		}
		for i := range b {
			for _, row := range b[i].Rows {
				if alone := b[i].Nothing / row.Rho; alone > gained*(1+1e-9) {
					t.Fatalf("all gain %v together, and bidder %d alone would gain %v by %+v", gained, i, alone, row.Gangs)
				}
			}
		}
	})
}
