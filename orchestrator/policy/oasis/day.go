package oasis

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/bidder"
	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/policy/oasis/schedule"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Kinds of resources.
const (
	devices = iota
	cpus
	gib
	kinds
)

// slotDecision is the state of one decision: the time, the cluster, and the promises in the coming slots.
type slotDecision struct {
	*Policy

	v         *policy.View
	inventory *policy.Inventory
	types     []string
	capacity  [][]float64
	// slot is the present slot, counted from 1970, and slotLeft the fraction of it that is left.
	slot     int64
	slotLeft float64
	// book holds the promises from the present slot on.
	book *schedule.Cluster
	said []*outbidv1.Admission
	// requirements caches the requirements of sweeps.
	requirements map[*policy.App]*requirement
}

// An admitted sweep.
type admittedSweep struct {
	app       *policy.App
	admission *admission
}

// requirement describes the work that a sweep has left, its workers and its worth.
type requirement struct {
	// steps are left, and most workers of size devices each can run at once.
	steps float64
	size  int
	most  int
	// oneType means that its workers use one type at a time.
	oneType bool
	// rates is the steps per second of a worker, by type; 0 where it cannot run.
	rates []float64
	// worker is how much one worker takes of each resource.
	worker []float64
	// worth returns the worth of its end at the given seconds after its submission.
	worth func(seconds float64) float64
}

func (p *Policy) newSlotDecision(v *policy.View) *slotDecision {
	d := &slotDecision{Policy: p, v: v, inventory: v.Inventory(), requirements: map[*policy.App]*requirement{}}
	d.types = d.inventory.Types()
	d.capacity = make([][]float64, len(d.types))
	for k := range d.types {
		d.capacity[k] = make([]float64, kinds)
	}
	for i := range v.Nodes {
		d.addNode(&v.Nodes[i])
	}
	nanos := v.Now.UnixNano()
	d.slot = nanos / int64(p.slot)
	if nanos%int64(p.slot) < 0 {
		d.slot--
	}
	d.slotLeft = float64(d.ends(d.slot).Sub(v.Now)) / float64(p.slot)
	return d
}

// addNode adds a node, whose cores and memory are divided over its devices.
func (d *slotDecision) addNode(n *cluster.Node) {
	if n.Draining {
		return
	}
	for _, device := range n.Devices {
		of := d.capacity[slices.Index(d.types, device.Type)]
		of[devices]++
		of[cpus] += n.CPUs / float64(len(n.Devices))
		of[gib] += float64(n.Memory) / (1 << 30) / float64(len(n.Devices))
	}
}

// capacityByType returns the capacity by type.
func (d *slotDecision) capacityByType() map[string][]float64 {
	all := make(map[string][]float64, len(d.types))
	for k, kind := range d.types {
		all[kind] = d.capacity[k]
	}
	return all
}

// begins and ends return a slot's start and end.
func (d *slotDecision) begins(slot int64) time.Time {
	return time.Unix(0, slot*int64(d.Policy.slot)).UTC()
}
func (d *slotDecision) ends(slot int64) time.Time { return d.begins(slot + 1) }

// whyUnmeasured returns why a sweep's work is not known, or "" if it is.
func whyUnmeasured(a *policy.App) string {
	known, ends := false, a.TotalSteps > 0 || a.Outlook().Steps > 0
	for _, j := range a.Jobs {
		ends = ends || j.UntilStep > 0 || j.TotalSteps > 0
		known = known || hasRate(j.Speeds)
	}
	switch {
	case !known && !hasRate(a.Speeds):
		return "its speed is not known yet"
	case !ends:
		return "how many steps it takes is not known"
	}
	return ""
}

func hasRate(s *cluster.Speeds) bool {
	return s != nil && slices.ContainsFunc(s.Measured, func(m cluster.Speed) bool { return m.Rate > 0 })
}

// requirementOf returns a sweep's requirement from the view.
func (d *slotDecision) requirementOf(a *policy.App) *requirement {
	if w := d.requirements[a]; w != nil {
		return w
	}
	s := d.v.AppState(a, d.v.Stock(), func(j *policy.Job) (held, lost bidder.Holding) { return bidder.Holding{}, bidder.Holding{} })
	for i, j := range a.Jobs {
		if !j.Running() { // it continues from its checkpoint, which may be beyond its last report
			s.Jobs[i].Done = max(s.Jobs[i].Done, float64(j.StartStep))
		}
	}
	rest := bidder.RestOf(s)
	demand := a.Demand
	if len(a.Jobs) > 0 { // a trial may want more than the first one of its sweep did
		demand = slices.MaxFunc(a.Jobs, func(x, y *policy.Job) int { return cmp.Compare(x.Demand.Max, y.Demand.Max) }).Demand
	}
	w := &requirement{steps: rest.Steps, size: max(1, demand.Min), rates: make([]float64, len(d.types)), worker: make([]float64, kinds)}
	large := 0
	for k, kind := range d.types {
		n := d.inventory.Most(demand, k) / w.size * w.size
		if n == 0 {
			continue
		}
		large = max(large, n/w.size)
		w.rates[k] = max(0, rest.Pace.Rate(kind, n, d.inventory.Locality(k, n))) / float64(n) * float64(w.size)
	}
	w.most = max(1, rest.Jobs) * max(1, large) * max(1, rest.Forks)
	if quota := d.v.Tenant(a).Quota.All; quota >= 0 {
		w.most = min(w.most, quota/w.size)
	}
	w.oneType = rest.Jobs <= 1 && rest.Forks <= 1 && !demand.Mixed
	w.worker[devices] = float64(w.size)
	w.worker[cpus] = demand.CPUs / float64(max(1, large))
	w.worker[gib] = float64(demand.Memory) / (1 << 30) / float64(max(1, large))
	w.worth = d.worth(a, w)
	d.requirements[a] = w
	return w
}

// worth returns a function of the seconds after a sweep's submission that returns the worth of its end: its utility.
// Without a utility that is its weight in device-hours until it could have ended alone, or until its deadline; later it
// falls by half in every patience run times.
func (d *slotDecision) worth(a *policy.App, w *requirement) func(float64) float64 {
	if a.Utility != nil {
		return a.Utility.Value
	}
	fastest := slices.Max(append([]float64{0}, w.rates...))
	if fastest <= 0 {
		fastest = 1
	}
	work := w.steps / fastest // seconds of a worker
	alone := work / float64(max(1, w.most))
	weight := a.Weight * d.v.Tenant(a).Weight
	if !(weight > 0) || math.IsInf(weight, 0) {
		weight = 1
	}
	worth := weight * work * float64(w.size) / 3600
	due := alone
	if !a.Deadline.IsZero() {
		due = a.Deadline.Sub(a.Submitted).Seconds()
	}
	half := max(1, d.patience*alone)
	return func(seconds float64) float64 { return worth / (1 + max(0, seconds-due)/half) }
}

// job returns a sweep in the form of package schedule, restricted to the allowed types.
func (d *slotDecision) job(a *policy.App, w *requirement, steps float64, allowed func(k int) bool) schedule.Job {
	return schedule.Job{
		Work: steps, Most: w.most, Worker: w.worker, Before: d.slots,
		Does: func(_, k int) float64 {
			if !allowed(k) {
				return 0
			}
			return w.rates[k] * d.Policy.slot.Seconds()
		},
		Part: d.fractionLeft,
		Utility: func(slot int) float64 {
			return w.worth(d.ends(d.slot + int64(slot)).Sub(a.Submitted).Seconds())
		},
	}
}

// fractionLeft returns the fraction of a slot that is left, where 0 is the present slot.
func (d *slotDecision) fractionLeft(slot int) float64 {
	if slot == 0 {
		return d.slotLeft
	}
	return 1
}

// offer returns the best schedule for a number of steps: on all types, on only the fastest ones, or on a single type if
// the sweep's workers use one at a time.
func (d *slotDecision) offer(a *policy.App, w *requirement, steps float64, before int) schedule.Offer {
	order := make([]int, len(d.types))
	for k := range order {
		order[k] = k
	}
	slices.SortStableFunc(order, func(x, y int) int { return cmp.Compare(w.rates[y], w.rates[x]) })
	best := schedule.Offer{}
	for n := range order {
		allowed := order[:n+1]
		if w.oneType {
			allowed = order[n : n+1]
		}
		if w.rates[order[n]] <= 0 || w.most < 1 {
			break
		}
		j := d.job(a, w, steps, func(k int) bool { return slices.Contains(allowed, k) })
		j.Before = before
		if o := d.book.Offer(j); o.Schedule != nil && (best.Schedule == nil || o.Worth-o.Cost > best.Worth-best.Cost) {
			best = o
		}
	}
	return best
}
