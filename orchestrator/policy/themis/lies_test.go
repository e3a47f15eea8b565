package themis_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/outbid-dev/outbid/orchestrator/bidder"
	"github.com/outbid-dev/outbid/orchestrator/lab/policy/ablation"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// mechanism is a policy in which sweeps bid, and the number of tenants that the sweeps have.
type mechanism struct {
	new     func(*policy.Options) policy.Policy
	tenants int
}

// mechanisms returns Themis and the policies built on it. Lies must gain nothing in any of them.
func mechanisms() map[string]mechanism {
	return map[string]mechanism{
		"themis":                  {ablation.Themis, 1},
		"outbid":                  {ablation.Outbid, 1},
		"outbid, two tenants":     {ablation.Outbid, 2},
		"outbid, a tenant an app": {ablation.Outbid, 8},
	}
}

func (m mechanism) make(t *testing.T, pairs ...string) policy.Bidding {
	t.Helper()
	o, err := policy.ParseOptions(pairs)
	if err != nil {
		t.Fatal(err)
	}
	p, bids := m.new(o).(policy.Bidding)
	if err := o.Err(); err != nil || !bids {
		t.Fatal(err)
	}
	return p
}

// submit adds one of several equal sweeps.
func (m mechanism) submit(w *world, i, jobs, most int) *policy.App {
	a := w.submit(fmt.Sprint("app", i), jobs, most, 100_000)
	a.Tenant = fmt.Sprint("t", i%m.tenants)
	return a
}

// A bidder's own T_id has no effect: a table with a tenfold shorter ideal time implies the same finish times, and only
// these count.
func TestABidderCannotMoveItsIdealTime(t *testing.T) {
	t.Parallel()
	for name, m := range mechanisms() {
		for _, options := range [][]string{nil, {"f=0.5"}, {"rank=passed-over", "cover=1", "leftover=keep"}} {
			t.Run(fmt.Sprint(name, options), func(t *testing.T) {
				t.Parallel()
				idealTimeIsNotMoved(t, m, options)
			})
		}
	}
}

func idealTimeIsNotMoved(t *testing.T, m mechanism, options []string) {
	t.Helper()
	shares, all := map[float64]int{}, 0
	for _, scale := range []float64{1, 1.1, 2, 10} {
		w, p := newWorld(t, 8), m.make(t, options...)
		for i := range 8 {
			m.submit(w, i, 4, 1)
		}
		liar := w.apps[3]
		liar.Spec = &outbidv1.SweepSpec{Agent: &outbidv1.Agent{Plugin: "theirs"}}
		p.UseBidder(scaled{scale})
		for range 60 {
			plan := w.decide(p)
			w.left()
			w.decide(p)
			shares[scale] += held(liar)
			for _, a := range w.apps {
				all += held(a)
			}
			w.now = plan.Next
		}
	}
	for scale, n := range shares {
		if n != shares[1] {
			t.Errorf("%v: it held %d device-leases in 60 by an ideal time that is %v times too short, and %d by the true one", options,
				n, scale, shares[1])
		}
	}
	if fair := float64(all) / 4 / 8; len(options) < 2 && math.Abs(float64(shares[1])/fair-1) > .25 {
		t.Errorf("%v: one of eight equal apps held %d device-leases, want about %.0f", options, shares[1], fair)
	}
}

// Of eight equal sweeps, one that over-reports the value of devices on one node, or on several, does not end up with
// more devices.
func TestOverReportingGainsNothing(t *testing.T) {
	t.Parallel()
	for name, m := range mechanisms() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nothingIsGained(t, m)
		})
	}
}

func nothingIsGained(t *testing.T, m mechanism) {
	t.Helper()
	for _, lie := range []float64{.1, .34, .6, 1} {
		var got [2]int
		for k, factor := range []float64{1, 1 + lie} {
			for seed := range 5 {
				w, p := newWorld(t, 8, 2, 2, 2, 2), m.make(t, fmt.Sprint("seed=", seed))
				for i := range 8 {
					a := m.submit(w, i, 1, 8)
					a.Demand.MultiNode, a.Jobs[0].Demand.MultiNode = true, true
					a.Speeds.S = [4]float64{1, 1, 1.5, 2}
				}
				liar := w.apps[3]
				liar.Spec = &outbidv1.SweepSpec{Agent: &outbidv1.Agent{Plugin: "theirs"}}
				p.UseBidder(slowed{factor})
				for range 60 {
					plan := w.decide(p)
					w.left()
					w.decide(p)
					got[k] += held(liar)
					w.now = plan.Next
				}
			}
		}
		if float64(got[1]) > 1.1*float64(got[0]) {
			t.Errorf("over 300 leases it held %d devices by the truth, and %d when it said that machines apart were %.0f %% slower than they are",
				got[0], got[1], 100*lie)
		}
	}
}

// slowed is a bidder that over-reports rho for devices on several nodes.
type slowed struct{ by float64 }

func (s slowed) Bid(o *bidder.Offer, apps []*bidder.AppState) ([]bidder.Table, error) {
	tables, err := bidder.BuiltIn{}.Bid(o, apps)
	for i := range tables {
		for k := range tables[i].Rows {
			for _, g := range tables[i].Rows[k].Gangs {
				if g.Machines > 1 {
					tables[i].Rows[k].Rho *= s.by
					break
				}
			}
		}
	}
	return tables, err
}

// scaled is a bidder that divides T_id in the built-in bidder's tables.
type scaled struct{ by float64 }

func (s scaled) Bid(o *bidder.Offer, apps []*bidder.AppState) ([]bidder.Table, error) {
	tables, err := bidder.BuiltIn{}.Bid(o, apps)
	for i := range tables {
		t := &tables[i]
		t.Ideal /= s.by
		t.Rho *= s.by
		for k := range t.Rows {
			t.Rows[k].Rho *= s.by
		}
	}
	return tables, err
}
