package compare_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/lab"
	"github.com/outbid-dev/outbid/orchestrator/lab/compare"
	"github.com/outbid-dev/outbid/orchestrator/lab/papers"
	"github.com/outbid-dev/outbid/orchestrator/sim/experiment"
	"github.com/outbid-dev/outbid/orchestrator/sim/measure"
	"github.com/outbid-dev/outbid/orchestrator/sim/workload"
	"github.com/outbid-dev/outbid/orchestrator/trace"
)

// run runs one policy of a plan on the simulator.
func run(t *testing.T, p *experiment.Plan) measure.Result {
	t.Helper()
	results, err := p.Run(t.Context(), experiment.Hooks{Engine: experiment.Simulate})
	if err != nil {
		t.Fatal(err)
	}
	return results[0]
}

func optionsOf(cluster, policy string, w workload.Request) compare.Options {
	w.Load, w.Length = 1, 1
	o := compare.Options{}
	o.Options = experiment.Options{Registry: lab.Policies(), Cluster: cluster, Policies: []string{policy}, Workload: w, Parallel: 1, RestartDelay: 10 * time.Second}
	o.Mishaps.NodeBack = time.Minute
	return o
}

// twoGangs runs two gangs of four that arrive together and take 100 s each.
func twoGangs(t *testing.T, cluster string) measure.Result {
	t.Helper()
	o := optionsOf(cluster, "fifo", workload.Request{})
	o.Alone, o.Made = true, papers.Workload{Name: "themis-1", Options: []string{"apps=1"}}
	p, err := compare.NewPlan(o)
	if err != nil {
		t.Fatal(err)
	}
	p.Trace = &trace.Trace{Name: "two gangs"}
	for _, id := range []string{"a", "b"} {
		p.Trace.Jobs = append(p.Trace.Jobs, trace.Job{ID: id, MinGPUs: 4, MaxGPUs: 4, Duration: 100})
	}
	return run(t, p)
}

func TestAnAppIsComparedWithItselfAloneOnItsShare(t *testing.T) {
	t.Parallel()
	for cluster, want := range map[string]struct{ worst, mean float64 }{
		// Half of eight devices is a gang: alone each takes 100 s, like together.
		"gpu:8/4": {1, 1},
		// Half of four is half a gang. A gang for half the time is 200 s, and the first took 100 s. The second took 200
		// s with 1.5 apps on average; a gang for two thirds of the time is 150 s.
		"gpu:4/4": {200. / 150, (100./200 + 200./150) / 2},
		// Half of nine is four and a half, and only four are useful.
		"gpu:9/9": {1, 1},
	} {
		got := twoGangs(t, cluster)
		if math.Abs(got.AloneSlowdownMax-want.worst) > 1e-6 || math.Abs(got.AloneSlowdownMean-want.mean) > 1e-6 {
			t.Errorf("%s: worst %v, mean %v: want %v", cluster, got.AloneSlowdownMax, got.AloneSlowdownMean, want)
		}
	}
}

// Alone on a large cluster, explorations whose survivors take the devices of ended jobs end sooner than those with
// constant gangs.
func TestSurvivorsOfHalvingDoubleTheirDevices(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{"srsf", "themis", "las"} {
		var took [2]float64
		for i, grow := range []string{"true", "false"} {
			o := optionsOf("gpu:64/8", policy, workload.Request{})
			o.Made = papers.Workload{Name: "themis-2", Options: []string{"apps=1", "single=0", "grow=" + grow}}
			p, err := compare.NewPlan(o)
			if err != nil {
				t.Fatal(err)
			}
			took[i] = run(t, p).Makespan
		}
		if took[0] > took[1]*2/3 {
			t.Errorf("%s: %g s where survivors' devices double, %g s where they do not", policy, took[0], took[1])
		}
	}
}

// T_cluster follows equation 2: an app's work over the devices that it can use. The alternative of adding up the
// longest job of each phase is several times as large in workload 2, so that every schedule looks fair.
func TestIdealTimesOfHalvingAreEquationTwos(t *testing.T) {
	t.Parallel()
	o := optionsOf("themis", "srsf", workload.Request{})
	o.Alone, o.Made = true, papers.Workload{Name: "themis-2", Options: []string{"apps=16", "days=2", "grow=false"}}
	p, err := compare.NewPlan(o)
	if err != nil {
		t.Fatal(err)
	}
	got := run(t, p)
	demand := map[string]int{}
	for i := range p.Trace.Jobs {
		demand[p.Trace.Jobs[i].App] += p.Trace.Jobs[i].MaxGPUs
	}
	var byPhases []float64
	for _, f := range got.Series.Fates {
		// The device time that it held is its work plus the cost of bad places and restarts.
		if most := f.DeviceSeconds / float64(min(p.Devices(), demand[f.App])); f.Alone > most*(1+1e-9) {
			t.Errorf("app %s: T_cluster is %g s, and all that it held is only %g s of the whole cluster", f.App, f.Alone, most)
		}
		byPhases = append(byPhases, f.Share/(f.Alone*f.MeanApps))
		if f.AloneOnShare < f.Share*(1-1e-9) && f.Share == f.Alone*f.MeanApps {
			t.Errorf("app %s took %g s alone, less than the %g s that no schedule can beat", f.App, f.AloneOnShare, f.Share)
		}
	}
	slices.Sort(byPhases)
	if got.RhoWeighted > got.RhoBound*(1+1e-9) || got.RhoBound < .5 {
		t.Errorf("weighted rho %g, bound %g: the bound is one, and does not decide by itself", got.RhoWeighted, got.RhoBound)
	}
	if median := byPhases[len(byPhases)/2]; median <= 1 {
		t.Errorf("on a share the phases take %g times equation 2's time: want more, as they wait for each other", median)
	}
}
