package bidder_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/outbid-dev/outbid/orchestrator/bidder"
	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/tuner"
)

// search returns a sweep of single-device trials of a hundred steps of a second each. Trials with a rate above 0 run,
// at that rate.
func search(tune string, jobs ...bidder.Job) *bidder.AppState {
	s := &bidder.AppState{
		Tuner: tune, MeanApps: 1, Cluster: []bidder.Stock{{Type: "k80", Devices: 16}}, Demand: cluster.Demand{Min: 1, Max: 1},
		Speeds: speeds(1), TotalSteps: 100, Jobs: jobs,
	}
	for i := range s.Jobs {
		j := &s.Jobs[i]
		j.Trial, j.Min, j.Max = int32(i), 1, 1
		if j.Speeds == nil {
			j.Speeds = s.Speeds
		}
		if j.Held.Rate > 0 && j.Held.Devices == 0 {
			j.Held.Type, j.Held.Devices, j.Held.Machines = "k80", 1, 1
		}
		s.StepsDone += j.Done
	}
	return s
}

// runs returns a trial that runs at a step a second; waits returns a trial without devices.
func runs(done, until, total float64) bidder.Job {
	return bidder.Job{Done: done, Until: until, Total: total, Held: bidder.Holding{Rate: 1}}
}

func waits(done, until, total float64) bidder.Job {
	return bidder.Job{Done: done, Until: until, Total: total}
}

func expecting(s *bidder.AppState, o tuner.Outlook) *bidder.AppState {
	s.Outlook = o
	return s
}

func predicted(forecast float64, j bidder.Job) bidder.Job {
	j.Forecast = forecast
	return j
}

// only adds a second, slower type to the cluster, and allows the sweep one type.
func only(kind string, s *bidder.AppState) *bidder.AppState {
	s.Cluster, s.Demand.Types = append(s.Cluster, bidder.Stock{Type: "slow", Devices: 4}), []string{kind}
	s.Speeds = &cluster.Speeds{Measured: []cluster.Speed{{Type: "k80", Devices: 1, Rate: 1}, {Type: "slow", Devices: 1, Rate: .1}}}
	for i := range s.Jobs {
		s.Jobs[i].Speeds = s.Speeds
	}
	return s
}

// The remaining time of a sweep on the devices that it holds (equations 1 and 2).
func TestHowLongAnAppStillTakes(t *testing.T) {
	t.Parallel()
	slow := &cluster.Speeds{Measured: []cluster.Speed{{Type: "k80", Devices: 1, Rate: .5}}}
	halves := func(steps int64, jobs ...bidder.Job) *bidder.AppState {
		return expecting(search("successive_halving", jobs...), tuner.Outlook{Trials: 4, Steps: steps, Rungs: []tuner.Rung{
			{UntilStep: 10, Trials: 4, Steps: 40}, {UntilStep: 20, Trials: 2, Steps: 20}, {UntilStep: 40},
		}})
	}
	brackets := func(steps int64, jobs ...bidder.Job) *bidder.AppState {
		return expecting(search("hyperband", jobs...), tuner.Outlook{Trials: 4, Steps: steps, Rungs: []tuner.Rung{
			{UntilStep: 10, Trials: 4, Steps: 40}, {UntilStep: 20, Trials: 2, Steps: 20, Bracket: 1},
		}})
	}
	lost := waits(20, 0, 100)
	lost.Lost = bidder.Holding{Type: "k80", Devices: 2, Machines: 1, Rate: 2}
	still := waits(20, 0, 100)
	still.Held = bidder.Holding{Type: "k80", Devices: 2, Machines: 1}
	slowly := bidder.Job{Total: 10, Speeds: slow, Held: bidder.Holding{Rate: .5}}
	for name, tc := range map[string]struct {
		s    *bidder.AppState
		want float64
	}{
		"a job":                                     {search("random", runs(20, 0, 100)), 80},
		"the longest of two":                        {search("random", runs(20, 0, 100), runs(60, 0, 100)), 80},
		"two that take turns":                       {search("random", runs(20, 0, 100), waits(60, 0, 100)), 120},
		"on a lease that is up":                     {search("random", lost), 40},
		"on devices on which it does not get on":    {search("random", still), 4 * 80},
		"on nothing":                                {search("random", waits(20, 0, 100)), 4 * 80},
		"beyond the target at hand, to its end":     {search("random", runs(20, 50, 100)), 80},
		"on nothing, of the type it may have":       {only("k80", search("random", waits(20, 0, 100))), 4 * 80},
		"nothing is left":                           {search("random", runs(100, 0, 100)), 1},
		"of two models the slower is the median's":  {search("random", bidder.Job{Total: 80, Held: bidder.Holding{Rate: 1}}, slowly), 80},
		"to its end as forecast":                    {search("performance_curve", predicted(60, runs(20, 0, 100))), 40},
		"in the rung at hand, whatever is forecast": {search("asha", predicted(90, runs(20, 40, 100))), 20},
		"without knowing its end":                   {search("random", runs(150, 0, 0)), 150},
		"as long as others":                         {search("random", runs(30, 0, 0)), 70},
		"others are to come":                        {expecting(search("random", runs(0, 0, 100), runs(0, 0, 100)), tuner.Outlook{Trials: 6, Steps: 600}), 300},
		"one is to come":                            {expecting(search("random", runs(90, 0, 100), runs(90, 0, 100)), tuner.Outlook{Trials: 3, Steps: 300}), 100},
		"none is to come":                           {expecting(search("random", runs(90, 0, 100), runs(90, 0, 100)), tuner.Outlook{Trials: 2, Steps: 200}), 10},
		"what one saves a trial to come may do": {
			expecting(search("performance_curve", predicted(60, runs(20, 0, 100)), runs(20, 0, 100)), tuner.Outlook{Trials: 2, Steps: 200}), 100,
		},
		"what one saves another may do besides": {
			expecting(search("performance_curve", predicted(60, runs(20, 0, 100)), runs(20, 0, 100)), tuner.Outlook{Trials: 3, Steps: 300}), 130,
		},
		"promotions to the end":          {expecting(search("asha", runs(30, 40, 100)), tuner.Outlook{Trials: 1, Steps: 45}), 70},
		"promotions, of the furthest":    {expecting(search("asha", runs(30, 40, 100), runs(60, 80, 100)), tuner.Outlook{Trials: 2, Steps: 125}), 40},
		"several brackets":               {brackets(45, runs(30, 40, 100)), 70},
		"two phases":                     {halves(60, runs(0, 10, 0), runs(0, 10, 0), runs(0, 10, 0), runs(0, 10, 0)), 20},
		"two phases on fewer":            {halves(60, runs(0, 10, 0), runs(0, 10, 0), waits(0, 10, 0), waits(0, 10, 0)), 30},
		"some are not created yet":       {halves(60, runs(0, 10, 0), runs(0, 10, 0)), 30},
		"half a trial is missing":        {halves(65, runs(0, 10, 0), runs(0, 10, 0), runs(0, 10, 0), runs(0, 10, 0)), 21.25},
		"less than that is rounding":     {halves(64, runs(0, 10, 0), runs(0, 10, 0), runs(0, 10, 0), runs(0, 10, 0)), 20},
		"some have done the phase":       {halves(60, runs(0, 10, 0), runs(0, 10, 0), waits(10, 10, 0), waits(10, 10, 0)), 20},
		"the phase at hand is the least": {halves(60, runs(0, 20, 0), runs(0, 10, 0), runs(0, 10, 0), runs(0, 10, 0)), 30},
	} {
		tc.s.Elapsed = 7
		rho, ideal := bidder.Estimate(tc.s)
		if got := rho*ideal - 7; !near(got, tc.want) {
			t.Errorf("%s: %g s are left, want %g", name, got, tc.want)
		}
		if got := bidder.Ideal(tc.s); got != ideal {
			t.Errorf("%s: T_id is %g and %g", name, got, ideal)
		}
	}
}

// Trials of random, Sobol and Bayesian search do not wait for each other: those that ended early leave no work behind.
func TestIndependentTrialsThatEndedEarly(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"random", "sobol", "bayes"} {
		s := expecting(search(name, runs(0, 0, 100)), tuner.Outlook{Trials: 3, Steps: 300})
		s.Finished, s.StepsDone = 2, 20
		rho, ideal := bidder.Estimate(s)
		if got := rho*ideal - s.Elapsed; !near(got, 100) {
			t.Errorf("%s: %g s are left, want 100", name, got)
		}
	}
}

// T_id is the time for the whole work on the whole cluster, or on as many devices as the sweep can use, for its
// share.
func TestTheIdealTime(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*bidder.AppState)
		want   float64
		most   int
	}{
		"ten jobs of a hundred steps": {func(*bidder.AppState) {}, 100, 10},
		"half of it done":             {func(s *bidder.AppState) { s.StepsDone, s.Finished = 500, 5 }, 100, 10},
		"among three apps":            {func(s *bidder.AppState) { s.MeanApps = 3 }, 300, 10},
		"alone for most of its life":  {func(s *bidder.AppState) { s.MeanApps = .5 }, 100, 10},
		"of a tenant with two shares": {func(s *bidder.AppState) { s.MeanApps, s.Weight = 3, 2 }, 150, 10},
		"of one with half a share":    {func(s *bidder.AppState) { s.Weight = .5 }, 200, 10},
		"on a small cluster":          {func(s *bidder.AppState) { s.Cluster[0].Devices = 4 }, 250, 4},
		"on the types that it accepts": {func(s *bidder.AppState) {
			s.Cluster, s.Demand.Types = []bidder.Stock{{Type: "k80", Devices: 4}, {Type: "v100", Devices: 4}}, []string{"k80"}
		}, 250, 4},
		"with gangs of two":                  {func(s *bidder.AppState) { s.Demand.Max = 2 }, 62.5, 16},
		"with gangs that its jobs alone say": {func(s *bidder.AppState) { s.Demand.Max, s.Jobs[0].Max = 0, 3 }, 62.5, 16},
		"with a job that says otherwise":     {func(s *bidder.AppState) { s.Jobs[0].Max = 3 }, 100, 10},
		"with two at once":                   {func(s *bidder.AppState) { s.Concurrency = 2 }, 500, 2},
		"with gangs of two, one at a time":   {func(s *bidder.AppState) { s.Demand.Max, s.Concurrency = 2, 1 }, 500, 2},
		"with more at once than it has":      {func(s *bidder.AppState) { s.Concurrency = 20 }, 100, 10},
		"with more that are finished":        {func(s *bidder.AppState) { s.Outlook.Trials, s.Finished = 5, 9 }, 100, 10},
	} {
		s := expecting(search("random", waits(0, 0, 100)), tuner.Outlook{Trials: 10, Steps: 1000})
		tc.change(s)
		if got := bidder.Ideal(s); !near(got, tc.want) {
			t.Errorf("%s: %g s, want %g", name, got, tc.want)
		}
		if got := bidder.Most(s); got != tc.most {
			t.Errorf("%s: it can use %d devices, want %d", name, got, tc.most)
		}
	}
}

func TestTheShortestTimeToGo(t *testing.T) {
	t.Parallel()
	pairs := func(s *bidder.AppState) *bidder.AppState {
		s.Demand.Max = 2
		for i := range s.Jobs {
			s.Jobs[i].Max = 2
		}
		return s
	}
	four := []bidder.Job{waits(0, 10, 0), waits(0, 10, 0), waits(0, 10, 0), waits(0, 10, 0)}
	for name, tc := range map[string]struct {
		s    *bidder.AppState
		want float64
	}{
		"a job":                      {search("random", waits(20, 0, 100)), 80},
		"ten jobs, one at hand":      {expecting(search("random", waits(0, 0, 100)), tuner.Outlook{Trials: 10, Steps: 1000}), 100},
		"one that goes to the end":   {expecting(search("asha", waits(30, 40, 100)), tuner.Outlook{Trials: 1, Steps: 45}), 70},
		"the same with gangs of two": {pairs(expecting(search("asha", waits(30, 40, 100)), tuner.Outlook{Trials: 1, Steps: 45})), 35},
		"phases with gangs of two": {pairs(expecting(search("successive_halving", four...), tuner.Outlook{Steps: 240, Rungs: []tuner.Rung{
			{UntilStep: 10, Trials: 4, Steps: 40}, {UntilStep: 20, Trials: 20, Steps: 200},
		}})), 30},
	} {
		if got := bidder.Shortest(tc.s); !near(got, tc.want) {
			t.Errorf("%s: %g s, want %g", name, got, tc.want)
		}
	}
}

// The fastest gangs are used first, whether held or bid for.
func TestABidBesideWhatIsHeld(t *testing.T) {
	t.Parallel()
	o := offer(1)
	o.Lots[0].Type = "v100"
	model := &cluster.Speeds{Measured: []cluster.Speed{{Type: "k80", Devices: 1, Rate: 1}, {Type: "v100", Devices: 1, Rate: 5}}}
	// The longer trial has 100 steps left, the other 10: the longer one gets the faster device.
	for rate, want := range map[float64]float64{1: 100. / 5, 4: 100. / 5, 20: 100. / 20} {
		held := waits(0, 0, 100)
		held.Speeds, held.Held.Rate = model, rate
		wants := waits(90, 0, 100)
		wants.Speeds = model
		s := search("random", held, wants)
		s.Cluster, s.Speeds = append(s.Cluster, bidder.Stock{Type: "v100", Devices: 1}), model
		got := table(t, o, s)
		if len(got.Rows) != 1 || !near(got.Rows[0].Rho*got.Ideal, want) {
			t.Errorf("next to %g steps/s: %+v of %g s, want %g s", rate, got.Rows, got.Ideal, want)
		}
	}
}

// A sweep bids for the part of the offer that it may use, for trials that wait for devices.
func TestWhatAnAppBidsFor(t *testing.T) {
	t.Parallel()
	leaving := waits(0, 0, 100)
	leaving.Leaving = true
	two := []bidder.Job{waits(0, 0, 100), waits(0, 0, 100)}
	for name, tc := range map[string]struct {
		free []int
		jobs []bidder.Job
		most int
	}{
		"all of the offer":          {nil, two, 2},
		"a part of a lot":           {[]int{1, 0}, two, 1},
		"a part of each":            {[]int{1, 1}, two, 2},
		"nothing of it":             {[]int{0, 0}, two, 0},
		"as if more were offered":   {[]int{9, 9}, two, 2},
		"lots that it does not say": {[]int{1}, two, 1},
		"a job that has devices":    {nil, []bidder.Job{runs(0, 0, 100)}, 0},
		"a job that is leaving":     {nil, []bidder.Job{leaving}, 0},
	} {
		s := search("random", tc.jobs...)
		s.Free = tc.free
		most := 0
		for _, r := range table(t, offer(2, 2), s).Rows {
			most = max(most, devices(r))
		}
		if most != tc.most {
			t.Errorf("%s: it bids for up to %d devices, want %d", name, most, tc.most)
		}
	}
}

// placeable reports whether pieces (numbers of devices of a type, the largest first) can be cut from lots, each from
// one lot.
func placeable(o *bidder.Offer, free []int, pieces []piece) bool {
	if len(pieces) == 0 {
		return true
	}
	p := pieces[0]
	for i, l := range o.Lots {
		if l.Type != p.kind || free[i] < p.devices || p.rack != "" && p.rack != l.Rack || p.node != "" && p.node != l.Node {
			continue
		}
		free[i] -= p.devices
		if placeable(o, free, pieces[1:]) {
			return true
		}
		free[i] += p.devices
	}
	return false
}

type piece struct {
	devices          int
	kind, rack, node string
}

// Every row can be placed on the offer, has at most as many trials as want devices, and every useful device is in a
// bid.
func TestRowsCanBePlaced(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		o := &bidder.Offer{}
		free, all := []int{}, 0
		for i := range rapid.IntRange(1, 5).Draw(t, "lots") {
			l := bidder.Lot{
				Node: string(rune('a' + i)), Rack: rapid.SampledFrom([]string{"x", "y"}).Draw(t, "rack"),
				Type: rapid.SampledFrom([]string{"k80", "v100"}).Draw(t, "type"), Free: rapid.IntRange(1, 4).Draw(t, "free"),
			}
			o.Lots, free, all = append(o.Lots, l), append(free, l.Free), all+l.Free
		}
		var jobs []bidder.Job
		for range rapid.IntRange(1, 5).Draw(t, "jobs") {
			jobs = append(jobs, waits(0, 0, 100))
		}
		s := search("random", jobs...)
		s.Cluster = []bidder.Stock{{Type: "k80", Devices: 20}, {Type: "v100", Devices: 20}}
		least := rapid.IntRange(1, 3).Draw(t, "min")
		s.Demand.Min, s.Demand.Max = least, least*rapid.IntRange(1, 3).Draw(t, "times")
		s.Demand.MultiNode = rapid.Bool().Draw(t, "spread")
		for i := range s.Jobs {
			s.Jobs[i].Min, s.Jobs[i].Max, s.Jobs[i].MultiNode = s.Demand.Min, s.Demand.Max, s.Demand.MultiNode
		}
		tables, err := bidder.BuiltIn{}.Bid(o, []*bidder.AppState{s})
		if err != nil {
			t.Fatal(err)
		}
		most := 0
		for _, r := range tables[0].Rows {
			var pieces []piece
			gangs := 0
			for _, g := range r.Gangs {
				gangs += g.Count
				if n := g.Machines * g.Devices; n < s.Demand.Min || n > s.Demand.Max || g.Machines > 1 && !s.Demand.MultiNode {
					t.Fatalf("%+v is a gang of %d", g, n)
				}
				for range g.Count * g.Machines {
					pieces = append(pieces, piece{g.Devices, g.Type, g.Rack, g.Node})
				}
			}
			slices.SortFunc(pieces, func(a, b piece) int { return b.devices - a.devices })
			if gangs > len(jobs) || !placeable(o, slices.Clone(free), pieces) {
				t.Fatalf("%+v cannot be placed on %+v for %d jobs", r.Gangs, o.Lots, len(jobs))
			}
			most = max(most, devices(r))
		}
		if want := min(all, len(jobs)); s.Demand.Max == 1 && most != want {
			t.Fatalf("it bids for up to %d devices of %+v for %d jobs, want %d", most, o.Lots, len(jobs), want)
		}
	})
}

// Devices behind one fast link are faster together than all devices of a machine.
func TestSlotsOfAMachine(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		slots []int
		want  map[int]float64
	}{
		"two slots of two":   {[]int{2, 2}, map[int]float64{1: 800, 2: 400, 4: 800 * 1.5 / 4}},
		"no slots are known": {nil, map[int]float64{1: 800, 2: 400, 4: 200}},
	} {
		s := single(1, 4)
		s.Jobs[0].Speeds = &cluster.Speeds{Measured: speeds(1).Measured, S: [4]float64{1, 1.5, 2, 2}}
		s.Speeds = s.Jobs[0].Speeds
		o := offer(4)
		o.Lots[0].Slots = tc.slots
		got := table(t, o, s)
		rows := shapes(got)
		for n, want := range tc.want {
			if left := rows[[2]int{1, n}]*got.Ideal - 100; !near(left, want) {
				t.Errorf("%s: %g s are left with %d devices, want %g", name, left, n, want)
			}
		}
	}
}

// A restatement by another T_id does not change the times that rows imply.
func TestATableIsRestated(t *testing.T) {
	t.Parallel()
	got := bidder.Table{Rho: 8, Ideal: 10, Rows: []bidder.Row{{Rho: 4}, {Rho: 2}}}
	got.By(20)
	if got.Ideal != 20 || got.Rho != 4 || got.Rows[0].Rho != 2 || got.Rows[1].Rho != 1 {
		t.Errorf("by 20 s it is %+v", got)
	}
	refused := bidder.Table{Refused: "no", Ideal: 10, Rho: 8}
	if refused.By(20); refused.Ideal != 10 || refused.Rho != 8 {
		t.Errorf("a table that was refused is %+v", refused)
	}
}
