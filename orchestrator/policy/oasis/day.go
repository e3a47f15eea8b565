package oasis

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/agent"
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

// day is the state of one decision: the time, the cluster, and the promises in the coming slots.
type day struct {
	*Policy

	v         *policy.View
	inventory *policy.Inventory
	types     []string
	capacity  [][]float64
	// slot is the present slot, counted from 1970, and rest the fraction of it that is left.
	slot int64
	rest float64
	// book holds the promises from the present slot on.
	book *schedule.Cluster
	said []*outbidv1.Admission
	// shown caches the requirements of sweeps.
	shown map[*policy.App]*wish
}

// An admitted sweep.
type standing struct {
	app       *policy.App
	admission *admission
}

// wish is a sweep's requirement.
type wish struct {
	// steps are left, and most workers of size devices each can run at once.
	steps float64
	size  int
	most  int
	// one means that its workers use one type at a time.
	one bool
	// does is the steps per second of a worker, by type; 0 where it cannot run.
	does []float64
	// worker is how much one worker takes of each resource.
	worker []float64
	// worth returns the worth of its end at the given seconds after its submission.
	worth func(seconds float64) float64
}

func (p *Policy) day(v *policy.View) *day {
	d := &day{Policy: p, v: v, inventory: v.Inventory(), shown: map[*policy.App]*wish{}}
	d.types = d.inventory.Types()
	d.capacity = make([][]float64, len(d.types))
	for k := range d.types {
		d.capacity[k] = make([]float64, kinds)
	}
	for i := range v.Nodes {
		d.count(&v.Nodes[i])
	}
	nanos := v.Now.UnixNano()
	d.slot = nanos / int64(p.slot)
	if nanos%int64(p.slot) < 0 {
		d.slot--
	}
	d.rest = float64(d.ends(d.slot).Sub(v.Now)) / float64(p.slot)
	return d
}

// count adds a node, whose cores and memory are divided over its devices.
func (d *day) count(n *cluster.Node) {
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

// stock returns the capacity by type.
func (d *day) stock() map[string][]float64 {
	all := make(map[string][]float64, len(d.types))
	for k, kind := range d.types {
		all[kind] = d.capacity[k]
	}
	return all
}

// begins and ends return a slot's start and end.
func (d *day) begins(slot int64) time.Time { return time.Unix(0, slot*int64(d.Policy.slot)).UTC() }
func (d *day) ends(slot int64) time.Time   { return d.begins(slot + 1) }

// measured returns why a sweep's work is not known, or "" if it is.
func (d *day) measured(a *policy.App) string {
	known, ends := false, a.TotalSteps > 0 || a.Outlook().Steps > 0
	for _, j := range a.Jobs {
		ends = ends || j.UntilStep > 0 || j.TotalSteps > 0
		known = known || fast(j.Speeds)
	}
	switch {
	case !known && !fast(a.Speeds):
		return "its speed is not known yet"
	case !ends:
		return "how many steps it takes is not known"
	}
	return ""
}

func fast(s *cluster.Speeds) bool {
	return s != nil && slices.ContainsFunc(s.Measured, func(m cluster.Speed) bool { return m.Rate > 0 })
}

// wish returns a sweep's requirement from the view.
func (d *day) wish(a *policy.App) *wish {
	if w := d.shown[a]; w != nil {
		return w
	}
	s := d.v.AppState(a, d.v.Stock(), func(j *policy.Job) (held, lost agent.Holding) { return agent.Holding{}, agent.Holding{} })
	for i, j := range a.Jobs {
		if !j.Running() { // it continues from its checkpoint, which may be beyond its last report
			s.Jobs[i].Done = max(s.Jobs[i].Done, float64(j.StartStep))
		}
	}
	rest := agent.RestOf(s)
	demand := a.Demand
	if len(a.Jobs) > 0 { // a trial may want more than the first one of its sweep did
		demand = slices.MaxFunc(a.Jobs, func(x, y *policy.Job) int { return cmp.Compare(x.Demand.Max, y.Demand.Max) }).Demand
	}
	w := &wish{steps: rest.Steps, size: max(1, demand.Min), does: make([]float64, len(d.types)), worker: make([]float64, kinds)}
	large := 0
	for k, kind := range d.types {
		n := d.inventory.Most(demand, k) / w.size * w.size
		if n == 0 {
			continue
		}
		large = max(large, n/w.size)
		w.does[k] = max(0, rest.Pace.Rate(kind, n, d.inventory.Locality(k, n))) / float64(n) * float64(w.size)
	}
	jobs := rest.Jobs
	if most := int(a.Spec.GetLimits().GetConcurrency()); most > 0 {
		jobs = min(jobs, most)
	}
	w.most = max(1, jobs) * max(1, large) * max(1, rest.Forks)
	if quota := d.v.Tenant(a).Quota.All; quota >= 0 {
		w.most = min(w.most, quota/w.size)
	}
	w.one = jobs <= 1 && rest.Forks <= 1 && !demand.Mixed
	w.worker[devices] = float64(w.size)
	w.worker[cpus] = demand.CPUs / float64(max(1, large))
	w.worker[gib] = float64(demand.Memory) / (1 << 30) / float64(max(1, large))
	w.worth = d.worth(a, w)
	d.shown[a] = w
	return w
}

// worth returns a function of the seconds after a sweep's submission that returns the worth of its end: its utility.
// Without a utility that is its weight in device-hours until it could have ended alone, or until its deadline; later it
// falls by half in every patience run times.
func (d *day) worth(a *policy.App, w *wish) func(float64) float64 {
	if a.Utility != nil {
		return a.Utility.Value
	}
	fastest := slices.Max(append([]float64{0}, w.does...))
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
func (d *day) job(a *policy.App, w *wish, steps float64, allowed func(k int) bool) schedule.Job {
	return schedule.Job{
		Work: steps, Most: w.most, Worker: w.worker, Before: d.slots,
		Does: func(_, k int) float64 {
			if !allowed(k) {
				return 0
			}
			return w.does[k] * d.Policy.slot.Seconds()
		},
		Part: d.part,
		Utility: func(slot int) float64 {
			return w.worth(d.ends(d.slot + int64(slot)).Sub(a.Submitted).Seconds())
		},
	}
}

// part returns the fraction of a slot that is left, where 0 is the present slot.
func (d *day) part(slot int) float64 {
	if slot == 0 {
		return d.rest
	}
	return 1
}

// offer returns the best schedule for a number of steps: on all types, on only the fastest ones, or on a single type if
// the sweep's workers use one at a time.
func (d *day) offer(a *policy.App, w *wish, steps float64, before int) schedule.Offer {
	order := make([]int, len(d.types))
	for k := range order {
		order[k] = k
	}
	slices.SortStableFunc(order, func(x, y int) int { return cmp.Compare(w.does[y], w.does[x]) })
	best := schedule.Offer{}
	for n := range order {
		allowed := order[:n+1]
		if w.one {
			allowed = order[n : n+1]
		}
		if w.does[order[n]] <= 0 || w.most < 1 {
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
