package bidder_test

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/outbid-dev/outbid/orchestrator/bidder"
	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/tuner"
)

// single returns a sweep of one trial that can use least to most devices: 1000 steps of a second each on one device.
func single(least, most int) *bidder.AppState {
	return &bidder.AppState{
		App: "single", Tuner: "random", MeanApps: 2, Elapsed: 100, Cluster: []bidder.Stock{{Type: "k80", Devices: 16}},
		Demand: cluster.Demand{Min: least, Max: most, MultiNode: true}, Speeds: speeds(1), TotalSteps: 1000, StepsDone: 200,
		Jobs: []bidder.Job{{Done: 200, Total: 1000, Min: least, Max: most, MultiNode: true, Speeds: speeds(1)}},
	}
}

// shapes maps the machines and devices per machine of rows with one gang to their rho.
func shapes(tb bidder.Table) map[[2]int]float64 {
	m := map[[2]int]float64{}
	for _, r := range tb.Rows {
		if len(r.Gangs) == 1 && r.Gangs[0].Count == 1 {
			m[[2]int{r.Gangs[0].Machines, r.Gangs[0].Devices}] = r.Rho
		}
	}
	return m
}

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-9*max(1, math.Abs(b)) }

// Equation 1: T_sh = elapsed + left * S / min(|G|, max), T_id = total / min(R, max) * N.
func TestASingleJob(t *testing.T) {
	t.Parallel()
	got := table(t, offer(4, 2, 2), single(4, 4))
	if !near(got.Ideal, 1000./4*2) {
		t.Errorf("T_id is %v", got.Ideal)
	}
	rows := shapes(got)
	if rho := rows[[2]int{1, 4}]; !near(rho, (100+800./4)/500) {
		t.Errorf("on one machine rho is %v", rho)
	}
	if rho := rows[[2]int{2, 2}]; !near(rho, (100+800*1.1/4)/500) {
		t.Errorf("over two machines of a rack rho is %v", rho)
	}
	if got.Rho <= rows[[2]int{2, 2}] || math.IsInf(got.Rho, 0) {
		t.Errorf("with nothing rho is %v", got.Rho)
	}
}

// Measured slowdowns of a model replace the default ones, and racks are distinguished.
func TestSlowdownsAsMeasured(t *testing.T) {
	t.Parallel()
	s := single(4, 4)
	s.Jobs[0].Speeds = &cluster.Speeds{Measured: speeds(1).Measured, S: [4]float64{1, 1, 1.5, 2}}
	o := offer(2, 2, 1)
	o.Lots[0].Rack, o.Lots[1].Rack, o.Lots[2].Rack = "a", "b", "b"
	if rho := shapes(table(t, o, s))[[2]int{2, 2}]; !near(rho, (100+800*2./4)/500) {
		t.Errorf("across racks rho is %v", rho)
	}
	o.Lots[1].Rack = "a"
	if rho := shapes(table(t, o, s))[[2]int{2, 2}]; !near(rho, (100+800*1.5/4)/500) {
		t.Errorf("in a rack rho is %v", rho)
	}
}

// With different devices, T_id is N times the time of the best use of the whole cluster, and a row's speed is that of
// its type.
func TestUnlikeDevices(t *testing.T) {
	t.Parallel()
	s := single(1, 2)
	fast := &cluster.Speeds{Measured: []cluster.Speed{{Type: "k80", Devices: 1, Rate: 1}, {Type: "v100", Devices: 1, Rate: 5}}}
	s.Speeds, s.Jobs[0].Speeds = fast, fast
	s.Cluster = []bidder.Stock{{Type: "k80", Devices: 16}, {Type: "v100", Devices: 1}}
	o := offer(1, 1)
	o.Lots[1].Type = "v100"
	got := table(t, o, s)
	if want := 1000. / (5 + 1) * 2; !near(got.Ideal, want) {
		t.Errorf("T_id is %v, want %v", got.Ideal, want)
	}
	for _, r := range got.Rows {
		rate := map[string]float64{"k80": 1, "v100": 5}[r.Gangs[0].Type]
		if want := (100 + 800/rate) / got.Ideal; !near(r.Rho, want) {
			t.Errorf("rho of %+v is %v, want %v", r.Gangs, r.Rho, want)
		}
	}
	if len(got.Rows) != 2 {
		t.Errorf("rows %+v", got.Rows)
	}
}

// Trials under curve stopping are counted up to their forecast end, and without a forecast up to their full training.
func TestTrialsUnderCurveStoppingAreCountedToTheirForecastEnd(t *testing.T) {
	t.Parallel()
	for longest, forecasts := range map[float64][]float64{300: {300, 0, 350}, 200: {300, 150, 250}, 500: {300, 600, 0}} {
		s := &bidder.AppState{
			Tuner: "performance_curve", MeanApps: 1, Cluster: []bidder.Stock{{Type: "k80", Devices: 4}},
			Demand: cluster.Demand{Min: 1, Max: 1}, Speeds: speeds(1), TotalSteps: 1000,
		}
		for i, forecast := range forecasts {
			s.Jobs = append(s.Jobs, bidder.Job{
				Trial: int32(i), Done: 100, Total: 400, Forecast: forecast, Min: 1, Max: 1, Speeds: s.Speeds,
			})
		}
		got := table(t, offer(4), s)
		last := got.Rows[len(got.Rows)-1]
		if n, left := devices(last), last.Rho*got.Ideal; n != 3 || !near(left, longest) {
			t.Errorf("forecast to end at %v: with %d devices %v s are left, want %v with 3", forecasts, n, left, longest)
		}
	}
}

// ASHA's promotions only wait for devices: the rest takes as long as all devices need for it, but at least as long as
// one trial that is fully trained.
func TestASHA(t *testing.T) {
	t.Parallel()
	s := &bidder.AppState{
		Tuner: "asha", MeanApps: 1, Cluster: []bidder.Stock{{Type: "k80", Devices: 8}}, StepsDone: 40,
		Demand: cluster.Demand{Min: 1, Max: 1}, Speeds: speeds(1), TotalSteps: 90,
		Outlook: tuner.Outlook{Trials: 9, Steps: 200, Rungs: []tuner.Rung{{UntilStep: 10, Trials: 9, Steps: 90}}},
	}
	for i := range 4 {
		s.Jobs = append(s.Jobs, bidder.Job{Trial: int32(i), Until: 10, Total: 90, Min: 1, Max: 1, Speeds: s.Speeds})
	}
	got := table(t, offer(4), s)
	want := map[int]float64{1: 160, 2: 90, 4: 90}
	for _, r := range got.Rows {
		if left, ok := want[devices(r)]; ok && !near(r.Rho*got.Ideal, left) {
			t.Errorf("with %d devices %v s are left, want %v", devices(r), r.Rho*got.Ideal, left)
		}
	}
}

// Tables have a limited size, every row is better than winning nothing and fits the offer by number, and more devices
// in the same shape are never worse.
func TestTablesAreBoundedAndFit(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		o := &bidder.Offer{}
		free := map[string]int{}
		for i := range rapid.IntRange(1, 12).Draw(t, "lots") {
			l := bidder.Lot{
				Node: string(rune('a' + i)), Rack: rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, "rack"),
				Type: rapid.SampledFrom([]string{"k80", "v100", "p100"}).Draw(t, "type"), Free: rapid.IntRange(1, 8).Draw(t, "free"),
			}
			o.Lots = append(o.Lots, l)
			free[l.Type] += l.Free
		}
		s := single(1, 1)
		s.Cluster = []bidder.Stock{{Type: "k80", Devices: 50}, {Type: "v100", Devices: 50}, {Type: "p100", Devices: 50}}
		least := rapid.IntRange(1, 3).Draw(t, "min")
		s.Demand.Min, s.Demand.Max = least, least*rapid.IntRange(1, 8).Draw(t, "times")
		s.Jobs = nil
		for range rapid.IntRange(0, 100).Draw(t, "jobs") {
			j := bidder.Job{
				Done: rapid.Float64Range(0, 900).Draw(t, "done"), Total: 1000, Min: s.Demand.Min, Max: s.Demand.Max,
				MultiNode: rapid.Bool().Draw(t, "spread"), Speeds: s.Speeds,
			}
			if rapid.IntRange(0, 3).Draw(t, "runs") == 0 {
				j.Held = bidder.Holding{Type: "k80", Devices: least, Machines: 1, Rate: float64(least)}
			}
			s.Jobs = append(s.Jobs, j)
		}
		tables, err := bidder.BuiltIn{}.Bid(o, []*bidder.AppState{s})
		if err != nil {
			t.Fatal(err)
		}
		got := tables[0]
		if len(got.Rows) > bidder.MaxRows || !(got.Rho > 0) || math.IsInf(got.Rho, 0) || !(got.Ideal > 0) {
			t.Fatalf("%d rows, rho %v, T_id %v", len(got.Rows), got.Rho, got.Ideal)
		}
		for _, r := range got.Rows {
			used := map[string]int{}
			for _, g := range r.Gangs {
				used[g.Type] += g.Size()
			}
			for kind, n := range used {
				if n > free[kind] {
					t.Fatalf("%+v needs %d of %d", r.Gangs, n, free[kind])
				}
			}
			if !(r.Rho > 0 && r.Rho < got.Rho) {
				t.Fatalf("rho of %+v is %v, with nothing %v", r.Gangs, r.Rho, got.Rho)
			}
		}
	})
}
