package auction_test

import (
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/outbid-dev/outbid/orchestrator/bidder"
	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/policy/themis/auction"
)

// small draws an auction that can be solved by brute force.
func small(t *rapid.T) ([]bidder.Lot, []auction.Bidder) {
	var l []bidder.Lot
	for i := range rapid.IntRange(1, 4).Draw(t, "machines") {
		l = append(l, bidder.Lot{
			Node: fmt.Sprint("n", i), Rack: fmt.Sprint("r", i%2), Type: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "type"),
			Free: rapid.IntRange(1, 5).Draw(t, "free"),
		})
	}
	var b []auction.Bidder
	for range rapid.IntRange(1, 4).Draw(t, "bidders") {
		x := auction.Bidder{Nothing: rapid.Float64Range(1, 20).Draw(t, "nothing")}
		for range rapid.IntRange(0, 5).Draw(t, "rows") {
			row := bidder.Row{Rho: rapid.Float64Range(.1, 20).Draw(t, "rho")}
			for range rapid.IntRange(1, 2).Draw(t, "kinds") {
				g := bidder.Gangs{
					Count: rapid.IntRange(1, 2).Draw(t, "count"), Machines: rapid.IntRange(1, 2).Draw(t, "over"),
					Devices: rapid.IntRange(1, 4).Draw(t, "devices"), Type: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "of"),
				}
				switch rapid.IntRange(0, 5).Draw(t, "bound") {
				case 0:
					g.Node = "n0"
				case 1:
					g.Rack = "r0"
				}
				row.Gangs = append(row.Gangs, g)
			}
			x.Rows = append(x.Rows, row)
		}
		b = append(b, x)
	}
	return l, b
}

// fits tries every way of placing the rows' pieces on nodes.
func fits(l []bidder.Lot, rows []bidder.Row) bool {
	var pieces []bidder.Gangs
	for _, r := range rows {
		for _, g := range r.Gangs {
			for range g.Count * g.Machines {
				pieces = append(pieces, g)
			}
		}
	}
	free := make([]int, len(l))
	for i := range l {
		free[i] = l[i].Free
	}
	var put func(int) bool
	put = func(i int) bool {
		if i == len(pieces) {
			return true
		}
		g := pieces[i]
		for k := range l {
			if l[k].Type != g.Type || free[k] < g.Devices || g.Node != "" && g.Node != l[k].Node || g.Rack != "" && g.Rack != l[k].Rack {
				continue
			}
			free[k] -= g.Devices
			if put(i + 1) {
				return true
			}
			free[k] += g.Devices
		}
		return false
	}
	return put(0)
}

// every calls do with each feasible choice of rows, -1 for none.
func every(l []bidder.Lot, b []auction.Bidder, do func([]int)) {
	choice := make([]int, len(b))
	var chosen []bidder.Row
	var next func(int)
	next = func(i int) {
		if i == len(b) {
			do(choice)
			return
		}
		choice[i] = -1
		next(i + 1)
		for r := range b[i].Rows {
			chosen = append(chosen, b[i].Rows[r])
			if fits(l, chosen) {
				choice[i] = r
				next(i + 1)
			}
			chosen = chosen[:len(chosen)-1]
		}
	}
	next(0)
}

func rho(b auction.Bidder, row int) float64 {
	if row < 0 {
		return b.Nothing
	}
	return b.Rows[row].Rho
}

func welfare(b []auction.Bidder, choice []int, without int) float64 {
	sum := 0.0
	for i := range b {
		if i != without {
			sum -= math.Log(rho(b[i], choice[i]))
		}
	}
	return sum
}

// optimum returns the highest welfare that all bidders but one can have.
func optimum(l []bidder.Lot, b []auction.Bidder, without int) float64 {
	rest := append([]auction.Bidder(nil), b...)
	if without >= 0 {
		rest[without].Rows = nil
	}
	best := math.Inf(-1)
	every(l, rest, func(choice []int) { best = max(best, welfare(rest, choice, without)) })
	return best
}

func TestWinnersMaximiseProductAndFit(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l, b := small(t)
		got := auction.Run(l, b)
		var rows []bidder.Row
		for i, r := range got.Rows {
			if r >= 0 {
				rows = append(rows, b[i].Rows[r])
			}
		}
		if !fits(l, rows) {
			t.Fatalf("the winning rows do not fit: %+v", rows)
		}
		best, have := optimum(l, b, -1), welfare(b, got.Rows, -1)
		switch {
		case math.Abs(have-got.Log) > 1e-9:
			t.Fatalf("the welfare is %v, reported %v", have, got.Log)
		case got.Bound < best-1e-9:
			t.Fatalf("the bound %v is below the optimum %v", got.Bound, best)
		case got.Exact && have < best-1e-9:
			t.Fatalf("called exact: %v, but the optimum is %v", have, best)
		}
		for i, c := range got.Keeps {
			if !(c > 0 && c <= 1) {
				t.Fatalf("bidder %d keeps %v", i, c)
			}
			if got.Exact {
				if want := math.Exp(welfare(b, got.Rows, i) - optimum(l, b, i)); math.Abs(c-want) > 1e-9 && simple(b) {
					t.Fatalf("bidder %d keeps %v, want %v", i, c, want)
				}
			}
		}
	})
}

// simple reports whether the counts alone decide what fits, in which case payments are exact too.
func simple(b []auction.Bidder) bool {
	for i := range b {
		for _, r := range b[i].Rows {
			for _, g := range r.Gangs {
				if g.Node != "" || g.Rack != "" || g.Devices == 3 {
					return false
				}
			}
		}
	}
	return true
}

// Pareto efficiency: no bidder can be better off unless another is worse off.
func TestTheProportionallyFairAllocationIsParetoEfficient(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l, b := small(t)
		got := auction.Run(l, b)
		if !got.Exact {
			return
		}
		every(l, b, func(choice []int) {
			better, worse := false, false
			for i := range b {
				was, is := rho(b[i], got.Rows[i]), rho(b[i], choice[i])
				better = better || is < was*(1-1e-9)
				worse = worse || is > was
			}
			if better && !worse {
				t.Fatalf("%v is better for some and worse for none than %v", choice, got.Rows)
			}
		})
	})
}

// A sweep that keeps the part c of its row has c/rho in expectation. That is highest if its bid is truthful.
func TestLyingGainsNothingInExpectation(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l, b := small(t)
		nothingGainedBy(t, b, func(b []auction.Bidder) auction.Result { return auction.Run(l, b) })
	})
}

// nothingGainedBy draws a liar and its lies, and checks that they gain nothing in an auction.
func nothingGainedBy(t *rapid.T, b []auction.Bidder, run func([]auction.Bidder) auction.Result) {
	honest := run(b)
	if !honest.Exact || !simple(b) {
		return
	}
	liar := rapid.IntRange(0, len(b)-1).Draw(t, "liar")
	lied := append([]auction.Bidder(nil), b...)
	lied[liar].Rows = append([]bidder.Row(nil), b[liar].Rows...)
	for i := range lied[liar].Rows {
		lied[liar].Rows[i].Rho *= rapid.Float64Range(.2, 5).Draw(t, "factor")
	}
	lied[liar].Nothing *= rapid.Float64Range(.5, 2).Draw(t, "factor of nothing")
	got := run(lied)
	if !got.Exact {
		return
	}
	truth := honest.Keeps[liar] / rho(b[liar], honest.Rows[liar])
	lie := got.Keeps[liar] / rho(b[liar], got.Rows[liar])
	if lie > truth*(1+1e-9) {
		t.Fatalf("bidder %d has %v if it lies, and %v if it says the truth", liar, lie, truth)
	}
}

// If devices are alike and 1/rho is proportional to their number (the homogeneous valuations of theorem 3.2), no bidder
// prefers another's outcome by one device or more; devices are whole.
func TestNoBidderEnviesAnother(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		devices := rapid.IntRange(4, 48).Draw(t, "devices")
		l := []bidder.Lot{{Node: "n", Type: "a", Free: devices}}
		var b []auction.Bidder
		for range rapid.IntRange(2, 6).Draw(t, "bidders") {
			work := rapid.Float64Range(.5, 20).Draw(t, "work")
			x := auction.Bidder{Nothing: 1000 * work}
			for n := 1; n <= devices; n++ {
				one := []bidder.Gangs{{Count: n, Machines: 1, Devices: 1, Type: "a"}}
				x.Rows = append(x.Rows, bidder.Row{Rho: work / float64(n), Gangs: one})
			}
			b = append(b, x)
		}
		got := auction.Run(l, b)
		has := func(i int) float64 {
			if got.Rows[i] < 0 {
				return 0
			}
			return float64(b[i].Rows[got.Rows[i]].Gangs[0].Count)
		}
		for i := range b {
			for k := range b {
				own, other := got.Keeps[i]*has(i), got.Keeps[k]*has(k)
				if other > own+1 {
					t.Fatalf("of %d devices bidder %d keeps %v and would rather have the %v of bidder %d", devices, i, own, other, k)
				}
			}
		}
	})
}

// VGG16 loses much when its tasks are spread, Inception-v3 hardly anything (table 1 and figure 5).
func job(app string, apart float64, tasks int, types ...bidder.Stock) *bidder.AppState {
	sp := &cluster.Speeds{Measured: []cluster.Speed{{Devices: 1, Rate: 1}}, S: [4]float64{1, 1, apart, apart}}
	return &bidder.AppState{
		App: app, Tuner: "random", MeanApps: 2, Cluster: types, Speeds: sp,
		Demand: cluster.Demand{Min: tasks, Max: tasks, MultiNode: true}, TotalSteps: 1000,
		Jobs: []bidder.Job{{Total: 1000, Min: tasks, Max: tasks, MultiNode: true, Speeds: sp}},
	}
}

// Figure 5: DRF may spread both jobs over both machines (instance 1), or give the whole machine to the job that does
// not need it (instance 2). The auction does neither.
func TestTheCounterExamplesOfFigure5(t *testing.T) {
	t.Parallel()
	stock := bidder.Stock{Type: "gpu", Devices: 8}
	for name, tc := range map[string]struct {
		free []int
		apps []*bidder.AppState
		// whole marks the sweeps that must have one node to themselves.
		whole []bool
	}{
		"instance 1: VGG16 twice on two machines of 4": {
			[]int{4, 4}, []*bidder.AppState{job("a1", 2, 4, stock), job("a2", 2, 4, stock)}, []bool{true, true},
		},
		"instance 2: Inception-v3 and VGG16 on one machine of 4 and two of 2": {
			[]int{4, 2, 2}, []*bidder.AppState{job("a1", 1.05, 4, stock), job("a2", 2, 4, stock)}, []bool{false, true},
		},
	} {
		o := &bidder.Offer{}
		for i, n := range tc.free {
			o.Lots = append(o.Lots, bidder.Lot{Node: fmt.Sprint("n", i), Type: "gpu", Free: n})
		}
		tables, err := bidder.BuiltIn{}.Bid(o, tc.apps)
		if err != nil {
			t.Fatal(err)
		}
		var b []auction.Bidder
		for _, x := range tables {
			b = append(b, auction.Bidder{Nothing: x.Rho, Rows: x.Rows})
		}
		got := auction.Run(o.Lots, b)
		for i, whole := range tc.whole {
			if got.Rows[i] < 0 {
				t.Errorf("%s: app %d got nothing", name, i+1)
				continue
			}
			gangs := b[i].Rows[got.Rows[i]].Gangs
			if one := len(gangs) == 1 && gangs[0].Machines == 1; one != whole {
				t.Errorf("%s: app %d got %+v", name, i+1, gangs)
			}
		}
	}
}
