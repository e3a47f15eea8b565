package themis_test

import (
	"math"
	"testing"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/policy/themis"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// How an app under performance-curve stopping fares is said under any policy: nothing of Themis's own state is needed. Its
// trials are counted to their end, however flat their curves look. Where those end is worked out for agents outside alone.
func TestFairnessOfAnAppWhoseCurvesAreForecast(t *testing.T) {
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
	known := themis.Forecasts{}
	whole := themis.Fairness(w.view(), a, false, known.End)
	if whole == nil || whole.GetRho() <= 0 || len(known) != 0 {
		t.Fatalf("fairness %v by the forecasts %v", whole, known)
	}
	a.Spec = &outbidv1.SweepSpec{Agent: &outbidv1.Agent{Plugin: "theirs"}}
	told := themis.Fairness(w.view(), a, false, known.End)
	if len(known["curves"]) != 2 || told.GetForecastSeconds() != whole.GetForecastSeconds() {
		t.Errorf("with an agent outside, which is told %v, it takes %v s, and %v s without", known, told.GetForecastSeconds(),
			whole.GetForecastSeconds())
	}
	known.Forget("curves")
	if len(known) != 0 {
		t.Errorf("what was forgotten is still known: %v", known)
	}
}

// T_id of an app is one number, whether it runs or is over, and however many device-seconds it held on the way: an app that
// was moved about and started again was not due less for it.
func TestIdealTimeIsTheSameOnceAnAppIsOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	a := w.submit("app", 4, 1, 1000)
	a.Speeds = &cluster.Speeds{Measured: []cluster.Speed{{Type: "gpu", Devices: 1, Rate: 1}}}
	for _, j := range a.Jobs {
		j.Speeds = a.Speeds
	}
	none := func(*policy.Job) float64 { return 0 }
	w.pass(time.Second)
	runs := themis.Fairness(w.view(), a, false, none)
	w.pass(time.Hour)
	a.StepsDone, a.Finished, a.Jobs = 4000, 4, nil
	for _, held := range []float64{4000, 40_000} {
		a.DeviceSeconds = held
		over := themis.Fairness(w.view(), a, true, none)
		if over == nil || math.Abs(over.GetAloneSeconds()/runs.GetAloneSeconds()-1) > 1e-3 {
			t.Errorf("alone it takes %v s while it runs, and %v s once it is over after %v device-seconds", runs.GetAloneSeconds(),
				over.GetAloneSeconds(), held)
		}
	}
	a.Speeds = &cluster.Speeds{}
	if over := themis.Fairness(w.view(), a, true, none); over != nil {
		t.Errorf("%v of an app whose rate nobody measured", over)
	}
}
