package policytest

import (
	"slices"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/policy"
)

// failer is the part of a test that Check needs.
type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

// Check fails if the plan breaks a rule in the view: grants go to waiting jobs and fit what is free now; gangs are
// whole, on one node and of one type unless the demand allows otherwise, and respect types, trust, draining, cores and
// memory; only running jobs are renewed or revoked, none twice; no tenant is granted more than its quota leaves; terms
// and the next round are in the future; decisions have reasons.
func Check(t failer, v *policy.View, plan policy.Plan) {
	t.Helper()
	touched := map[*policy.Job]bool{}
	once := func(j *policy.Job) {
		t.Helper()
		if j == nil || !known(v, j) {
			t.Fatalf("a decision about a job that is not in the view: %+v", j)
		}
		if touched[j] {
			t.Fatalf("two decisions about job %v", j.Name())
		}
		touched[j] = true
	}
	for _, r := range plan.Revokes {
		once(r.Job)
		if !r.Job.Running() || r.Job.Ending || r.Reason == "" {
			t.Fatalf("bad revoke of %v, which holds %v, ending: %v: %q", r.Job.Name(), r.Job.Gang(), r.Job.Ending, r.Reason)
		}
	}
	for _, r := range plan.Renews {
		once(r.Job)
		if !r.Job.Running() || r.Job.Ending || r.Reason == "" || !r.TermEnd.After(v.Now) {
			t.Fatalf("bad renewal of %v, which holds %v, ending: %v, until %v: %q",
				r.Job.Name(), r.Job.Gang(), r.Job.Ending, r.TermEnd, r.Reason)
		}
	}
	try := v.Statement()
	defer try.Discard()
	for _, g := range plan.Grants {
		once(g.Job)
		checkGrant(t, v, g)
		v.Free.Take(g.Gang, g.Job.Demand)
	}
	checkQuotas(t, v, plan)
	if !plan.Next.IsZero() && !plan.Next.After(v.Now) {
		t.Fatalf("the next round at %v is not after now, %v", plan.Next, v.Now)
	}
	if len(touched) > 0 && plan.Reason == "" {
		t.Fatalf("a round that decides something gives no reason")
	}
}

// checkQuotas fails if the grants would make a tenant hold more than its quota allows.
func checkQuotas(t failer, v *policy.View, plan policy.Plan) {
	t.Helper()
	for _, tenant := range v.Tenants {
		held, granted := v.HeldBy(tenant.Name), map[string]int{}
		for _, g := range plan.Grants {
			if g.Job.App.Tenant != tenant.Name {
				continue
			}
			for _, p := range g.Gang {
				for _, d := range p.Devices {
					granted[v.Nodes[p.Node].Devices[d].Type]++
				}
			}
		}
		all := 0
		for _, n := range held {
			all += n
		}
		for kind, n := range granted {
			all += n
			if most, named := tenant.Quota.Of[kind]; named && held[kind]+n > most {
				t.Fatalf("tenant %s holds %d of type %s and is granted %d, its quota is %d", tenant.Name, held[kind], kind, n, most)
			}
		}
		if len(granted) > 0 && tenant.Quota.All >= 0 && all > tenant.Quota.All {
			t.Fatalf("tenant %s is granted %v beside %v, its quota is %d of all types", tenant.Name, granted, held, tenant.Quota.All)
		}
	}
}

func known(v *policy.View, j *policy.Job) bool {
	return slices.Contains(v.Apps, j.App) && slices.Contains(j.App.Jobs, j)
}

func checkGrant(t failer, v *policy.View, g policy.Grant) {
	t.Helper()
	j, name := g.Job, g.Job.Name()
	switch n := g.Gang.Size(); {
	case !j.Waiting():
		t.Fatalf("%v is granted %v, but holds %v, paused: %v", name, g.Gang, j.Gang(), j.App.Paused)
	case n < j.Demand.Min || n > j.Demand.Max:
		t.Fatalf("%v is granted %d devices, it wants %d to %d", name, n, j.Demand.Min, j.Demand.Max)
	case len(g.Gang) > 1 && !j.Demand.MultiNode:
		t.Fatalf("%v is granted %v, but must be on one node", name, g.Gang)
	case g.Reason == "":
		t.Fatalf("%v is granted %v without a reason", name, g.Gang)
	case !g.TermEnd.IsZero() && !g.TermEnd.After(v.Now):
		t.Fatalf("%v is granted a term until %v, now is %v", name, g.TermEnd, v.Now)
	}
	seen := map[int]bool{}
	for _, p := range g.Gang {
		if p.Node < 0 || p.Node >= len(v.Nodes) || seen[p.Node] || len(p.Devices) == 0 {
			t.Fatalf("%v is granted %v: a node that is not there, comes twice or gives nothing", name, g.Gang)
		}
		seen[p.Node] = true
		checkPlace(t, v, name, p, j.Demand)
	}
	if !j.Demand.Mixed && cluster.TypeOf(v.Nodes, g.Gang) == "" {
		t.Fatalf("%v is granted devices of several types: %v", name, g.Gang)
	}
	if !v.Free.Fits(g.Gang, j.Demand) {
		t.Fatalf("%v is granted %v, which is not free or short of cores or memory, for %+v", name, g.Gang, j.Demand)
	}
}

func checkPlace(t failer, v *policy.View, name policy.JobName, p cluster.Place, d cluster.Demand) {
	t.Helper()
	n := &v.Nodes[p.Node]
	if n.Draining || d.NeedsTrust && !n.Trusted {
		t.Fatalf("%v is granted devices of %s: draining %v, trusted %v", name, n.Name, n.Draining, n.Trusted)
	}
	for i, dev := range p.Devices {
		if dev < 0 || dev >= len(n.Devices) || i > 0 && dev <= p.Devices[i-1] {
			t.Fatalf("%v is granted devices %v of %s", name, p.Devices, n.Name)
		}
		if !d.Accepts(n.Devices[dev].Type) {
			t.Fatalf("%v is granted a %s, which it does not accept", name, n.Devices[dev].Type)
		}
	}
}

// earlierFuture returns the earlier of two times that are in the future, where the zero time means never.
func earlierFuture(now, a, b time.Time) time.Time {
	switch {
	case !a.After(now):
		return b
	case !b.After(now) || a.Before(b):
		return a
	default:
		return b
	}
}
