package themis

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/outbid-dev/outbid/orchestrator/bidder"
	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/policy/policytest"
	"github.com/outbid-dev/outbid/orchestrator/policy/stagetest"
)

// gang returns devices of the first node.
func gang(devices ...int) cluster.Gang { return cluster.Gang{{Node: 0, Devices: devices}} }

// stage returns a node of eight devices and a sweep's trials; the first hold one device each until their terms end.
func stage(jobs int, terms ...time.Duration) (*stagetest.Stage, []*policy.Job) {
	s := stagetest.New(stagetest.Nodes("gpu", 1, 8, 4)...)
	a := s.App("a", "t")
	a.Demand, a.Speeds = cluster.Demand{Min: 1, Max: 1}, &cluster.Speeds{}
	var all []*policy.Job
	for i := range jobs {
		j := s.Job(a, 1, 1, 1000)
		if i < len(terms) {
			j.Gangs, j.TermEnd, j.Granted, j.Queued = []cluster.Gang{gang(i)}, s.Now.Add(terms[i]), s.Now, time.Time{}
		}
		all = append(all, j)
	}
	return s, all
}

func TestExpire(t *testing.T) {
	t.Parallel()
	s, jobs := stage(5, 0, time.Minute, 3*time.Minute, -time.Second, 0)
	jobs[4].Ending = true
	v := s.View()
	for name, tc := range map[string]struct {
		change func()
		next   time.Duration
		want   []*policy.Job
		ends   time.Duration
	}{
		"the next is unknown": {want: []*policy.Job{jobs[0], jobs[3]}, ends: time.Minute},
		"not before the next": {next: time.Second, ends: time.Second},
		"a paused app leaves": {change: func() { jobs[0].App.Paused = true }},
		"a draining node":     {change: func() { v.Nodes[0].Draining = true }},
	} {
		var next time.Time
		if tc.next > 0 {
			next = v.Now.Add(tc.next)
		}
		if tc.change != nil {
			tc.change()
		}
		got, ends := expiredTrials(v, next)
		var want time.Time
		if tc.ends > 0 {
			want = v.Now.Add(tc.ends)
		}
		if !slices.Equal(got, tc.want) || !ends.Equal(want) {
			t.Errorf("%s: %d expired, want %d; the next ends at %v, want %v", name, len(got), len(tc.want), ends, want)
		}
		jobs[0].App.Paused, v.Nodes[0].Draining = false, false
	}
}

// Terms end on the grid, at most half a step of it early or late.
func TestTermsEndTogether(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		set := settings{
			lease: time.Duration(rapid.IntRange(1, 3600).Draw(t, "lease")) * time.Second,
			Variant: Variant{
				Grid: rapid.SampledFrom([]float64{0, 0.25, 1}).Draw(t, "grid"), Stagger: rapid.Bool().Draw(t, "stagger"),
			},
		}
		now := time.Unix(rapid.Int64Range(0, 1e9).Draw(t, "now"), 0)
		grid := max(time.Duration(set.Grid*float64(set.lease)), time.Millisecond)
		end := set.termEnd(now, "n1")
		if off := end.Sub(now) - set.lease; off < -grid/2 || off > grid/2 {
			t.Fatalf("a term of %v ends after %v", set.lease, end.Sub(now))
		}
		if !set.Stagger && !end.Equal(end.Truncate(grid)) {
			t.Fatalf("%v is not on the grid of %v", end, grid)
		}
	})
}

func TestStandings(t *testing.T) {
	t.Parallel()
	s, jobs := stage(6, 0, time.Minute, time.Minute)
	jobs[2].Ending = true
	jobs[4].Step = 900
	v := s.View()
	offered := newSupply([]*policy.Job{jobs[0]}, nil, map[*policy.Job][]cluster.Gang{jobs[3]: {gang(6, 7)}})
	got := sweepStates(v, offered)
	// Trial 0 has an expired lease, 4 and 5 wait, and 4 has the least left to do. Trial 1 keeps one device, and 3 has
	// two reserved.
	if want := []*policy.Job{jobs[0], jobs[5], jobs[4]}; len(got) != 1 || !slices.Equal(got[0].open, want) || got[0].keeps != 3 {
		t.Errorf("standings %+v", got)
	}
	if len(offered.expired) != 1 || offered.expired[0].Gang().Size() != 1 || !offered.hasTrade(v) {
		t.Errorf("%d jobs on leases that are up", len(offered.expired))
	}
	jobs[0].App.Paused = true
	if got := sweepStates(v, newSupply(nil, nil, nil)); len(got) != 0 || newSupply(nil, nil, nil).hasTrade(v) {
		t.Errorf("a paused sweep is in line: %+v", got)
	}
}

// apps returns ranked sweeps that want the given numbers of devices. A negative number is a sweep that holds all it can
// use and wants its devices again.
func apps(wants ...int) []ranked {
	var order []ranked
	for _, n := range wants {
		a := &policy.App{}
		r := ranked{sweepState: sweepState{app: a}}
		for range max(n, -n) {
			j := &policy.Job{App: a, Demand: cluster.Demand{Min: 1, Max: 1}}
			if n < 0 {
				j.Gangs = []cluster.Gang{gang(0)}
			}
			a.Jobs, r.open = append(a.Jobs, j), append(r.open, j)
		}
		order = append(order, r)
	}
	return order
}

func TestAsk(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		wants   []int
		devices int
		set     settings
		want    []int
	}{
		"the worst fifth":          {[]int{1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, 8, settings{knob: 0.8}, []int{0, 1}},
		"at least one":             {[]int{1, 1}, 8, settings{knob: 0.8}, []int{0}},
		"everybody":                {[]int{1, 1, 1}, 8, settings{}, []int{0, 1, 2}},
		"inactive ones count":      {[]int{0, 1, 1, 1, 1}, 8, settings{knob: 0.6}, []int{1}},
		"no more than it takes":    {[]int{2, 2, 2, 2}, 4, settings{Variant: Variant{Cover: 1}}, []int{0, 1}},
		"so many times":            {[]int{2, 2, 2, 2}, 4, settings{Variant: Variant{Cover: 1.5}}, []int{0, 1, 2}},
		"covering, at most 1-f":    {[]int{1, 1, 1, 1}, 100, settings{knob: 0.5, Variant: Variant{Cover: 1}}, []int{0, 1}},
		"sated ones are asked too": {[]int{-1, 2, -1, 2}, 100, settings{knob: 0.75, Variant: Variant{Cover: 1}}, []int{0, 1}},
		"covering skips inactive ones": {
			[]int{0, 1, 0, 1}, 1, settings{Variant: Variant{Cover: 1}}, []int{1},
		},
	} {
		if got := ask(apps(tc.wants...), []offered{{"gpu", tc.devices}}, &tc.set); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %v are asked, want %v", name, got, tc.want)
		}
	}
}

func TestRank(t *testing.T) {
	t.Parallel()
	now := time.Unix(10_000, 0)
	v := &policy.View{Now: now}
	var all []sweepState
	known := map[string]*memory{}
	for id, m := range map[string]memory{
		"idle-longest": {IdleSince: now.Add(-50 * time.Second)},
		"idle":         {IdleSince: now.Add(-10 * time.Second)},
		"idle-short":   {IdleSince: now.Add(-5 * time.Second), Ideal: 50}, // as long in units of its own time
		"content":      {IdleSince: now.Add(-90 * time.Second)},           // it wants nothing
		"poor":         {Work: 900},
		"rich":         {Work: 100, Shortest: 1000, Chain: 1},
	} {
		if m.Ideal == 0 {
			m.Ideal = 100
		}
		m.Apps, m.Least, m.Most, m.Chain = 1, 1, 1, max(1, m.Chain)
		a := &policy.App{ID: id, Submitted: now.Add(-100 * time.Second), AppSecondsBefore: -100}
		a.Jobs = []*policy.Job{{Gangs: []cluster.Gang{gang(0)}, Granted: now}}
		a.Jobs[0].App = a
		known[id] = &m
		one := sweepState{app: a, open: a.Jobs}
		if id == "content" {
			one.open = nil
		}
		all = append(all, one)
	}
	slices.SortFunc(all, func(a, b sweepState) int { return strings.Compare(b.app.ID, a.app.ID) })
	names := func(set settings) (got []string) {
		for _, r := range rank(v, all, known, &set) {
			got = append(got, r.app.ID)
		}
		return got
	}
	if diff := cmp.Diff([]string{"idle-longest", "idle-short", "idle", "poor", "rich", "content"},
		names(settings{Variant: Variant{Rank: "rho"}})); diff != "" {
		t.Errorf("by rho (-want +got):\n%s", diff)
	}
	if got := names(settings{Variant: Variant{Rank: "rho", Idle: "cached"}}); got[0] != "poor" || got[1] != "rich" {
		t.Errorf("with idle=cached: %v", got)
	}
	if got := names(settings{lease: time.Minute, Variant: Variant{Rank: passedOver}}); got[0] != "rich" || got[1] != "idle-short" {
		t.Errorf("with rank=passed-over: %v", got)
	}
}

// A sweep whose trials all ended, and whose next ones have just been created, has not waited since it was submitted.
func TestHowLongAnAppWaits(t *testing.T) {
	t.Parallel()
	now := time.Unix(100_000, 0)
	ago := func(minutes int) time.Time { return now.Add(-time.Duration(minutes) * time.Minute) }
	for name, tc := range map[string]struct {
		heldAt time.Time
		jobs   []policy.Job
		want   time.Time
	}{
		"nothing is known":            {time.Time{}, nil, ago(60)},
		"its jobs were made just now": {ago(10), []policy.Job{{Queued: now}, {Queued: now}}, now},
		"jobs wait since the start":   {ago(10), []policy.Job{{Queued: ago(60)}, {Queued: now}}, ago(10)},
		"a lease has ended since":     {ago(10), []policy.Job{{Queued: ago(60)}, {Queued: ago(5), Leases: 1}}, ago(5)},
	} {
		a := &policy.App{Submitted: ago(60)}
		for i := range tc.jobs {
			a.Jobs = append(a.Jobs, &tc.jobs[i])
		}
		m := memory{HeldAt: tc.heldAt}
		if got := m.withIdle(now, a, newSupply(nil, nil, nil)).IdleSince; !got.Equal(tc.want) {
			t.Errorf("%s: it waits for %v, want %v", name, now.Sub(got), now.Sub(tc.want))
		}
	}
}

// Reserved devices are granted once they are free and kept from other trials until then, for at most a lease.
func TestFulfil(t *testing.T) {
	t.Parallel()
	const lease = 10 * time.Minute
	for name, tc := range map[string]struct {
		change           func(s *stagetest.Stage, holder, waits *policy.Job, r *policy.Reservation)
		granted, secured int
		still            int
	}{
		"free now":          {func(_ *stagetest.Stage, h, _ *policy.Job, _ *policy.Reservation) { h.Gangs = nil }, 1, 1, 0},
		"the holder leaves": {func(_ *stagetest.Stage, h, _ *policy.Job, _ *policy.Reservation) { h.Ending = true }, 0, 1, 1},
		"the holder stays":  {func(*stagetest.Stage, *policy.Job, *policy.Job, *policy.Reservation) {}, 0, 0, 0},
		"it is too old": {func(_ *stagetest.Stage, h, _ *policy.Job, r *policy.Reservation) {
			h.Gangs, r.Made = nil, r.Made.Add(-lease)
		}, 0, 0, 0},
		"the app is paused": {func(_ *stagetest.Stage, h, w *policy.Job, _ *policy.Reservation) {
			h.Gangs, w.App.Paused = nil, true
		}, 0, 0, 0},
		"the app is gone": {func(_ *stagetest.Stage, h, _ *policy.Job, r *policy.Reservation) { h.Gangs, r.Job.App = nil, "x" }, 0, 0, 0},
		"the node drains": {func(s *stagetest.Stage, h, _ *policy.Job, _ *policy.Reservation) {
			h.Gangs, s.Nodes[0].Draining = nil, true
		}, 0, 0, 0},
		"the node is gone": {func(_ *stagetest.Stage, h, _ *policy.Job, r *policy.Reservation) {
			h.Gangs, r.Nodes = nil, policy.NamedGang{{Node: "x", Devices: []int{0}}}
		}, 0, 0, 0},
	} {
		s, jobs := stage(2, time.Minute)
		r := policy.Reservation{Job: jobs[1].Name(), Made: s.Now, Nodes: s.View().Named(gang(0))}
		tc.change(s, jobs[0], jobs[1], &r)
		v := s.View()
		plan := policy.Extend(v)
		secured, still, _ := claimReserved(v, plan, []policy.Reservation{r}, lease, terms{}, "")
		if len(plan.Plan("", "").Grants) != tc.granted || len(secured) != tc.secured || len(still) != tc.still {
			t.Errorf("%s: secured %v, still reserved %v", name, secured, still)
		}
	}
}

// An offer lists free devices and those on expired leases, and the states of the sweeps that may use only a part of it
// say so. The view is unchanged.
func TestOffer(t *testing.T) {
	t.Parallel()
	s, jobs := stage(3, 0, time.Minute)
	s.Nodes = append(s.Nodes, stagetest.Nodes("old", 1, 2, 2)...)
	v := s.View()
	before := policytest.Imprint(v)
	plain := &bidder.AppState{}
	picky := &bidder.AppState{Demand: cluster.Demand{Min: 1, Max: 1, Exclude: []string{"old"}}}
	o := offerTo(v, newSupply(jobs[:1], nil, nil), []*bidder.AppState{plain, picky})
	if len(o.Lots) != 2 || o.Lots[0].Free != 7 || o.Lots[1].Free != 2 || o.Lots[1].Type != "old" {
		t.Errorf("offered %+v", o.Lots)
	}
	if plain.Free != nil || !slices.Equal(picky.Free, []int{7, 0}) {
		t.Errorf("may use %v, %v", plain.Free, picky.Free)
	}
	if !slices.Equal(before, policytest.Imprint(v)) {
		t.Error("the view was modified")
	}
}

// teller is a bidder that answers with fixed tables.
type teller struct{ tables []bidder.Table }

func (b teller) Bid(*bidder.Offer, []*bidder.AppState) ([]bidder.Table, error) { return b.tables, nil }

// A sweep with an outside bidder is asked through it, with the arbiter's T_id; the arbiter's own table is unaffected.
func TestCollect(t *testing.T) {
	t.Parallel()
	s, jobs := stage(2)
	v := s.View()
	none := func(*policy.Job) (held, lost bidder.Holding) { return }
	state := func(plugin string) *bidder.AppState {
		st := v.AppState(jobs[0].App, v.Stock(), none)
		st.Bidder = plugin
		return st
	}
	offer := &bidder.Offer{Lots: []bidder.Lot{{Node: v.Nodes[0].Name, Type: "gpu", Free: 8, Slots: []int{4, 4}}}}
	row := bidder.Row{Rho: 2, Gangs: []bidder.Gangs{{Count: 1, Machines: 1, Devices: 1, Type: "gpu"}}}
	their := bidder.Table{Rho: 8, Ideal: 10, Rows: []bidder.Row{row}}
	bids := collect(offer, []int{3, 5}, []*bidder.AppState{state(""), state("theirs")}, teller{[]bidder.Table{their}}, &settings{})
	in, out := bids[0], bids[1]
	if in.index != 3 || out.index != 5 || in.isOutside() || !out.isOutside() {
		t.Fatalf("bids %+v", bids)
	}
	if diff := cmp.Diff(in.own, in.table); diff != "" || len(in.table.Rows) == 0 {
		t.Errorf("the built-in bidder's bid (-own +said):\n%s", diff)
	}
	if diff := cmp.Diff(in.own, out.own); diff != "" {
		t.Errorf("the arbiter's own table of it is another (-without +with a bidder):\n%s", diff)
	}
	if out.table.Ideal != out.own.Ideal || out.table.Rho != 8*10/out.own.Ideal {
		t.Errorf("its rho is %v at a T_id of %v", out.table.Rho, out.table.Ideal)
	}
}

// For a sweep that holds something the rho of nothing is as reported; for others the option scales it.
func TestRhoOfNothing(t *testing.T) {
	t.Parallel()
	b := bid{state: &bidder.AppState{Jobs: []bidder.Job{{}}}, table: bidder.Table{Rho: 3}}
	if got := b.rhoOfNothing(4); got != 12 {
		t.Errorf("rho of nothing is %v for a sweep that holds nothing", got)
	}
	b.state.Jobs = append(b.state.Jobs, bidder.Job{Held: bidder.Holding{Devices: 1}})
	if got := b.rhoOfNothing(4); got != 3 {
		t.Errorf("rho of nothing is %v for a sweep that holds something", got)
	}
}

// With the options newcomers and short, new sweeps and those that could end within a lease are asked in addition to the
// worst, if they want what is free.
func TestAskExtra(t *testing.T) {
	t.Parallel()
	order := apps(1, 1, 1, 0)
	order[2].askedExtra, order[3].askedExtra = true, true
	if got := ask(order, []offered{{"a", 1}}, &settings{knob: .8}); !slices.Equal(got, []int{0, 2}) {
		t.Errorf("%v are asked, want the worst and the extra one that wants something", got)
	}
	now := time.Unix(10_000, 0)
	v := &policy.View{Now: now}
	a := &policy.App{ID: "a", Submitted: now.Add(-time.Minute)}
	one := []sweepState{{app: a}}
	for name, tc := range map[string]struct {
		set  settings
		m    memory
		want bool
	}{
		"a newcomer":                {settings{Variant: Variant{Newcomers: true}}, memory{IdleSince: a.Submitted}, true},
		"it held something":         {settings{Variant: Variant{Newcomers: true}}, memory{IdleSince: now}, false},
		"it holds something":        {settings{Variant: Variant{Newcomers: true}}, memory{}, false},
		"it ends within a lease":    {settings{lease: time.Minute, Variant: Variant{Short: true}}, memory{Shortest: 60}, true},
		"half of it is done":        {settings{lease: time.Minute, Variant: Variant{Short: true}}, memory{Shortest: 120, Work: 2, Had: -1}, true},
		"it does not":               {settings{lease: time.Minute, Variant: Variant{Short: true}}, memory{Shortest: 120, Work: 2}, false},
		"none are asked by default": {settings{lease: time.Minute}, memory{IdleSince: a.Submitted, Shortest: 60}, false},
	} {
		tc.m.Ideal, tc.m.Apps, tc.m.Least = 100, 1, 1
		if got := rank(v, one, map[string]*memory{"a": &tc.m}, &tc.set); got[0].askedExtra != tc.want {
			t.Errorf("%s: askedExtra is %t", name, got[0].askedExtra)
		}
	}
}

// A sweep that cannot use what is free takes no turn at it: of those that accept a type the worst are asked.
func TestAskByType(t *testing.T) {
	t.Parallel()
	order := apps(1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1)
	for i := range order {
		kind := "a"
		if i >= 10 {
			kind = "b"
		}
		order[i].app.Demand.Types = []string{kind}
		order[i].open[0].Demand.Types = []string{kind}
	}
	for name, tc := range map[string]struct {
		offer []offered
		want  []int
	}{
		"only the type that few accept":    {[]offered{{"a", 0}, {"b", 4}}, []int{10}},
		"only the type that many wait for": {[]offered{{"a", 4}, {"b", 0}}, []int{0, 1}},
		"both":                             {[]offered{{"a", 4}, {"b", 4}}, []int{0, 1, 10}},
		"none":                             {[]offered{{"a", 0}, {"b", 0}}, nil},
	} {
		if got := ask(order, tc.offer, &settings{knob: .8}); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %v are asked, want %v", name, got, tc.want)
		}
	}
}

// Recording does not modify its inputs or the memory: an auction can be recorded twice or not at all.
func TestRecordingChangesNothing(t *testing.T) {
	t.Parallel()
	s, jobs := stage(6, 0, time.Minute)
	v := s.View()
	set := settings{lease: time.Minute, knob: 0, Variant: Variant{Rank: passedOver, Cover: 1, Nothing: 1}}
	offered := newSupply(jobs[:1], nil, nil)
	state := func(a *policy.App) *bidder.AppState {
		return v.AppState(a, v.Stock(), func(j *policy.Job) (held, lost bidder.Holding) { return offered.holdings(v, j) })
	}
	all := sweepStates(v, offered)
	seen := map[string]*memory{}
	known := recall(v, offered, all, seen, &set, state)
	before := fmt.Sprintf("%+v", *known["a"])
	order := rank(v, all, known, &set)
	states := []*bidder.AppState{state(order[0].app)}
	offer := offerTo(v, offered, states)
	bids := collect(offer, []int{0}, states, nil, &settings{})
	awards, result := runAuction(offer, bids, nil, &set, rand.New(rand.NewPCG(1, 1)))
	p := newAllocator(v, policy.Extend(v), offered, order, &set)
	p.placeWins(awards)
	after, rhos := learn(v, order, awards, p.shares, known, &set)
	r := recordInput{&set, 1, offer, result, order, awards, p.shares, after, rhos}
	text := func() string { return strings.Join(strings.Fields(fmt.Sprint(r.record())), " ") } // its spaces are random
	first := text()
	if len(seen) != 0 || fmt.Sprintf("%+v", *known["a"]) != before || after["a"] == known["a"] {
		t.Errorf("the memory was modified: %v, %+v, was %s", seen, *known["a"], before)
	}
	if again := text(); again != first || r.record().GetBidders()[0].GetRhoAfter() != rhos[0] {
		t.Errorf("recorded\n%s\nand then\n%s", first, again)
	}
}

// A record contains the rule for asking, and for each bidder why it was asked or not.
func TestRecordExplainsAsking(t *testing.T) {
	t.Parallel()
	for want, set := range map[string]settings{
		"the 20% with the worst rho, those that hold nothing first": {knob: .8, Variant: Variant{Rank: "rho"}},
		"the 20% with the worst rho; newcomers beside them":         {knob: .8, Variant: Variant{Rank: "rho", Idle: "cached", Newcomers: true}},
		"the 100% whose rho would be worst if they were passed over now, no more than it takes to use the offer 1.5 times": {
			Variant: Variant{Rank: passedOver, Cover: 1.5},
		},
		"the 50% with the worst rho, those that hold nothing first; those that could end within a lease beside them": {knob: .5, Variant: Variant{Short: true}},
	} {
		if got := set.rule(); got != want {
			t.Errorf("the rule is %q, want %q", got, want)
		}
	}
	r := recordInput{set: &settings{Variant: Variant{Rank: "rho"}}, order: apps(1, 1, 0, 0)}
	r.order[0].idle, r.order[0].waited, r.order[1].rho, r.order[2].rho = true, .25, 1.5, .5
	r.order[3].idle, r.order[3].inactive = true, true
	for i, want := range []string{
		"1 of 4: holds nothing for 0.25 of its T_id", "2 of 4: rho 1.5", "3 of 4: rho 0.5; wants nothing that was on offer",
		"4 of 4: holds and wants nothing; wants nothing that was on offer",
	} {
		if got := r.explainRank(i, i < 2); got != want {
			t.Errorf("why is %q, want %q", got, want)
		}
	}
	if got := r.explainRank(1, false); got != "2 of 4: rho 1.5; not asked" {
		t.Errorf("of one that was not asked: %q", got)
	}
	r.set.Rank, r.order[1].passedOver = passedOver, 2.5
	if got := r.explainRank(1, true); got != "2 of 4: rho 2.5 if passed over" {
		t.Errorf("by rank=passed-over: %q", got)
	}
}

// A record thins out long tables of the built-in bidder, keeping the winning row, but not those of outside bidders.
func TestListsAreThinned(t *testing.T) {
	t.Parallel()
	table := bidder.Table{Rho: 9, Ideal: 1}
	for i := range 40 {
		table.Rows = append(table.Rows, bidder.Row{Rho: float64(40 - i), Gangs: []bidder.Gangs{{Count: 1, Machines: 1, Devices: i + 1}}})
	}
	rows := func(plugin string, room int) (n int, fair float64) {
		a := award{bid: &bid{state: &bidder.AppState{Bidder: plugin}, table: table}, row: 33}
		r := recordInput{set: &settings{}, order: apps(1), awards: []award{a}, shares: make([]share, 1)}
		r.awards[0].bid.index = 0
		b := r.bidder(0, &a)
		if room > 0 {
			a.recordTable(b, room)
		}
		return len(b.GetBids()), b.GetBids()[b.GetFair()].GetRho()
	}
	if n, fair := rows("", 8); n < 8 || n > 10 || fair != 7 {
		t.Errorf("%d rows, the winning one has rho %v; want about 8, and 7", n, fair)
	}
	if n, fair := rows("theirs", 8); n != 40 || fair != 7 {
		t.Errorf("%d rows of a bidder outside, the winning one has rho %v; want all 40, and 7", n, fair)
	}
}

// A snapshot in the old format of reservations can be read.
func TestOldSnapshotsAreRead(t *testing.T) {
	t.Parallel()
	p := New(policy.NewOptions(nil))
	random, err := p.pcg.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	p.Random = random
	fresh, err := p.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	old := strings.Replace(string(fresh), `"Promises":null`, `"Promises":[{"Job":"digits-1/17","Rho":1.5,"Made":"2026-11-21T10:00:00Z",`+
		`"Nodes":[{"Node":"n1","Devices":[0,2]}]}]`, 1)
	if old == string(fresh) {
		t.Fatalf("the snapshot names its reservations otherwise: %s", fresh)
	}
	if err := p.Restore([]byte(old)); err != nil {
		t.Fatal(err)
	}
	want := policy.Reservation{
		Job: policy.JobName{App: "digits-1", Trial: 17}, Made: time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC),
		Nodes: policy.NamedGang{{Node: "n1", Devices: []int{0, 2}}},
	}
	if len(p.Reservations) != 1 || fmt.Sprint(p.Reservations[0]) != fmt.Sprint(want) {
		t.Errorf("reservations %+v, want %+v", p.Reservations, want)
	}
}
