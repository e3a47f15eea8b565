package baseline

import (
	"fmt"

	"github.com/outbid-dev/outbid/orchestrator/policy"
)

// DRF is dominant resource fairness by progressive filling (Ghodsi et al., NSDI 2011, algorithm 1): the next grant goes
// to the tenant with the smallest dominant share of devices, CPU cores and memory, and within the tenant to the sweep
// with the smallest, so that ten sweeps of one team weigh no more than one of another. Nothing is preempted: shares even
// out as trials leave their devices.
type DRF struct{ stateless }

// Name implements policy.Policy.
func (DRF) Name() string { return "drf" }

// Decide implements policy.Policy.
func (DRF) Decide(v *policy.View) policy.Plan {
	f := newFilling(v)
	plan := policy.Plan{Reason: "the smallest dominant share first"}
	free := v.Capacity()
	for free.FreeDevices() > 0 {
		app := f.poorest()
		if app < 0 {
			break
		}
		job := f.queues[app][0]
		f.queues[app] = f.queues[app][1:]
		j := &v.Jobs[job]
		place, ok := free.Place(j.Demand)
		if !ok {
			continue
		}
		reason := fmt.Sprintf("tenant %s held the smallest dominant share, %.3g, and its sweep %.3g of it",
			v.Apps[app].Tenant, f.tenants[v.Apps[app].Tenant].dominant(f.total), f.apps[app].dominant(f.total))
		free.Take(place, j.Demand)
		f.hold(app, len(place.Devices), j)
		plan.Grants = append(plan.Grants, policy.Grant{Job: job, Node: place.Node, Devices: place.Devices, Reason: reason})
	}
	return plan
}

// filling is how far progressive filling has come: what tenants and sweeps hold, and which jobs still wait.
type filling struct {
	view    *policy.View
	total   amounts
	tenants map[string]*amounts
	apps    []amounts
	queues  [][]int
}

func newFilling(v *policy.View) *filling {
	f := &filling{
		view: v, total: totals(v), tenants: map[string]*amounts{}, apps: make([]amounts, len(v.Apps)),
		queues: make([][]int, len(v.Apps)),
	}
	for i := range v.Apps {
		f.tenants[v.Apps[i].Tenant] = &amounts{}
	}
	for i := range v.Jobs {
		if j := &v.Jobs[i]; j.Running() {
			f.hold(j.App, len(j.Devices), j)
		}
	}
	for _, job := range waitingJobs(v) {
		f.queues[v.Jobs[job].App] = append(f.queues[v.Jobs[job].App], job)
	}
	return f
}

func (f *filling) hold(app, devices int, j *policy.Job) {
	more := amounts{float64(devices), j.Demand.CPUs, float64(j.Demand.Memory)}
	f.apps[app].add(more)
	f.tenants[f.view.Apps[app].Tenant].add(more)
}

// poorest is the sweep that comes next, the earliest of equals; -1 if none wants anything.
func (f *filling) poorest() int {
	best := -1
	var bestTenant, bestApp float64
	for i := range f.apps {
		if len(f.queues[i]) == 0 {
			continue
		}
		tenant := f.tenants[f.view.Apps[i].Tenant].dominant(f.total)
		app := f.apps[i].dominant(f.total)
		if best < 0 || tenant < bestTenant || tenant == bestTenant && app < bestApp {
			best, bestTenant, bestApp = i, tenant, app
		}
	}
	return best
}

// amounts of devices, CPU cores and bytes of memory.
type amounts [3]float64

func (a *amounts) add(b amounts) {
	for i := range a {
		a[i] += b[i]
	}
}

// dominant is the largest share of any resource.
func (a amounts) dominant(total amounts) float64 {
	share := 0.0
	for i := range a {
		if total[i] > 0 {
			share = max(share, a[i]/total[i])
		}
	}
	return share
}

func totals(v *policy.View) amounts {
	var total amounts
	for i := range v.Nodes {
		n := &v.Nodes[i]
		total.add(amounts{float64(len(n.Devices)), n.CPUs, float64(n.Memory)})
	}
	return total
}
