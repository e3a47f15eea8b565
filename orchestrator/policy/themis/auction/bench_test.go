package auction_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/bidder"
	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/policy/themis/auction"
)

// lots returns nodes of 8, 4 and 1 devices, as in the paper's simulated cluster, 16 to a rack.
func lots(r *rand.Rand, devices int, types ...string) []bidder.Lot {
	var out []bidder.Lot
	for i := 0; devices > 0; i++ {
		n := []int{8, 8, 8, 4, 1}[i%5]
		n = min(n, devices)
		devices -= n
		out = append(out, bidder.Lot{
			Node: fmt.Sprintf("n%04d", i), Rack: fmt.Sprint("r", i/16), Type: types[r.IntN(len(types))], Free: n,
		})
	}
	return out
}

func states(r *rand.Rand, n, devices int, types ...string) []*bidder.AppState {
	all := make([]*bidder.AppState, n)
	var stock []bidder.Stock
	for _, t := range types {
		stock = append(stock, bidder.Stock{Type: t, Devices: devices / len(types)})
	}
	for i := range all {
		sp := &cluster.Speeds{}
		for k, t := range types {
			sp.Measured = append(sp.Measured, cluster.Speed{Type: t, Devices: 1, Rate: (1 + r.Float64()) / float64(1+k)})
		}
		if r.IntN(2) == 0 {
			sp.S = [4]float64{1, 1.05, 1.4, 2}
		}
		s := &bidder.AppState{
			App: fmt.Sprint("a", i), Tuner: "random", MeanApps: float64(n) / .2, Elapsed: 20000 * r.Float64() * r.Float64(),
			Cluster: stock, Speeds: sp, TotalSteps: 1000 + r.Float64()*20000,
			Demand: cluster.Demand{Min: 1, Max: []int{1, 2, 4, 8}[r.IntN(4)], MultiNode: true},
		}
		if r.IntN(3) == 0 {
			s.Demand.Min = s.Demand.Max
		}
		jobs := 1 + r.IntN(100)
		if r.IntN(10) == 0 {
			jobs = 1
		}
		for j := range jobs {
			s.Jobs = append(s.Jobs, bidder.Job{
				Trial: int32(j), Done: s.TotalSteps * r.Float64() / 2, Total: s.TotalSteps, Min: s.Demand.Min, Max: s.Demand.Max,
				MultiNode: true, Speeds: sp,
			})
		}
		all[i] = s
	}
	return all
}

// bids returns the built-in bidder's bids for a case.
func bids(tb testing.TB, seed uint64, apps, devices int, types ...string) ([]bidder.Lot, []auction.Bidder) {
	tb.Helper()
	r := rand.New(rand.NewPCG(seed, 1))
	l := lots(r, devices, types...)
	tables, err := bidder.BuiltIn{}.Bid(&bidder.Offer{Lots: l}, states(r, apps, devices, types...))
	if err != nil {
		tb.Fatal(err)
	}
	var b []auction.Bidder
	for i := range tables {
		b = append(b, auction.Bidder{Nothing: tables[i].Rho, Rows: tables[i].Rows})
	}
	return l, b
}

// run times whole auctions with payments, each with a new case, in this process's CPU time, because wall time on a busy
// machine depends on other processes.
func run(b *testing.B, apps, devices int) {
	b.Helper()
	var took []time.Duration
	gap := 0.0
	for i := range b.N {
		b.StopTimer()
		l, all := bids(b, uint64(i), apps, devices, "v100", "p100", "k80")
		b.StartTimer()
		before := processor(b)
		result := auction.Run(l, all)
		took = append(took, processor(b)-before)
		gap = max(gap, result.Gap())
	}
	report(b, took)
	b.ReportMetric(100*gap, "worst-gap-%")
}

func report(b *testing.B, took []time.Duration) {
	b.Helper()
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1e3, "cpu-ms-p50")
	b.ReportMetric(float64(took[len(took)*95/100].Microseconds())/1e3, "cpu-ms-p95")
}

// processor returns the CPU time that this process has used.
func processor(tb testing.TB) time.Duration {
	tb.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func BenchmarkAuction64Bidders256Devices(b *testing.B) { run(b, 64, 256) }

func BenchmarkAuction1000Bidders10000Devices(b *testing.B) { run(b, 1000, 10000) }

func BenchmarkBid256Devices(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	types := []string{"v100", "p100", "k80"}
	l, apps := lots(r, 256, types...), states(r, 64, 256, types...)
	var took []time.Duration
	for i := range b.N {
		before := processor(b)
		if _, err := (bidder.BuiltIn{}).Bid(&bidder.Offer{Lots: l}, apps[i%64:i%64+1]); err != nil {
			b.Fatal(err)
		}
		took = append(took, processor(b)-before)
	}
	report(b, took)
}
