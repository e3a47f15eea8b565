package outbid_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/lab/policy/ablation"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/policy/outbid"
	"github.com/outbid-dev/outbid/orchestrator/policy/policytest"
	"github.com/outbid-dev/outbid/orchestrator/policy/stagetest"
	"github.com/outbid-dev/outbid/orchestrator/policy/themis"
)

func create(t *testing.T, pairs ...string) policy.Policy {
	t.Helper()
	o, err := policy.ParseOptions(pairs)
	if err != nil {
		t.Fatal(err)
	}
	p := ablation.Outbid(o)
	if err := o.Err(); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestOutbidKeepsTheRules(t *testing.T) {
	t.Parallel()
	policytest.Run(t, func() policy.Policy { return outbid.New(policy.NewOptions(nil)) })
}

// drawn returns nodes of one or two types, and sweeps of some tenants, determined by the seed.
func drawn(seed uint64, slow string, tenants int) *stagetest.Stage {
	draw := rand.New(rand.NewPCG(seed, 1))
	nodes := append(stagetest.Nodes("v100", 2, 4, 2), stagetest.Nodes(slow, 3, 2, 2)...)
	for i := range nodes {
		nodes[i].Name = fmt.Sprint(nodes[i].Name, i)
	}
	slices.SortFunc(nodes, func(a, b cluster.Node) int { return strings.Compare(a.Name, b.Name) })
	s := stagetest.New(nodes...)
	s.Stop = 5 * time.Second
	for i := range 6 + draw.IntN(6) {
		a := s.App(fmt.Sprint("app", i), fmt.Sprint("t", draw.IntN(tenants)))
		a.Speeds = &cluster.Speeds{Measured: []cluster.Speed{{Type: "k80", Devices: 1, Rate: 1}, {Type: "v100", Devices: 1, Rate: 2 + 4*draw.Float64()}}}
		most := 1 << draw.IntN(3)
		a.Demand, a.Tuner = cluster.Demand{Min: 1, Max: most}, "random"
		for range 1 + draw.IntN(8) {
			s.Job(a, 1, most, 600+draw.Int64N(20_000))
		}
	}
	return s
}

// told formats a whole plan.
func told(p policy.Plan) string {
	var text strings.Builder
	for _, g := range p.Grants {
		fmt.Fprintln(&text, "grant", g.Job.Name(), g.Gang, g.TermEnd, g.Reason)
	}
	for _, r := range p.Renews {
		fmt.Fprintln(&text, "renew", r.Job.Name(), r.TermEnd, r.Reason)
	}
	for _, r := range p.Revokes {
		fmt.Fprintln(&text, "revoke", r.Job.Name(), r.Reason)
	}
	fmt.Fprintln(&text, p.Reason, p.Next, p.Auction)
	return text.String()
}

// recorder records the plans of a policy.
type recorder struct {
	policy.Policy

	said []string
}

func (r *recorder) Decide(v *policy.View) policy.Plan {
	plan := r.Policy.Decide(v)
	r.said = append(r.said, told(plan))
	return plan
}

// With one sweep, no utility and no trial that may be forked, every decision is exactly Themis's; with sweeps=none also
// with several sweeps of one tenant. On unlike devices that needs types=any, because leftovers are otherwise assigned by
// measured rates.
func TestOneTenantIsThemis(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		slow, options := "v100", []string{"sweeps=none"}
		if seed%2 == 1 {
			slow, options = "k80", []string{"sweeps=none", "types=any"}
		}
		both := []*recorder{{Policy: create(t, options...)}, {Policy: themis.New(policy.NewOptions(nil))}}
		for _, r := range both {
			drawn(seed, slow, 1).Run(t, r, 6*time.Hour)
		}
		if !slices.Equal(both[0].said, both[1].said) {
			for i := range both[0].said {
				if i >= len(both[1].said) || both[0].said[i] != both[1].said[i] {
					t.Fatalf("seed %d, decision %d: outbid says\n%s\nand Themis\n%s", seed, i, both[0].said[i], both[1].said[min(i, len(both[1].said)-1)])
				}
			}
			t.Fatalf("seed %d: %d decisions, Themis makes %d", seed, len(both[0].said), len(both[1].said))
		}
		if len(both[0].said) < 20 {
			t.Errorf("seed %d: only %d decisions were compared", seed, len(both[0].said))
		}
	}
}

// share returns a tenant's part of all device time since before was recorded.
func share(s *stagetest.Stage, tenant string, before map[string]float64) float64 {
	all := 0.0
	for name, held := range s.Held {
		all += held - before[name]
	}
	return (s.Held[tenant] - before[tenant]) / all
}

func crowd(s *stagetest.Stage, tenant string, apps, jobs, size int) {
	for i := range apps {
		a := s.App(fmt.Sprint(tenant, i, s.Now.Unix()), tenant)
		a.Speeds, a.Demand, a.Tuner = &cluster.Speeds{}, cluster.Demand{Min: size, Max: size}, "random"
		for range jobs {
			s.Job(a, size, size, 1e9)
		}
	}
}

// Tenants get device time by weight, however many sweeps each has and however large their trials are.
func TestTenantsShareByWeight(t *testing.T) {
	t.Parallel()
	s := stagetest.New(stagetest.Nodes("v100", 4, 4, 4)...)
	crowd(s, "few", 1, 16, 1)
	crowd(s, "many", 20, 4, 2)
	s.Run(t, create(t), 48*time.Hour)
	if got := share(s, "few", nil); got < .45 || got > .55 {
		t.Errorf("the tenant of one app held %.3f of the devices, want a half", got)
	}
	if got := share(s, "few", nil); got > .45 {
		other := stagetest.New(stagetest.Nodes("v100", 4, 4, 4)...)
		crowd(other, "few", 1, 16, 1)
		crowd(other, "many", 20, 4, 2)
		other.Run(t, create(t, "tenants=none"), 48*time.Hour)
		if got := share(other, "few", nil); got > .3 {
			t.Errorf("without tenants' shares it held %.3f, want the share of one sweep of 21", got)
		}
	}
}

// Within its tenant's part every sweep bids; with asked=worst, the worst fifth of each tenant's sweeps, as in Themis.
func TestAllSweepsOfATenantAreAsked(t *testing.T) {
	t.Parallel()
	for options, want := range map[string]int{"asked=all": 20, "asked=worst": 4} {
		s := stagetest.New(stagetest.Nodes("v100", 4, 4, 4)...)
		crowd(s, "one", 10, 2, 1)
		crowd(s, "other", 10, 2, 1)
		asked := 0
		for _, b := range create(t, options).Decide(s.View()).Auction.GetBidders() {
			if b.GetAsked() {
				asked++
			}
		}
		if asked != want {
			t.Errorf("%s: %d of 20 were asked, want %d", options, asked, want)
		}
	}
}

// A tenant that has lent devices gets them back, except for the floor that others keep.
func TestLentDevicesReturn(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		floor string
		added bool
		want  float64
	}{{"0.5", false, .75}, {"0", false, 1}, {"1", false, .5}, {"0.5", true, .75}} {
		s := stagetest.New(stagetest.Nodes("v100", 4, 4, 4)...)
		p := create(t, "floor="+c.floor)
		crowd(s, "borrows", 4, 8, 1)
		if c.added { // a configured tenant lends even if it never had a trial
			s.Tenants = []policy.Tenant{{Name: "borrows", Weight: 1}, {Name: "lends", Weight: 1}}
		} else {
			s.Job(s.App("once", "lends"), 1, 1, 60)
		}
		s.Run(t, p, 12*time.Hour)
		if got := share(s, "borrows", nil); got < .99 {
			t.Errorf("floor %s: the borrower held %.3f while no other tenant wanted anything", c.floor, got)
		}
		before := map[string]float64{}
		for name, held := range s.Held {
			before[name] = held
		}
		crowd(s, "lends", 4, 8, 1)
		s.Run(t, p, 4*time.Hour)
		if got := share(s, "lends", before); got < c.want-.06 || got > c.want+.02 {
			t.Errorf("floor %s, added %v: the lender held %.3f of the devices when it came back, want %.2f", c.floor, c.added, got, c.want)
		}
	}
}

// Devices that would idle train forks of a trial that may be forked, in slots shorter than a lease; after that they are
// on offer again.
func TestForksHaveShortSlots(t *testing.T) {
	t.Parallel()
	for slot, want := range map[string]time.Duration{"90s": 90 * time.Second, "1h": 10 * time.Minute} {
		s := stagetest.New(stagetest.Nodes("v100", 3, 1, 1)...)
		for i, forks := range []int{3, 0} {
			a := s.App(fmt.Sprint("app", i), "t")
			a.Speeds, a.Demand, a.Tuner, a.Forks = &cluster.Speeds{}, cluster.Demand{Min: 1, Max: 1}, "random", forks
			s.Job(a, 1, 1, 100_000).Forks = forks
		}
		plan := create(t, "slot="+slot).Decide(s.View())
		forks := 0
		for _, g := range plan.Grants {
			long := 10 * time.Minute
			if g.Steps > 0 {
				long, forks = want, forks+1
			}
			if off := g.TermEnd.Sub(s.Now) - long; off < -5*time.Minute || off > 5*time.Minute || long < 10*time.Minute && off != 0 {
				t.Errorf("slot %s: %v, of %d steps, ends after %s, want about %s", slot, g.Job.Name(), g.Steps, g.TermEnd.Sub(s.Now), long)
			}
		}
		if forks != 2 || len(plan.Grants) != 3 {
			t.Errorf("slot %s: %d grants, %d of them forks: want two forks and the other trial", slot, len(plan.Grants), forks)
		}
	}
}

// When its lease has expired, a trial moves to a free device on which it was measured to be faster, if that saves more
// than a restart costs; a waiting trial gets the fastest that is left.
func TestLeftoversGoByMeasuredRates(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		options []string
		want    string
	}{
		"it moves":            {nil, "v100"},
		"a start costs a day": {[]string{"restart=24h", "sweeps=none"}, "k80"},
		"any will do":         {[]string{"types=any", "sweeps=none"}, "k80"},
	} {
		s := stagetest.New(append(stagetest.Nodes("k80", 2, 1, 1), stagetest.Nodes("v100", 2, 1, 1)...)...)
		s.Stop = time.Second
		var jobs []*policy.Job
		// The first was submitted earlier, so it is worse off and bids; the other gets leftovers.
		for i, steps := range []int64{100_000, 100_000} {
			a := s.App(fmt.Sprint("app", i), "t")
			a.Submitted = s.Now.Add(time.Duration(i-1) * time.Hour)
			a.Speeds = &cluster.Speeds{Measured: []cluster.Speed{{Type: "k80", Devices: 1, Rate: 1}, {Type: "v100", Devices: 1, Rate: 4}}}
			a.Demand, a.Tuner, a.TotalSteps = cluster.Demand{Min: 1, Max: 1}, "random", steps
			j := s.Job(a, 1, 1, steps)
			j.Gangs, j.Granted, j.Reported, j.Queued = []cluster.Gang{{{Node: i, Devices: []int{0}}}}, s.Now, s.Now, time.Time{}
			j.TermEnd = s.Now.Add(10 * time.Minute)
			jobs = append(jobs, j)
		}
		s.Run(t, create(t, c.options...), 10*time.Minute+5*time.Second)
		if g := jobs[1].Gang(); len(g) == 0 || s.Nodes[g[0].Node].Devices[0].Type != c.want {
			t.Errorf("%s: it runs on %v, want %s", name, g, c.want)
		}
	}
}

// With three tenants of four equal sweeps each, no sweep ends later than alone on a twelfth of the cluster, by more
// than a lease; with tenants of one, two and five sweeps, no sweep ends later than on its part of its tenant's third.
func TestSharingIsNoLossAmongTenants(t *testing.T) {
	t.Parallel()
	for _, sweeps := range [][]int{{4, 4, 4}, {1, 2, 5}} {
		s := stagetest.New(stagetest.Nodes("v100", 6, 4, 4)...)
		s.Stop = 5 * time.Second
		ideal := map[string]time.Duration{}
		const jobs = 8 // of an hour each: n sweeps of a tenant take n hours on its eight devices
		for i, n := range sweeps {
			for k := range n {
				a := s.App(fmt.Sprint("sweep", i, k), fmt.Sprint("tenant", i))
				a.Speeds, a.Demand, a.Tuner, a.TotalSteps = &cluster.Speeds{}, cluster.Demand{Min: 1, Max: 1}, "random", 3600
				for range jobs {
					s.Job(a, 1, 1, 3600)
				}
				ideal[a.ID] = time.Duration(n) * time.Hour
			}
		}
		s.Run(t, create(t), 48*time.Hour)
		if len(s.Ended) != jobs*len(ideal) {
			t.Errorf("%v: %d jobs ended", sweeps, len(s.Ended))
		}
		for job, after := range s.Ended {
			if late := after - ideal[job.App]; late > 10*time.Minute {
				t.Errorf("%v: %v ended after %s, and on its own part all jobs of its sweep would have after %s", sweeps, job, after, ideal[job.App])
			}
		}
	}
}
