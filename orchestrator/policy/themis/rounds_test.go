package themis_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/bidder"
	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/lab/policy/ablation"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/policy/policytest"
	"github.com/outbid-dev/outbid/orchestrator/policy/themis"
	"github.com/outbid-dev/outbid/orchestrator/tuner"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// world is a cluster on which plans are carried out at once.
type world struct {
	tb    testing.TB
	now   time.Time
	start time.Time
	nodes []cluster.Node
	apps  []*policy.App
}

func newWorld(tb testing.TB, devices ...int) *world {
	tb.Helper()
	w := &world{tb: tb, start: time.Unix(1_000_000, 0).UTC()}
	w.now = w.start
	for i, n := range devices {
		node := cluster.Node{Name: fmt.Sprintf("n%03d", i), Trusted: true}
		for d := range n {
			node.Devices = append(node.Devices, cluster.Device{Index: d, Type: "gpu", Slot: d / 2, Speed: 1})
		}
		w.nodes = append(w.nodes, node)
	}
	return w
}

// submit adds a sweep of trials that take the given seconds on one device.
func (w *world) submit(id string, jobs, most int, seconds int64) *policy.App {
	a := &policy.App{
		ID: id, Weight: 1, Submitted: w.now, Demand: cluster.Demand{Min: 1, Max: most}, Speeds: &cluster.Speeds{},
		TotalSteps: seconds, Tuner: "random", Outlook: func() tuner.Outlook { return tuner.Outlook{} },
		AppSecondsBefore: float64(len(w.apps)) * w.now.Sub(w.start).Seconds(),
	}
	for i := range jobs {
		a.Jobs = append(a.Jobs, &policy.Job{
			App: a, Trial: int32(i), Demand: a.Demand, Speeds: a.Speeds, Weight: 1, Created: w.now, Queued: w.now,
			UntilStep: seconds, TotalSteps: seconds,
		})
	}
	w.apps = append(w.apps, a)
	return a
}

func (w *world) view() *policy.View {
	v := &policy.View{
		Now: w.now, Nodes: w.nodes, Apps: w.apps, Free: cluster.NewCapacity(w.nodes),
		AppSeconds: float64(len(w.apps)) * w.now.Sub(w.start).Seconds(),
		MeanWeight: func(tenant string) float64 {
			sum, n := 0.0, 0.0
			for _, a := range w.apps {
				if a.Tenant == tenant {
					sum, n = sum+a.Weight, n+1
				}
			}
			return sum / max(1, n)
		},
	}
	for _, a := range w.apps {
		for _, j := range a.Jobs {
			if j.Running() {
				v.Free.Take(j.Gang(), j.Demand)
			}
		}
	}
	return v
}

// decide checks a plan and carries it out; revoked trials keep ending until left is called.
func (w *world) decide(p policy.Policy) policy.Plan {
	w.tb.Helper()
	v := w.view()
	plan := p.Decide(v)
	policytest.Check(fatal{w.tb}, v, plan)
	for _, g := range plan.Grants {
		g.Job.Gangs, g.Job.Granted, g.Job.TermEnd, g.Job.Queued = []cluster.Gang{g.Gang}, w.now, g.TermEnd, time.Time{}
		g.Job.Reported = w.now
	}
	for _, r := range plan.Renews {
		r.Job.TermEnd = r.TermEnd
	}
	for _, r := range plan.Revokes {
		r.Job.Ending = true
	}
	return plan
}

type fatal struct{ testing.TB }

// left ends the leases of trials that are ending.
func (w *world) left() {
	for _, a := range w.apps {
		for _, j := range a.Jobs {
			if j.Ending {
				j.Step = int64(w.view().StepAt(j))
				j.Gangs, j.Ending, j.Queued, j.Granted, j.TermEnd, j.Reported = nil, false, w.now, time.Time{}, time.Time{}, time.Time{}
			}
		}
	}
}

func (w *world) pass(d time.Duration) { w.now = w.now.Add(d) }

func held(a *policy.App) int {
	n := 0
	for _, j := range a.Jobs {
		n += j.Gang().Size()
	}
	return n
}

func policyWith(tb testing.TB, pairs ...string) *themis.Policy {
	tb.Helper()
	o, err := policy.ParseOptions(pairs)
	if err != nil {
		tb.Fatal(err)
	}
	p, ok := ablation.Themis(o).(*themis.Policy)
	if err := o.Err(); err != nil || !ok {
		tb.Fatal(err)
	}
	return p
}

func TestSingleSweepGetsAllItCanUse(t *testing.T) {
	t.Parallel()
	w, p := newWorld(t, 4, 4), policyWith(t)
	a := w.submit("a", 6, 1, 10_000)
	plan := w.decide(p)
	if held(a) != 6 {
		t.Errorf("it holds %d of 6", held(a))
	}
	for _, g := range plan.Grants {
		if term := g.TermEnd.Sub(w.now); term < 5*time.Minute || term > 15*time.Minute {
			t.Errorf("its term is %v", term)
		}
	}
	if plan.Auction.GetBidders()[0].GetKeeps() != 1 {
		t.Errorf("it pays: %v", plan.Auction.GetBidders()[0])
	}
}

func TestExpiredLeaseIsRenewedWithoutRivals(t *testing.T) {
	t.Parallel()
	w, p := newWorld(t, 4), policyWith(t)
	a := w.submit("a", 4, 1, 10_000)
	plan := w.decide(p)
	w.now = plan.Next
	plan = w.decide(p)
	if len(plan.Renews) != 4 || len(plan.Revokes)+len(plan.Grants) != 0 || held(a) != 4 {
		t.Errorf("plan %+v", plan)
	}
}

func TestExpiredLeaseGoesToWorseOffSweep(t *testing.T) {
	t.Parallel()
	w, p := newWorld(t, 4), policyWith(t, "rounding=keep-one")
	rich := w.submit("rich", 4, 1, 100_000)
	ends := w.decide(p).Next
	w.pass(2 * time.Minute)
	poor := w.submit("poor", 2, 1, 1000)
	if plan := w.decide(p); len(plan.Grants)+len(plan.Revokes) != 0 {
		t.Fatalf("before the leases are up: %+v", plan)
	}
	w.now = ends
	plan := w.decide(p)
	if len(plan.Revokes) == 0 || len(plan.Grants) != 0 {
		t.Fatalf("when the leases are up: %+v", plan)
	}
	// The devices are kept for the winner, whichever other sweep is submitted.
	w.submit("other", 9, 1, 10)
	w.pass(time.Second)
	w.decide(p)
	w.left()
	w.pass(time.Second)
	plan = w.decide(p)
	if held(poor) != 2 || held(rich) != 2 {
		t.Errorf("poor holds %d, rich %d, after %+v", held(poor), held(rich), plan)
	}
}

func TestOnlyWorstOffAreAskedAndOthersGetLeftovers(t *testing.T) {
	t.Parallel()
	w, p := newWorld(t, 8, 8), policyWith(t)
	for i := range 10 {
		w.submit(fmt.Sprint("a", i), 1, 1, int64(1000*(i+1)))
	}
	plan := w.decide(p)
	asked := 0
	for _, b := range plan.Auction.GetBidders() {
		if b.GetAsked() {
			asked++
			if len(b.GetBids()) == 0 {
				t.Errorf("%s made no bid", b.GetSweep())
			}
		}
	}
	if asked != 2 {
		t.Errorf("%d of 10 were asked, want 2", asked)
	}
	if len(plan.Grants) != 10 {
		t.Errorf("%d of 10 jobs run on 16 devices", len(plan.Grants))
	}
}

// With the option cover only as many sweeps are asked as can use the offer, so the worst off need not bid against those
// that can wait.
func TestNoMoreAreAskedThanCanUseTheOffer(t *testing.T) {
	t.Parallel()
	w, p := newWorld(t, 4), policyWith(t, "f=0", "cover=1")
	for i := range 10 {
		w.submit(fmt.Sprint("a", i), 1, 1, int64(1000*(i+1)))
	}
	if names := asked(w.decide(p)); len(names) != 4 {
		t.Errorf("%v were asked for 4 devices, want 4", names)
	}
}

// asked lists the sweeps that were asked for bids.
func asked(plan policy.Plan) []string {
	var names []string
	for _, b := range plan.Auction.GetBidders() {
		if b.GetAsked() {
			names = append(names, b.GetSweep())
		}
	}
	return names
}

// A sweep with one short trial does not starve behind many that could use far more: it holds nothing, so its rho is
// unbounded, and in units of its T_id it soon has waited longest. With the option it comes first at once.
func TestSmallSweepDoesNotStarve(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		rank   string
		leases int
	}{{"rho", 1}, {"passed-over", 0}} {
		w, p := newWorld(t, 8, 8), policyWith(t, "rank="+tc.rank, "cover=0")
		for i := range 17 {
			w.submit(fmt.Sprintf("large%02d", i), 40, 1, 100_000)
		}
		w.now = w.decide(p).Next
		small := w.submit("small", 1, 8, 4_000)
		for range tc.leases {
			w.now = w.decide(p).Next
			w.left()
		}
		names := asked(w.decide(p))
		w.left()
		w.decide(p)
		if len(names) == 0 || names[0] != "small" || held(small) < 2 {
			t.Errorf("rank=%s: %v were asked, and the small app holds %d devices; want it to come first, and some of its 8 after payment",
				tc.rank, names, held(small))
		}
	}
}

// The rho of the last auction decides which sweep is asked: the one that was left with the least, not the one that
// could gain most.
func TestTheWorstRhoIsAskedFirst(t *testing.T) {
	t.Parallel()
	w, p := newWorld(t, 8), policyWith(t, "rank=rho", "cover=0")
	first := w.submit("first", 16, 1, 10_000)
	ends := w.decide(p).Next
	w.pass(time.Minute)
	second := w.submit("second", 16, 1, 10_000)
	w.decide(p)
	w.now = ends
	if names := asked(w.decide(p)); len(names) != 1 || names[0] != "second" {
		t.Fatalf("%v were asked, want the second alone: it holds nothing", names)
	}
	w.left()
	ends = w.decide(p).Next
	if held(second) != 8 || held(first) != 0 {
		t.Fatalf("the first holds %d, the second %d", held(first), held(second))
	}
	w.now = ends
	if names := asked(w.decide(p)); len(names) != 1 || names[0] != "first" {
		t.Errorf("%v were asked, want the first alone: now it holds nothing", names)
	}
}

// A sweep that holds nothing has an unbounded rho and is asked before every sweep that holds something, however bad the
// other's rho, and however small its own by its last table, which idle=cached uses.
func TestSweepThatHoldsNothingIsAskedFirst(t *testing.T) {
	t.Parallel()
	for options, want := range map[string]string{"": "young", "idle=cached": "ancient", "nothing=1000": "young", "nothing=1000 idle=cached": "ancient"} {
		w, p := newWorld(t, 8), policyWith(t, append(strings.Fields(options), "f=0.999")...)
		ancient := w.submit("ancient", 16, 1, 100_000)
		ancient.Submitted = w.now.Add(-1000 * 24 * time.Hour)
		ends := w.decide(p).Next
		w.now = ends.Add(-time.Second)
		w.submit("young", 1, 1, 1_000_000)
		w.decide(p)
		w.now = ends
		plan := w.decide(p)
		if names := asked(plan); len(names) != 1 || names[0] != want {
			t.Errorf("%s: %v were asked, want the %s alone", options, names, want)
		}
	}
}

// A sweep's weight within its tenant shortens its ideal time, so it is asked before the tenant's other equal sweeps. It
// does not take other tenants' turns, except with weights=own.
func TestAHeavierAppIsAskedFirst(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		tenant, weights, want string
	}{
		"among a tenant's apps":      {"one", "tenant", "app3"},
		"a tenant's only app":        {"another", "tenant", "app0"},
		"a tenant's only app, freed": {"another", "own", "app3"},
	} {
		w, p := newWorld(t, 4), policyWith(t, "weights="+tc.weights)
		for i := range 5 {
			w.submit(fmt.Sprint("app", i), 4, 1, 10_000).Tenant = "one"
		}
		w.apps[3].Weight, w.apps[3].Tenant = 4, tc.tenant
		if names := asked(w.decide(p)); len(names) != 1 || names[0] != tc.want {
			t.Errorf("%s: %v were asked, want %s", name, names, tc.want)
		}
	}
}

// Among eight equal sweeps of eight tenants, a weight gives none more devices, however large it is.
func TestAWeightDoesNotBuyTheCluster(t *testing.T) {
	t.Parallel()
	shares := map[float64]int{}
	for _, weight := range []float64{1, 1.1, 1000} {
		w, p := newWorld(t, 8), policyWith(t)
		for i := range 8 {
			w.submit(fmt.Sprint("app", i), 4, 1, 100_000).Tenant = fmt.Sprint("tenant", i)
		}
		w.apps[3].Weight = weight
		for range 60 {
			plan := w.decide(p)
			w.left()
			w.decide(p)
			shares[weight] += held(w.apps[3])
			w.now = plan.Next
		}
	}
	if shares[1.1] != shares[1] || shares[1000] != shares[1] {
		t.Errorf("device-leases that it held in 60, by its weight: %v", shares)
	}
}

// With the option cover, sweeps that hold all they can use are asked in addition to those that could use more, not in
// their place.
func TestSatedSweepsTakeNoTurn(t *testing.T) {
	t.Parallel()
	w, p := newWorld(t, 8), policyWith(t, "f=0.5", "rank=passed-over", "cover=100")
	for _, id := range []string{"sated0", "sated1"} {
		w.submit(id, 1, 1, 5_000)
	}
	plan := w.decide(p)
	for _, id := range []string{"large0", "large1"} {
		w.submit(id, 8, 1, 100_000)
	}
	w.decide(p)
	w.now = plan.Next
	if names := asked(w.decide(p)); len(names) != 4 || names[0][:5] != "sated" || names[1][:5] != "sated" {
		t.Errorf("%v were asked, want both that are sated and both that are not", names)
	}
}

// A gang that was won finds its place even if small trials that also won could stay where they are.
func TestLargeGangsComeFirst(t *testing.T) {
	t.Parallel()
	w, p := newWorld(t, 2, 2), policyWith(t, "f=0")
	w.submit("gone", 1, 1, 50_000)
	w.decide(p)
	small := w.submit("small", 2, 1, 50_000)
	ends := w.decide(p).Next
	if a, b := small.Jobs[0].Gang()[0].Node, small.Jobs[1].Gang()[0].Node; a == b {
		t.Fatalf("both small jobs run on node %d: this test shows nothing", a)
	}
	w.apps = w.apps[1:]
	gang := w.submit("gang", 1, 2, 3_000)
	gang.Jobs[0].Demand.Min = 2
	gang.Demand.Min = 2
	w.now = ends
	w.decide(p)
	w.left()
	w.decide(p)
	if held(gang) != 2 {
		t.Errorf("the gang holds %d, the small app %d", held(gang), held(small))
	}
}

// outside is a bidder with a fixed answer.
type outside struct {
	tables []bidder.Table
	err    error
}

func (o outside) Bid(*bidder.Offer, []*bidder.AppState) ([]bidder.Table, error) {
	return o.tables, o.err
}

func TestFailingOutsideBiddersLoseTheirBid(t *testing.T) {
	t.Parallel()
	row := bidder.Row{Rho: 1, Gangs: []bidder.Gangs{{Count: 99, Machines: 1, Devices: 8, Type: "gpu"}}}
	for name, tc := range map[string]struct {
		bidder bidder.Bidder
		want   string
	}{
		"no bidder":       {nil, "no bidders"},
		"an error":        {outside{err: errors.New("it hangs")}, "it hangs"},
		"no answer":       {outside{}, "did not answer"},
		"no number":       {outside{tables: []bidder.Table{{Rho: -1, Ideal: 1}}}, "not a number"},
		"more than there": {outside{tables: []bidder.Table{{Rho: 9, Ideal: 1, Rows: []bidder.Row{row}}}}, ""},
	} {
		w, p := newWorld(t, 2), policyWith(t)
		a := w.submit("a", 2, 1, 100)
		a.Spec = &outbidv1.SweepSpec{Agent: &outbidv1.Agent{Plugin: "theirs"}}
		p.UseBidder(tc.bidder)
		plan := w.decide(p)
		b := plan.Auction.GetBidders()[0]
		if (tc.want == "") != (b.GetRefused() == "") || !strings.Contains(b.GetRefused(), tc.want) {
			t.Errorf("%s: refused %q, want %q", name, b.GetRefused(), tc.want)
		}
		if len(b.GetWon()) > 0 || held(a) != 2 {
			t.Errorf("%s: it won %v and holds %d; without a bid it gets what is left over", name, b.GetWon(), held(a))
		}
	}
}

// With one node of 4 and two of 2, the trial that loses most by being spread gets the large node, and both run with all
// their devices.
func TestGangsGoWhereTheyTrainBest(t *testing.T) {
	t.Parallel()
	w, p := newWorld(t, 2, 2, 4), policyWith(t, "f=0", "rounding=keep-one")
	vgg, inception := w.submit("vgg", 1, 4, 10_000), w.submit("inception", 1, 4, 10_000)
	for app, apart := range map[*policy.App]float64{vgg: 2, inception: 1.05} {
		app.Demand = cluster.Demand{Min: 4, Max: 4, MultiNode: true}
		app.Speeds = &cluster.Speeds{S: [4]float64{1, 1, apart, apart}}
		app.Jobs[0].Demand, app.Jobs[0].Speeds = app.Demand, app.Speeds
	}
	w.decide(p)
	if g := vgg.Jobs[0].Gang(); len(g) != 1 || g.Size() != 4 {
		t.Errorf("vgg runs on %v", g)
	}
	if g := inception.Jobs[0].Gang(); len(g) != 2 || g.Size() != 4 {
		t.Errorf("inception runs on %v", g)
	}
}

// BenchmarkRound decides a round in which every one of 256 devices is on an expired lease, and 300 sweeps with up to
// 100 trials want them.
func BenchmarkRound(b *testing.B) {
	devices := make([]int, 32)
	for i := range devices {
		devices[i] = 8
	}
	w, p := newWorld(b, devices...), policyWith(b)
	for i := range 300 {
		w.submit(fmt.Sprint("a", i), 1+i%100, 1+i%4, int64(1000+100*i))
	}
	for b.Loop() {
		b.StopTimer()
		w.left()
		v := w.view()
		b.StartTimer()
		plan := p.Decide(v)
		b.StopTimer()
		for _, g := range plan.Grants {
			g.Job.Gangs, g.Job.Granted, g.Job.TermEnd = []cluster.Gang{g.Gang}, w.now, g.TermEnd
		}
		for _, r := range plan.Renews {
			r.Job.TermEnd = r.TermEnd
		}
		for _, r := range plan.Revokes {
			r.Job.Ending = true
		}
		w.pass(11 * time.Minute)
		b.StartTimer()
	}
}
