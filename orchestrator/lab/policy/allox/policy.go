package allox

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/policy"
)

// Policy is AlloX's scheduler (EuroSys 2020, sections 3 and 4).
//
// When devices are free, the waiting jobs are matched with pairs of device and position for the least mean completion
// time: a job that is the k-th from last on a device costs k times its processing time there, and a busy device is free
// only after the rest of its job. Jobs that are first on a free device start; nothing is preempted. So a job may wait
// for a faster device although a slow one is free. For fairness only a fraction alpha of the jobs, but at least as many
// as there are free devices, takes part (0.3, as in Gavel's implementation): those that have waited longest or, with
// fair=tenant as in ASTRAEA's evaluation, those of the tenants with the least device time over their weight.
//
// Simplifications: processing time is the steps left over the measured rate. A gang of n devices takes the place of one
// device, is free to start when n are, and delays each job after it by n times its run time. At most "window" jobs are
// matched at once, those with the fewest device-seconds first, which the whole matching would also start first, and of
// each type as many devices as jobs, those that become free first; the matching is repeated while jobs start. The
// number of positions is limited to 256 pairs, or to as many as give each job one.
type Policy struct {
	alpha    float64
	window   int
	byTenant bool
	s        memory
}

// memory is the policy's state, which it needs only with fair=tenant: the device-seconds that each tenant has Had up to
// Last, and the devices that it has Held since.
type memory struct {
	Last time.Time
	Had  map[string]float64
	Held map[string]int
}

// New makes the policy from its options.
func New(o *policy.Options) policy.Policy {
	return &Policy{
		alpha:  o.Float("alpha", 0.3, 0, 1, "fraction of the waiting trials that is matched; 1 optimises completion times alone"),
		window: o.Int("window", 24, 1, 1024, "largest number of trials that are matched at once"),
		byTenant: o.Text("fair", "wait", "which trials are matched first: wait, those that have waited longest; or tenant, those of tenants with the least device time by weight",
			"wait", "tenant") == "tenant",
		s: memory{Had: map[string]float64{}, Held: map[string]int{}},
	}
}

// Name implements policy.Policy.
func (*Policy) Name() string { return "allox" }

// Snapshot implements policy.Policy. Only fair=tenant has state.
func (p *Policy) Snapshot() ([]byte, error) {
	if !p.byTenant {
		return nil, nil
	}
	return json.Marshal(p.s)
}

// Restore implements policy.Policy.
func (p *Policy) Restore(b []byte) error {
	p.s = memory{Had: map[string]float64{}, Held: map[string]int{}}
	if len(b) == 0 {
		return nil
	}
	if err := json.Unmarshal(b, &p.s); err != nil {
		return fmt.Errorf("allox: snapshot: %w", err)
	}
	return nil
}

// maxPairs bounds the pairs of device and position.
const maxPairs = 256

// Decide implements policy.Policy.
func (p *Policy) Decide(v *policy.View) policy.Plan {
	if !p.byTenant {
		return p.decide(v)
	}
	p.charge(v)
	plan := p.decide(v)
	for i := range plan.Grants {
		p.s.Held[plan.Grants[i].Job.App.Tenant] += plan.Grants[i].Gang.Size()
	}
	return plan
}

// charge adds what tenants have had since the last decision, and records what they hold now.
func (p *Policy) charge(v *policy.View) {
	seconds := max(0, v.Now.Sub(p.s.Last).Seconds())
	p.s.Last = v.Now
	for tenant, devices := range p.s.Held {
		p.s.Had[tenant] += float64(devices) * seconds
	}
	clear(p.s.Held)
	for _, a := range v.Apps {
		for _, j := range a.Jobs {
			if n := j.Held().Size(); n > 0 {
				p.s.Held[a.Tenant] += n
			}
		}
	}
}

func (p *Policy) decide(v *policy.View) policy.Plan {
	plan := policy.Refill(v)
	waiting := v.Waiting()
	if v.Free.FreeDevices() == 0 || len(waiting) == 0 {
		return plan.Plan("nothing to match", "")
	}
	all := waiting
	waiting = p.filter(v, waiting, plan.Free().FreeDevices())
	f := newField(v, plan)
	started := false
	if len(waiting) > p.window {
		f.shortestFirst(v, waiting)
	}
	for len(waiting) > 0 && plan.Free().FreeDevices() > 0 {
		batch := waiting[:min(p.window, len(waiting))]
		done := f.start(plan, f.match(f.times(v, batch)))
		if started = started || len(done) > 0; len(done) == 0 {
			break
		}
		waiting = slices.DeleteFunc(waiting, func(j *policy.Job) bool { return slices.Contains(done, j) })
	}
	if !started && !f.busy {
		// If something such as cores kept the matching from starting any job, an idle cluster starts those that fit.
		plan.Fill(all, "nothing else runs, and the matching found no place for anyone")
	}
	return plan.Plan("a matching of jobs with devices and positions", "")
}

// filter selects the jobs that take part, by fairness.
func (p *Policy) filter(v *policy.View, waiting []*policy.Job, free int) []*policy.Job {
	had := map[string]float64{}
	for tenant, seconds := range p.s.Had {
		had[tenant] = seconds / v.TenantWeight(tenant, nil)
	}
	waiting = slices.Clone(waiting)
	slices.SortStableFunc(waiting, func(a, b *policy.Job) int { return a.Queued.Compare(b.Queued) })
	if p.byTenant {
		slices.SortStableFunc(waiting, func(a, b *policy.Job) int {
			return cmp.Compare(had[a.App.Tenant], had[b.App.Tenant])
		})
	}
	n := max(free, int(p.alpha*float64(len(waiting))))
	return waiting[:min(n, len(waiting))]
}

// start is a job that the matching starts at once, on n devices of a type, for the given seconds.
type start struct {
	job     *policy.Job
	n, kind int
	seconds float64
}

// field is what jobs are matched with.
type field struct {
	inventory *policy.Inventory
	// ready lists, by type, when each device is free, in seconds.
	ready [][]float64
	// busy means that some job runs or is ending.
	busy bool
}

// machine is one device.
type machine struct {
	kind  int
	ready float64
}

func newField(v *policy.View, plan *policy.Planner) *field {
	f := &field{inventory: v.Inventory()}
	types := f.inventory.Types()
	f.ready = make([][]float64, len(types))
	for k, kind := range types {
		// ready now, or as soon as ending jobs have released them
		f.ready[k] = make([]float64, plan.Free().FreeOf(kind))
	}
	var running []*policy.Job
	for _, j := range v.Jobs() {
		f.busy = f.busy || j.Running()
		if j.Running() && !j.Ending {
			running = append(running, j)
		}
	}
	for i, left := range v.StepsLeftOf(running) {
		j := running[i]
		k := f.inventory.KindOf(v, j.Gang())
		if k < 0 {
			continue
		}
		seconds := max(1, left/max(v.Rate(j, j.Gang()), 1e-9))
		for range j.Gang().Size() {
			f.ready[k] = append(f.ready[k], seconds)
		}
	}
	for k := range types {
		slices.Sort(f.ready[k])
	}
	return f
}

// machines returns the devices of each type, those that are free first at the front. Of equal devices at most as many
// as there are jobs are needed, and those that are free first are the best.
func (f *field) machines(jobs int) []machine {
	var all []machine
	for k := range f.ready {
		for _, ready := range f.ready[k][:min(len(f.ready[k]), jobs)] {
			all = append(all, machine{k, ready})
		}
	}
	return all
}

// start places jobs that are first on free devices, and returns those for which there was a place.
func (f *field) start(plan *policy.Planner, starts []start) (done []*policy.Job) {
	for _, s := range starts {
		gang, ok := plan.Free().Place(s.job.Demand, s.n, f.inventory.Types()[s.kind])
		if !ok || !plan.PlaceOn(s.job, plan.PreferFreeNow(s.job, gang), "first on this type of device in the matching with the least mean completion time") {
			continue
		}
		done = append(done, s.job)
		for i := range s.n {
			f.ready[s.kind][i] = s.seconds // the first are the free ones
		}
		slices.Sort(f.ready[s.kind])
	}
	return done
}

// runtime is a job's run time on a type: seconds on n devices, which are all free at ready.
type runtime struct {
	n              int
	seconds, ready float64
}

// times returns the jobs that some type could run, and their run times by type.
func (f *field) times(v *policy.View, jobs []*policy.Job) (able []*policy.Job, times [][]runtime) {
	left := v.StepsLeftOf(jobs)
	for i, j := range jobs {
		row, runs := make([]runtime, len(f.ready)), false
		for k := range row {
			row[k].seconds = math.Inf(1)
			n := f.inventory.Most(j.Demand, k)
			if n == 0 || len(f.ready[k]) < j.Demand.Min {
				continue
			}
			n = min(n, len(f.ready[k]))
			// As many as are free now if that is enough, otherwise the minimum.
			for n > max(1, j.Demand.Min) && f.ready[k][n-1] > 0 {
				n--
			}
			if rate := f.inventory.Rate(j, k, n); rate > 0 {
				row[k] = runtime{n, max(left[i], 1) / rate, f.ready[k][n-1]}
				runs = true
			}
		}
		if runs {
			able, times = append(able, j), append(times, row)
		}
	}
	return able, times
}

// shortestFirst sorts jobs by the device-seconds that they take on their best type: if not all jobs fit into one
// matching, these are the ones that the whole matching would start.
func (f *field) shortestFirst(v *policy.View, jobs []*policy.Job) {
	able, times := f.times(v, jobs)
	least := make(map[*policy.Job]float64, len(able))
	for i, j := range able {
		least[j] = math.Inf(1)
		for _, t := range times[i] {
			least[j] = min(least[j], t.seconds*float64(max(1, t.n)))
		}
	}
	slices.SortStableFunc(jobs, func(a, b *policy.Job) int {
		_, canA := least[a]
		if _, canB := least[b]; canA != canB {
			if canA {
				return -1
			}
			return 1
		}
		return cmp.Compare(least[a], least[b])
	})
}

// match solves the assignment and returns the jobs that are first on free devices, the largest gangs first.
func (f *field) match(jobs []*policy.Job, times [][]runtime) []start {
	machines := f.machines(len(jobs))
	count := len(machines)
	if count == 0 || len(jobs) == 0 {
		return nil
	}
	positions := min(len(jobs), max((len(jobs)+count-1)/count, maxPairs/count))
	costs := make([]float64, 0, len(jobs)*count*positions)
	for i := range jobs {
		for behind := range positions {
			for _, m := range machines {
				t := &times[i][m.kind]
				costs = append(costs, max(m.ready, t.ready)+t.seconds*(1+float64(behind)*float64(max(1, t.n))))
			}
		}
	}
	cost := func(i, column int) float64 { return costs[i*count*positions+column] }
	columns, _ := Match(len(jobs), count*positions, cost)
	first := make([]int, count) // by machine, the job that comes first, counted from 1
	for i, c := range columns {
		at := c % count
		if math.IsInf(cost(i, c), 1) {
			continue
		}
		if first[at] == 0 || columns[first[at]-1] < c {
			first[at] = i + 1
		}
	}
	var starts []start
	for at, one := range first {
		if one == 0 {
			continue
		}
		m := machines[at]
		if t := times[one-1][m.kind]; m.ready == 0 && t.ready == 0 {
			starts = append(starts, start{jobs[one-1], t.n, m.kind, t.seconds})
		}
	}
	slices.SortStableFunc(starts, func(a, b start) int { return cmp.Compare(b.n, a.n) })
	return starts
}
