package bidder_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/outbid-dev/outbid/orchestrator/bidder"
	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/tuner"
)

// halving returns the sweep of the paper's example (section 5.3): four trials of 80, 100, 100 and 120 s per iteration
// on one GPU; 8 iterations of all, 16 of the better half, 36 of the best.
func halving() *bidder.AppState {
	s := &bidder.AppState{
		App: "example", Tuner: "successive_halving", Weight: 1, MeanApps: 4,
		Cluster: []bidder.Stock{{Type: "k80", Devices: 16}},
		Demand:  cluster.Demand{Min: 1, Max: 8}, Speeds: speeds(1. / 100), TotalSteps: 60,
		Outlook: tuner.Outlook{Trials: 4, Steps: 100, Rungs: []tuner.Rung{
			{UntilStep: 8, Trials: 4, Steps: 32}, {UntilStep: 24, Trials: 2, Steps: 32}, {UntilStep: 60, Trials: 1, Steps: 36},
		}},
	}
	for i, seconds := range []float64{80, 100, 100, 120} {
		s.Jobs = append(s.Jobs, bidder.Job{Trial: int32(i), Until: 8, Min: 1, Max: 8, Speeds: speeds(1 / seconds)})
	}
	return s
}

func speeds(rate float64) *cluster.Speeds {
	return &cluster.Speeds{Measured: []cluster.Speed{{Devices: 1, Rate: rate}}}
}

func offer(free ...int) *bidder.Offer {
	o := &bidder.Offer{}
	for i, n := range free {
		o.Lots = append(o.Lots, bidder.Lot{Node: fmt.Sprint("n", i), Type: "k80", Free: n})
	}
	return o
}

// table returns the bid of one sweep.
func table(t testing.TB, o *bidder.Offer, s *bidder.AppState) bidder.Table {
	t.Helper()
	tables, err := bidder.BuiltIn{}.Bid(o, []*bidder.AppState{s})
	if err != nil || len(tables) != 1 {
		t.Fatalf("%d tables, %v", len(tables), err)
	}
	return tables[0]
}

func devices(r bidder.Row) int {
	n := 0
	for _, g := range r.Gangs {
		n += g.Size()
	}
	return n
}

func TestThePapersExample(t *testing.T) {
	t.Parallel()
	got := table(t, offer(8, 8), halving())
	if math.Abs(got.Ideal-2500) > 1e-6 {
		t.Errorf("T_id is %v s, want 2500", got.Ideal)
	}
	// Values for one and two GPUs are printed in the paper; 4, 8 and 16 follow by the same rule: 960+800+900,
	// 480+400+450 and, because no trial can have more than 8, 240+200+450.
	want := map[int]float64{1: 4, 2: 2, 4: 2660. / 2500, 8: 1330. / 2500, 16: 890. / 2500}
	for _, r := range got.Rows {
		n := devices(r)
		if rho, ok := want[n]; ok {
			if math.Abs(r.Rho-rho) > 1e-9 {
				t.Errorf("with %d GPUs rho is %v, want %v", n, r.Rho, rho)
			}
			delete(want, n)
		}
	}
	if len(want) > 0 {
		t.Errorf("no row for %v in %+v", want, got.Rows)
	}
}

// Alone on the whole cluster the phases take 200 s (32 iterations of 100 s on 16 GPUs), 200 s (16 on 8 each) and 450
// s (36 on the 8 that one trial can use).
func TestTheShortestTimeOfThePapersExample(t *testing.T) {
	t.Parallel()
	if got := bidder.Shortest(halving()); math.Abs(got-850) > 1e-6 {
		t.Errorf("it takes %v s, want 850", got)
	}
}

// "If the jobs that are chosen for the next phase have iteration time 120, 100", the table is computed again with
// them.
func TestThePapersExampleInItsSecondPhase(t *testing.T) {
	t.Parallel()
	s := halving()
	s.StepsDone, s.Finished, s.Elapsed = 32, 2, 1600
	s.Jobs = nil
	for i, seconds := range []float64{120, 100} {
		s.Jobs = append(s.Jobs, bidder.Job{Trial: int32(i), Done: 8, Until: 24, Min: 1, Max: 8, Speeds: speeds(1 / seconds)})
	}
	got := table(t, offer(2), s)
	for _, r := range got.Rows {
		if devices(r) != 2 {
			continue
		}
		// The trial of 120 s per iteration ends the phase; the third phase is 36 iterations of the median trial on
		// two GPUs.
		left := r.Rho*got.Ideal - s.Elapsed
		if want := 120.*16 + 36*120/2; math.Abs(left-want) > 1e-6 {
			t.Errorf("%v s are left, want %v", left, want)
		}
		return
	}
	t.Error("no row of two GPUs")
}
