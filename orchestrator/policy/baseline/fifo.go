// Package baseline holds well-known simple schedulers, each as defined in its paper.
package baseline

import (
	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/policy"
)

// FIFO grants devices to sweeps in order of arrival, and within a sweep to trials likewise. It skips a trial that does
// not fit, so that no device idles while anything fits it. It does not preempt.
type FIFO struct {
	stateless

	// Workers is how many times its Min a trial gets, over several nodes if it may spread; 0 for as many devices as are
	// free on one node.
	Workers int
}

// Name implements policy.Policy.
func (FIFO) Name() string { return "fifo" }

// Decide implements policy.Policy.
func (f FIFO) Decide(v *policy.View) policy.Plan {
	const round = "first come, first served"
	p := policy.Extend(v)
	if p.Free().FreeDevices() == 0 {
		return p.Plan(round, "")
	}
	var unplaceable policy.Unplaceable
	for j := range v.Line() {
		if p.Free().FreeDevices() == 0 {
			break
		}
		if d := f.demand(j); !unplaceable.Covers(d) && !f.place(p, j, d) {
			unplaceable.Add(d)
		}
	}
	return p.Plan(round, "")
}

// demand returns the trial's demand, with Min raised to the workers that it should get.
func (f FIFO) demand(j *policy.Job) cluster.Demand {
	d := j.Demand
	if least := max(1, d.Min); f.Workers > 0 && d.Max > least {
		d.Min = min(d.Max, f.Workers*least)
	}
	return d
}

// place gives a trial its devices if they are free.
func (f FIFO) place(p *policy.Planner, j *policy.Job, d cluster.Demand) bool {
	const why = "first in line that fits"
	if f.Workers == 0 {
		return p.Place(j, why)
	}
	g, ok := p.Free().Place(d, d.Min, "")
	return ok && p.PlaceOn(j, g, why)
}

// stateless is embedded by policies without state.
type stateless struct{}

// Snapshot implements policy.Policy.
func (stateless) Snapshot() ([]byte, error) { return nil, nil }

// Restore implements policy.Policy.
func (stateless) Restore([]byte) error { return nil }
