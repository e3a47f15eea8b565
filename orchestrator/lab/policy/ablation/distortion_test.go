package ablation

import (
	"fmt"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outbid-dev/outbid/orchestrator/bidder"
)

// A sweep's estimate of its remaining work is off by one factor that is the same in every round; the work done is known
// exactly.
func TestEstimatesThatAreOff(t *testing.T) {
	t.Parallel()
	state := func(app string) *bidder.AppState {
		s := &bidder.AppState{App: app, StepsDone: 100, Jobs: []bidder.Job{{Done: 10, Until: 60, Total: 210}, {Done: 50, Until: 40, Total: 50}}}
		s.Outlook.Steps = 1_000_100
		return s
	}
	exact := &distortion{}
	if s := state("a"); true {
		exact.Work(1, s)
		if diff := cmp.Diff(state("a").Jobs, s.Jobs); diff != "" || s.Outlook.Steps != 1_000_100 {
			t.Errorf("without errors it is wrong: %s", diff)
		}
	}
	off := &distortion{errors: .2}
	least, most := 2., 0.
	for i := range 200 {
		s := state(fmt.Sprint("app-", i))
		off.Work(1, s)
		factor := (s.Jobs[0].Until - 10) / 50
		least, most = min(least, factor), max(most, factor)
		if total := (s.Jobs[0].Total - 10) / 200; math.Abs(total-factor) > 1e-9 || s.Jobs[0].Done != 10 {
			t.Fatalf("its target is off by %g and its end by %g", factor, total)
		}
		if j := s.Jobs[1]; j.Until != 50 || j.Total != 50 {
			t.Fatalf("a job that is done goes on until %g, %g", j.Until, j.Total)
		}
		if steps := float64(s.Outlook.Steps-100) / 1e6; math.Abs(steps-factor) > 1e-5 {
			t.Fatalf("the sweep is off by %g, its job by %g", steps, factor)
		}
	}
	if least < .8 || least > .85 || most > 1.2 || most < 1.15 {
		t.Errorf("200 apps are off by %g to %g, want nearly .8 to 1.2", least, most)
	}
	var unknown bidder.AppState
	if off.Work(1, &unknown); unknown.Outlook.Steps != 0 {
		t.Errorf("an unknown amount of work became %d steps", unknown.Outlook.Steps)
	}
}

// Liars over-report how much being spread over nodes slows them down; their other reports are true, and so are those of
// other sweeps.
func TestLies(t *testing.T) {
	t.Parallel()
	table := bidder.Table{Rows: []bidder.Row{
		{Gangs: []bidder.Gangs{{Machines: 1}}, Rho: 4}, {Gangs: []bidder.Gangs{{Machines: 1}, {Machines: 2}, {Machines: 2}}, Rho: 2},
	}}
	rhos := func(seed uint64, d distortion, app string) [2]float64 {
		said := table
		d.Table(seed, app, &said)
		return [2]float64{said.Rows[0].Rho, said.Rows[1].Rho}
	}
	for name, tc := range map[string]struct {
		distortion distortion
		want       [2]float64
	}{
		"all lie":              {distortion{liars: 1, lie: .5}, [2]float64{4, 3}},
		"no liars":             {distortion{lie: .5}, [2]float64{4, 2}},
		"by nothing":           {distortion{liars: 1}, [2]float64{4, 2}},
		"no liars, few errors": {distortion{errors: 1e-12, lie: .5}, [2]float64{4, 2}},
	} {
		if got := rhos(0, tc.distortion, "a"); math.Abs(got[0]-tc.want[0])+math.Abs(got[1]-tc.want[1]) > 1e-9 {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
	if table.Rows[1].Rho != 2 {
		t.Error("Table modifies the given table")
	}
	few, many, least, most := 0, 0, 2., 0.
	for i := range 400 {
		app := fmt.Sprint("app-", i)
		f, m := Lies(3, app, .25), Lies(3, app, .75)
		if f && !m {
			t.Fatalf("%s lies among few and not among many", app)
		}
		if f {
			few++
		}
		if m {
			many++
		}
		r := rhos(3, distortion{errors: .2}, app)[1] / 2
		least, most = min(least, r), max(most, r)
	}
	if few < 70 || few > 130 || many < 270 || many > 330 {
		t.Errorf("of 400 apps %d lie where a quarter should, and %d where three do", few, many)
	}
	if least < .8 || least > .85 || most > 1.2 || most < 1.15 {
		t.Errorf("slowdowns are off by %g to %g, want nearly .8 to 1.2", least, most)
	}
}
