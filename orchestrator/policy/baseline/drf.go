package baseline

import (
	"fmt"

	"github.com/outbid-dev/outbid/orchestrator/policy"
)

// DRF is dominant resource fairness by progressive filling (Ghodsi et al., NSDI 2011, algorithm 1): the next grant goes
// to the sweep with the smallest dominant share of devices, CPU cores and memory. Nothing is preempted, so that shares
// even out as trials leave their devices.
type DRF struct{ stateless }

// Name implements policy.Policy.
func (DRF) Name() string { return "drf" }

// Decide implements policy.Policy.
func (DRF) Decide(v *policy.View) policy.Plan {
	total := totals(v)
	held := make([]amounts, len(v.Apps))
	queues := make([][]int, len(v.Apps))
	for i := range v.Jobs {
		if j := &v.Jobs[i]; j.Running() {
			held[j.App].add(amounts{float64(len(j.Devices)), j.Demand.CPUs, float64(j.Demand.Memory)})
		}
	}
	for _, job := range waitingJobs(v) {
		queues[v.Jobs[job].App] = append(queues[v.Jobs[job].App], job)
	}
	plan := policy.Plan{Reason: "the smallest dominant share first"}
	free := v.Capacity()
	for free.FreeDevices() > 0 {
		app := poorest(held, queues, total)
		if app < 0 {
			break
		}
		job := queues[app][0]
		queues[app] = queues[app][1:]
		j := &v.Jobs[job]
		place, ok := free.Place(j.Demand)
		if !ok {
			continue
		}
		share := held[app].dominant(total)
		free.Take(place, j.Demand)
		held[app].add(amounts{float64(len(place.Devices)), j.Demand.CPUs, float64(j.Demand.Memory)})
		plan.Grants = append(plan.Grants, policy.Grant{
			Job: job, Node: place.Node, Devices: place.Devices,
			Reason: fmt.Sprintf("its sweep held the smallest dominant share, %.3g", share),
		})
	}
	return plan
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

// poorest is the app with the smallest dominant share that still wants devices, the earliest of equals; -1 for none.
func poorest(held []amounts, queues [][]int, total amounts) int {
	app, least := -1, 0.0
	for i := range held {
		if len(queues[i]) == 0 {
			continue
		}
		if share := held[i].dominant(total); app < 0 || share < least {
			app, least = i, share
		}
	}
	return app
}
