// Package hived is the scheduler of Zhao et al., "HiveD: Sharing a GPU Cluster for Deep Learning with Guarantees" (OSDI
// 2020): virtual clusters of cells, and buddy allocation.
//
// Every tenant has a virtual cluster (VC): cells of each type of device, as if they were a separate cluster. A job that
// fits into the free part of its VC is guaranteed: it gets the tightest cell that takes its gang, and a node's cell is
// split only if no split one has room (buddy allocation, section 3.3). A cell is bound to a physical node only while a
// guaranteed job is in it, to the node on which the fewest jobs must make room. Other jobs run on idle devices,
// whichever tenant these are promised to, as opportunistic jobs: they are stopped, after saving, when a guaranteed job
// needs their devices. A guaranteed job is never stopped. There are at most as many cells as nodes of a class, so a job
// that fits into a VC fits into the cluster (the paper's sharing safety).
//
// Dynamic quota, as in ASTRAEA's evaluation, means that jobs beyond their tenant's quota run in other VCs with room,
// which opportunistic jobs do; spot=false disables that. Quotas follow the tenants' weights, or the option "quota"; the
// tenants are those that were configured and those that have had jobs.
//
// Simplifications: the levels are device, slot and node; a gang over several nodes takes cells of several nodes, in one
// rack if possible. Jobs within a VC are served in order of arrival, skipping those that do not fit. The remainder of a
// quota beyond whole nodes is promised in devices that share a node with other tenants', rounded down. Nodes with
// devices of several types are promised to no tenant and serve opportunistic jobs. An opportunistic job stays one until
// it is stopped or ends.
package hived

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/policy"
)

// Policy is HiveD.
type Policy struct {
	quota  map[string]float64
	spot   bool
	s      memory
	layout *layout
}

// memory is the policy's state.
type memory struct {
	// Tenants that had jobs, sorted.
	Tenants []string
	// Bound is the node of each bound cell, and Jobs the holds of each guaranteed job.
	Bound map[string]string
	Jobs  map[policy.JobName][]hold
}

// hold is how many devices of a cell a guaranteed job has.
type hold struct {
	Cell string
	N    int
}

// New makes the policy from its options.
func New(o *policy.Options) policy.Policy {
	p := &Policy{
		quota: o.Weights("quota", "relative parts of the cluster promised to tenants, such as vision=2,speech=1; others have their tenant's weight"),
		spot:  o.Bool("spot", true, "run trials beyond their tenant's quota on idle devices until the owner needs these"),
	}
	p.reset()
	return p
}

func (p *Policy) reset() {
	p.s = memory{Bound: map[string]string{}, Jobs: map[policy.JobName][]hold{}}
	p.layout = nil
}

// Name implements policy.Policy.
func (p *Policy) Name() string { return "hived" }

// Snapshot implements policy.Policy.
func (p *Policy) Snapshot() ([]byte, error) { return json.Marshal(p.s) }

// Restore implements policy.Policy.
func (p *Policy) Restore(b []byte) error {
	p.reset()
	if err := json.Unmarshal(b, &p.s); err != nil {
		return fmt.Errorf("hived: snapshot: %w", err)
	}
	return nil
}

// Decide implements policy.Policy.
func (p *Policy) Decide(v *policy.View) policy.Plan {
	jobs := v.Jobs()
	if !slices.ContainsFunc(jobs, (*policy.Job).Waiting) {
		return policy.Plan{Reason: "nobody waits"}
	}
	p.updateTenants(v)
	guaranteed := p.recallGuaranteed(v, jobs)
	r := newRound(v, p, jobs, guaranteed)
	var rest []*policy.Job
	for _, j := range jobs {
		if guaranteed[j] && j.Waiting() && !r.place(j, p.s.Jobs[j.Name()]) {
			p.withdrawGuarantee(j)
			delete(guaranteed, j)
		}
	}
	tooLarge := map[string]int{} // by tenant, of jobs that accept any type
	for _, j := range v.Waiting() {
		if guaranteed[j] {
			continue
		}
		anyType := len(j.Demand.Types) == 0 && len(j.Demand.Exclude) == 0 && !j.Demand.MultiNode
		limit, known := tooLarge[j.App.Tenant]
		if (!anyType || !known || j.Demand.Min < limit) && p.guarantee(r, j) {
			continue
		}
		if anyType && (!known || j.Demand.Min < limit) {
			tooLarge[j.App.Tenant] = j.Demand.Min
		}
		rest = append(rest, j)
	}
	if p.spot {
		r.plan.Fill(rest, "opportunistic: idle until its owner comes")
	}
	p.s.Bound = map[string]string{}
	p.layout.unbind()
	for i := range p.layout.cells {
		if c := &p.layout.cells[i]; c.node >= 0 {
			p.s.Bound[c.id] = v.Nodes[c.node].Name
		}
	}
	return r.plan.Plan("guaranteed jobs in their own cells, others on what is idle", "")
}

// updateTenants adds new tenants, and makes a new layout if the tenants, their weights or the nodes have changed.
func (p *Policy) updateTenants(v *policy.View) {
	for _, a := range v.Apps {
		if at, known := slices.BinarySearch(p.s.Tenants, a.Tenant); !known {
			p.s.Tenants = slices.Insert(p.s.Tenants, at, a.Tenant)
		}
	}
	tenants := slices.Clone(p.s.Tenants)
	for i := range v.Tenants { // they have their quotas before their first job
		if at, known := slices.BinarySearch(tenants, v.Tenants[i].Name); !known {
			tenants = slices.Insert(tenants, at, v.Tenants[i].Name)
		}
	}
	weights := make([]float64, len(tenants))
	for i, name := range tenants {
		weights[i] = v.TenantWeight(name, p.quota)
	}
	if p.layout == nil || p.layout.sig != signature(v.Nodes, tenants, weights) {
		p.layout = newLayout(v.Nodes, tenants, weights)
	}
}

// recallGuaranteed puts the guaranteed jobs back into their cells. Jobs that are gone, or whose cell is gone or bound
// elsewhere, lose their guarantee. It returns the jobs that still have it.
func (p *Policy) recallGuaranteed(v *policy.View, jobs []*policy.Job) map[*policy.Job]bool {
	l := p.layout
	l.reset()
	byName := make(map[string]int, len(v.Nodes))
	for i := range v.Nodes {
		byName[v.Nodes[i].Name] = i
	}
	for id, name := range p.s.Bound {
		c, exists := l.byID[id]
		node, up := byName[name]
		if exists && up && !v.Nodes[node].Draining && slices.Contains(l.nodes[l.cells[c].class], node) {
			l.bind(c, node)
		}
	}
	old := p.s.Jobs
	p.s.Jobs = make(map[policy.JobName][]hold, len(old))
	guaranteed := make(map[*policy.Job]bool, len(old))
	for _, j := range jobs {
		if holds, ok := old[j.Name()]; ok && p.stillHolds(j, holds) && p.useCells(j.App.Tenant, holds) {
			p.s.Jobs[j.Name()] = holds
			guaranteed[j] = true
		}
	}
	l.unbind()
	return guaranteed
}

// stillHolds reports whether a job runs on the nodes of its cells, or waits for them.
func (p *Policy) stillHolds(j *policy.Job, holds []hold) bool {
	if j.Running() && len(j.Gang()) != len(holds) {
		return false
	}
	for _, h := range holds {
		c, ok := p.layout.byID[h.Cell]
		if !ok {
			return false
		}
		node := p.layout.cells[c].node
		if j.Running() && !slices.ContainsFunc(j.Gang(), func(at cluster.Place) bool { return at.Node == node && len(at.Devices) == h.N }) {
			return false
		}
	}
	return true
}

// useCells uses parts of cells, all or none.
func (p *Policy) useCells(tenant string, holds []hold) bool {
	for i, h := range holds {
		if at, ok := p.layout.partOf(h.Cell, tenant); !ok || !p.layout.useCell(at, h.N) {
			p.releaseCells(tenant, holds[:i])
			return false
		}
	}
	return true
}

func (p *Policy) releaseCells(tenant string, holds []hold) {
	for _, h := range holds {
		if at, ok := p.layout.partOf(h.Cell, tenant); ok {
			p.layout.useCell(at, -h.N)
		}
	}
}

// withdrawGuarantee withdraws a job's guarantee.
func (p *Policy) withdrawGuarantee(j *policy.Job) {
	p.releaseCells(j.App.Tenant, p.s.Jobs[j.Name()])
	delete(p.s.Jobs, j.Name())
}

// guarantee finds cells for a waiting job in its tenant's virtual cluster, with its Max of devices or, if there is not
// enough room, its Min.
func (p *Policy) guarantee(r *round, j *policy.Job) bool {
	least, most := max(1, j.Demand.Min), max(j.Demand.Min, j.Demand.Max)
	for _, n := range [...]int{r.inventory.Wants(j.Demand), least} {
		if n < least || n > most {
			continue
		}
		holds := p.layout.choose(j.App.Tenant, j.Demand, n)
		if len(holds) == 0 || !p.useCells(j.App.Tenant, holds) {
			continue
		}
		if r.place(j, holds) {
			p.s.Jobs[j.Name()] = holds
			return true
		}
		p.releaseCells(j.App.Tenant, holds)
	}
	return false
}
