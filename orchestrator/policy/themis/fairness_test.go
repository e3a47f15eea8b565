package themis_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/bidder"
	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/policy/themis"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Fairness of a sweep under performance-curve stopping is computed under any policy and needs none of Themis's state.
// Its trials count to their end, however flat their curves look and whichever bidder it uses.
func TestFairnessWithForecastCurves(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	a := w.submit("curves", 4, 1, 1000)
	a.Tuner = "performance_curve"
	w.submit("other", 4, 1, 1000)
	for i, j := range a.Jobs[:2] {
		j.Gangs, j.Granted, j.Reported = []cluster.Gang{{{Node: 0, Devices: []int{i}}}}, w.now, w.now
		for step := int64(1); step <= 50; step++ {
			j.Curve = append(j.Curve, policy.Point{Step: step, Value: 1 - math.Exp(-float64(step)/10)})
		}
		j.Step = 50
	}
	w.now = w.now.Add(time.Minute)
	v := w.view()
	whole := themis.Fairness(v, a, false)
	if whole == nil || whole.GetRho() <= 0 {
		t.Fatalf("fairness %v", whole)
	}
	a.Spec = &outbidv1.SweepSpec{Agent: &outbidv1.Agent{Plugin: "theirs"}}
	if told := themis.Fairness(w.view(), a, false); told.GetForecastSeconds() != whole.GetForecastSeconds() {
		t.Errorf("with a bidder outside it takes %v s, and %v s without", told.GetForecastSeconds(), whole.GetForecastSeconds())
	}
	nothing := func(*policy.Job) (held, lost bidder.Holding) { return held, lost }
	for _, j := range v.AppState(a, v.Stock(), nothing).Jobs {
		if j.Forecast != 1000 {
			t.Errorf("its bidder is told that trial %d ends at step %v, want 1000", j.Trial, j.Forecast)
		}
	}
	a.Tuner = "random"
	if f := v.AppState(a, v.Stock(), nothing).Jobs[0].Forecast; f != 0 {
		t.Errorf("the bidder of a random search is told of a forecast: %v", f)
	}
}

// At the time of an auction, Fairness agrees exactly with the auction's record for every sweep that was asked, and
// closely for sweeps that got leftovers, whose record follows from their last table. T_id is the same for both.
func TestFairnessAgreesWithAuction(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 1))
	compared := map[bool]int{}
	for range 30 {
		w, p := newWorld(t, 4, 4, 4), policyWith(t)
		for i := range 4 {
			w.submit(fmt.Sprint("app", i), 1+rng.IntN(8), 1<<rng.IntN(3), 1000+rng.Int64N(100_000))
			w.pass(time.Second)
		}
		for round := range 8 {
			if round == 4 { // changes the mean number of sweeps
				w.submit("late", 4, 1, 100_000)
			}
			plan := w.decide(p)
			record, moved := plan.Auction, len(plan.Revokes) > 0
			for _, b := range record.GetBidders() {
				i := slices.IndexFunc(w.apps, func(a *policy.App) bool { return a.ID == b.GetSweep() })
				says, most := themis.Fairness(w.view(), w.apps[i], false), .01
				if b.GetAsked() {
					most = 1e-9
				}
				if math.Abs(says.GetAloneSeconds()/b.GetIdealSeconds()-1) > most {
					t.Errorf("%s, asked %t: alone %v s, the meter says %v", b.GetSweep(), b.GetAsked(), b.GetIdealSeconds(), says)
				}
				if moved { // it does not hold what it won yet
					continue
				}
				compared[b.GetAsked()]++
				if math.Abs(says.GetRho()/b.GetRhoAfter()-1) > most {
					t.Errorf("%s, asked %t: rho %v, the meter says %v", b.GetSweep(), b.GetAsked(), b.GetRhoAfter(), says)
				}
			}
			for len(plan.Revokes) > 0 {
				w.left()
				for _, a := range w.apps {
					a.StepsDone = 0
					for _, j := range a.Jobs {
						a.StepsDone += j.Step
					}
				}
				plan = w.decide(p)
			}
			w.now = plan.Next
		}
	}
	if compared[true] < 20 || compared[false] < 20 {
		t.Errorf("only so many that were asked, or were not, were compared: %v", compared)
	}
}

// T_id of a sweep is the same while it runs and after it has ended, however many device-seconds it held: moves and
// restarts do not lower what it is due.
func TestIdealTimeIsSameAfterTheEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	a := w.submit("app", 4, 1, 1000)
	a.Speeds = &cluster.Speeds{Measured: []cluster.Speed{{Type: "gpu", Devices: 1, Rate: 1}}}
	for _, j := range a.Jobs {
		j.Speeds = a.Speeds
	}
	w.pass(time.Second)
	runs := themis.Fairness(w.view(), a, false)
	w.pass(time.Hour)
	a.StepsDone, a.Finished, a.Jobs = 4000, 4, nil
	for _, held := range []float64{4000, 40_000} {
		a.DeviceSeconds = held
		over := themis.Fairness(w.view(), a, true)
		if over == nil || math.Abs(over.GetAloneSeconds()/runs.GetAloneSeconds()-1) > 1e-3 {
			t.Errorf("alone it takes %v s while it runs, and %v s once it is over after %v device-seconds", runs.GetAloneSeconds(),
				over.GetAloneSeconds(), held)
		}
	}
	a.Speeds = &cluster.Speeds{}
	if over := themis.Fairness(w.view(), a, true); over != nil {
		t.Errorf("got %v for a sweep whose rate was not measured", over)
	}
}
