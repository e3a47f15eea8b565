package themis

import (
	"math"
	"testing"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/bidder"
	"github.com/outbid-dev/outbid/orchestrator/policy"
)

// since returns a view at second 1,000, a sweep submitted at second 900, and one other sweep throughout.
func since() (*policy.View, *policy.App) {
	a := &policy.App{Submitted: time.Unix(900, 0), Weight: 1, DeviceSeconds: 40}
	return &policy.View{Now: time.Unix(1000, 0), Apps: []*policy.App{a, {}}, AppSeconds: 300, MeanWeight: func(string) float64 { return 1 }}, a
}

// Between tables, a sweep's remaining work follows its device-seconds, its rho the devices that it would have, and its
// ideal time the number of sweeps and its share.
func TestMemoryFollowsProgress(t *testing.T) {
	t.Parallel()
	v, a := since() // N_avg is (300-0)/100 = 3
	m := &memory{Ideal: 50, Work: 120, Had: 10, Apps: 2, Least: 2, Shortest: 60, Most: 4, Chain: 2}
	for name, tc := range map[string]struct{ got, want float64 }{
		"left":                           {m.workLeft(v, a), 120 - (40 - 10)},
		"ideal time of more apps":        {m.ideal(v, a), 50 * 3 / 2.},
		"rho with three devices":         {m.rhoWith(v, a, 3), (100 + 90/3.) / 75},
		"rho with none":                  {m.rho(v, a), (100 + waiting*90/2.) / 75},
		"shortest":                       {m.shortest(v, a), 60 * 90 / 120.},
		"passed over, keeping none":      {m.passedOver(v, a, 0, 20), (100 + 20 + 45) / (75 * 2.)},
		"passed over, keeping two":       {m.passedOver(v, a, 2, 20), (100 + 20 + 45 - 20*2/4.) / (75 * 2.)},
		"passed over, and done with it":  {m.passedOver(v, a, 4, 50), (100 + 50) / (75 * 2.)},
		"chain of an app of no weight":   {m.initialChain(&bidder.AppState{}), 60 * 2 / 50.},
		"chain of one of twice that":     {m.initialChain(&bidder.AppState{Weight: 2}), 60 * 2 / (50 * 2.)},
		"chain of one that is not short": {(&memory{Ideal: 500, Apps: 2, Shortest: 60}).initialChain(&bidder.AppState{Weight: 1}), 1},
	} {
		if math.Abs(tc.got-tc.want) > 1e-9 {
			t.Errorf("%s is %g, want %g", name, tc.got, tc.want)
		}
	}
	a.DeviceSeconds = 1000
	if left := m.workLeft(v, a); left != 0 {
		t.Errorf("%g device-seconds are left of more than all", left)
	}
	if m.Work = 0; m.shortest(v, a) != 60 {
		t.Errorf("without work it has %g s to go", m.shortest(v, a))
	}
	a.Weight, m.Share = 2, 1 // with twice its share at the time of the table, its ideal time is half
	if got := m.ideal(v, a); math.Abs(got-75/2.) > 1e-9 {
		t.Errorf("with twice the share its ideal time is %g", got)
	}
}

// Attained device-seconds include the current leases.
func TestAttainedIncludesCurrentLeases(t *testing.T) {
	t.Parallel()
	v, a := since()
	s, jobs := stage(3, time.Minute, time.Minute)
	jobs[0].Granted, jobs[1].Granted = v.Now.Add(-5*time.Second), v.Now.Add(-7*time.Second)
	jobs[0].DeviceSeconds = 11
	a.Jobs = s.View().Apps[0].Jobs
	if got := attained(v, a); got != 40+5+7 {
		t.Errorf("it has had %g device-seconds", got)
	}
	if n := devicesHeld(a); n != 2 {
		t.Errorf("it holds %d devices", n)
	}
}

// The memory of a table holds the remaining device-seconds, computed from the devices that the rho assumes, or from the
// smallest gang, slowed down, if it assumes none.
func TestRememberTable(t *testing.T) {
	t.Parallel()
	v, a := since()
	a.Demand.Min = 2
	st := &bidder.AppState{Weight: 3}
	seen := &memory{IdleSince: time.Unix(950, 0), HeldAt: time.Unix(940, 0), Chain: 7}
	for name, tc := range map[string]struct {
		told tableReport
		seen *memory
		set  settings
		want memory
	}{
		"with devices": {tableReport{5, 50, 4}, seen, settings{}, memory{
			Ideal: 50, Work: (250 - 100) * 4, Had: 40, Apps: 3, Share: 3, Least: 2, IdleSince: seen.IdleSince, HeldAt: seen.HeldAt,
		}},
		"with none": {tableReport{5, 50, 0}, nil, settings{Variant: Variant{OwnWeights: true}}, memory{
			Ideal: 50, Work: (250 - 100) * 2 / 4., Had: 40, Apps: 3, Least: 2, IdleSince: a.Submitted,
		}},
		"late already": {tableReport{1, 50, 4}, nil, settings{Variant: Variant{OwnWeights: true}}, memory{Ideal: 50, Had: 40, Apps: 3, Least: 2, IdleSince: a.Submitted}},
		"its chain is of when it was first seen": {tableReport{5, 50, 4}, seen, settings{Variant: Variant{OwnWeights: true, Rank: passedOver}}, memory{
			Ideal: 50, Work: 600, Had: 40, Apps: 3, Least: 2, IdleSince: seen.IdleSince, HeldAt: seen.HeldAt,
			Shortest: 1, Most: 1, Chain: 7,
		}},
	} {
		if got := *remember(v, a, tc.seen, st, tc.told, &tc.set); got != tc.want {
			t.Errorf("%s: remembers %+v, want %+v", name, got, tc.want)
		}
	}
}
