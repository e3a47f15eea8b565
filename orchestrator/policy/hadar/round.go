package hadar

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/policy/pricing"
)

// entry is a job in the round's queue.
type entry struct {
	job *policy.Job
	// age is the seconds since it was submitted, and left the number of steps that remain of total, at least one.
	age, left, total float64
	// rate, by type, is the rate on as many devices as it asks for of that type in one node, or 0 if it cannot run
	// there.
	rate []float64
	// order lists the types that it can run on, fastest first.
	order []int
	// gang is where it was placed, and kept means that it already ran there.
	gang cluster.Gang
	kept bool
	// best is the job's payoff at the start of the round, which only falls as others take devices.
	best float64
}

// round is one decision.
type round struct {
	*Policy

	v     *policy.View
	plan  *policy.Planner
	free  *cluster.Capacity
	types []string
	// capacity is the number of devices of each type on each node.
	capacity [][]int
	prices   []pricing.Range
	// queue lists the jobs to decide about by payoff per device, and passed those that the program left out.
	queue, passed []*entry
}

func (p *Policy) newRound(v *policy.View, plan *policy.Planner, jobs []*policy.Job) *round {
	r := &round{Policy: p, v: v, plan: plan, free: plan.Free(), types: v.Free.Types()}
	r.capacity = make([][]int, len(v.Nodes))
	for i := range v.Nodes {
		r.capacity[i] = make([]int, len(r.types))
		for _, d := range v.Nodes[i].Devices {
			r.capacity[i][slices.Index(r.types, d.Type)]++
		}
	}
	var entries []*entry
	for i, left := range v.StepsLeftOf(jobs) {
		if e := r.entry(jobs[i], max(left, 1)); (p.forks || !jobs[i].Ending) && len(e.order) > 0 {
			entries = append(entries, e)
		}
	}
	r.price(entries)
	for _, e := range entries {
		a, ok := r.find(e, true)
		if !ok {
			r.passed = append(r.passed, e)
			continue
		}
		e.best = a.payoff
		r.queue = append(r.queue, e)
	}
	slices.SortStableFunc(r.queue, func(a, b *entry) int {
		return cmp.Compare(b.best/float64(wants(b.job.Demand)), a.best/float64(wants(a.job.Demand)))
	})
	return r
}

// wants returns how many devices a job asks for.
func wants(d cluster.Demand) int { return max(1, d.Min, d.Max) }

func (r *round) entry(j *policy.Job, left float64) *entry {
	e := &entry{job: j, age: max(0, r.v.Now.Sub(j.Created).Seconds()), left: left, rate: make([]float64, len(r.types))}
	e.total = max(left, float64(j.TotalSteps), float64(j.UntilStep))
	for k, kind := range r.types {
		if !j.Demand.Accepts(kind) {
			continue
		}
		if e.rate[k] = j.Speeds.Rate(kind, wants(j.Demand), cluster.SameMachine); e.rate[k] > 0 {
			e.order = append(e.order, k)
		}
	}
	slices.SortStableFunc(e.order, func(a, b int) int { return cmp.Compare(e.rate[b], e.rate[a]) })
	return e
}

// utility returns the utility of a job that ends in the given number of seconds: by default its effective throughput,
// its total steps over the time from its submission to its end (section 3.1).
func (r *round) utility(e *entry, seconds float64) float64 {
	u := e.total / max(e.age+seconds, 1e-3)
	if r.Relative {
		u /= e.rate[e.order[0]]
	}
	return u * weight(e.job)
}

func weight(j *policy.Job) float64 {
	w := 1.0
	for _, f := range []float64{j.App.Weight, j.Weight} {
		if f > 0 {
			w *= f
		}
	}
	return w
}

// price sets the prices of each type (eqs. 6 and 7). Times are counted in rounds. The horizon is when the last job ends
// if all run one after the other, each on its slowest devices.
func (r *round) price(jobs []*entry) {
	r.prices = make([]pricing.Range, len(r.types))
	horizon, devices := 0.0, 0
	for _, e := range jobs {
		horizon += e.left / e.rate[e.order[len(e.order)-1]]
	}
	for _, node := range r.capacity {
		for _, n := range node {
			devices += n
		}
	}
	low, share := math.Inf(1), math.Inf(1)
	for _, e := range jobs {
		w := float64(wants(e.job.Demand))
		rounds := max(1, e.total/e.rate[e.order[len(e.order)-1]]/r.round.Seconds())
		low = min(low, r.utility(e, horizon)/(rounds*w))
		share = min(share, rounds*w/float64(max(1, devices))) // 1/eta
		for _, k := range e.order {
			r.prices[k].High = max(r.prices[k].High, r.utility(e, e.left/e.rate[e.order[0]])/w)
		}
	}
	for k := range r.prices {
		r.prices[k].Low = min(low*share/4, r.prices[k].High)
	}
}

// window decides which of the first jobs of the queue run, and where.
func (r *round) window() {
	n := min(r.Policy.Window, len(r.queue))
	w := r.search(r.queue[:n])
	w.decideFrom(0, 0)
	for i, e := range w.jobs {
		if a := w.best[i]; a == nil || !r.placeJob(e, a, "payoff "+threeDigits(a.payoff)) {
			r.passed = append(r.passed, e)
		}
	}
	r.queue = r.queue[n:]
}

func threeDigits(x float64) string { return fmt.Sprintf("%.3g", x) }

// placeJob places a job as allocated, on its own devices or on free ones.
func (r *round) placeJob(e *entry, a *allocation, why string) bool {
	if a.own {
		e.gang, e.kept = a.gang, r.plan.Keep(e.job)
		return e.kept
	}
	gang := r.plan.PreferFreeNow(e.job, a.gang)
	if !r.plan.PlaceOn(e.job, gang, fmt.Sprintf("%s: utility %s for %s", why, threeDigits(a.payoff+a.cost), threeDigits(a.cost))) {
		return false
	}
	e.gang = gang
	return true
}

// fill gives what is left to jobs that prices kept out, each where its utility is highest.
func (r *round) fill() {
	var none policy.Unplaceable
	for _, e := range r.passed {
		if r.free.FreeDevices() == 0 {
			return
		}
		if none.Covers(e.job.Demand) {
			continue
		}
		if a, ok := r.find(e, false); ok {
			r.placeJob(e, &a, "nobody else wants these devices")
			continue
		}
		none.Add(e.job.Demand)
	}
}

// search is the dynamic program of a window (algorithm 2): depth first, pruning branches that cannot be better.
type search struct {
	*round

	jobs []*entry
	// bounds is the most that the jobs from an index on can add.
	bounds []float64
	picks  []*allocation
	best   []*allocation
	most   float64
}

func (r *round) search(jobs []*entry) *search {
	n := len(jobs)
	s := &search{round: r, jobs: jobs, bounds: make([]float64, n+1), picks: make([]*allocation, n), best: make([]*allocation, n)}
	for i := n - 1; i >= 0; i-- {
		s.bounds[i] = s.bounds[i+1] + jobs[i].best
	}
	return s
}

// decideFrom decides about the jobs from i on, where worth is the payoff of the earlier ones.
func (s *search) decideFrom(i int, worth float64) {
	if worth > s.most {
		s.most = worth
		copy(s.best, s.picks)
	}
	if i == len(s.jobs) || worth+s.bounds[i] <= s.most || s.free.FreeDevices() == 0 {
		return
	}
	e := s.jobs[i]
	if a, ok := s.find(e, true); ok {
		mark := s.free.Mark()
		s.free.Take(a.gang, e.job.Demand)
		s.picks[i] = &a
		s.decideFrom(i+1, worth+a.payoff)
		s.picks[i] = nil
		s.free.Rollback(mark)
	}
	s.decideFrom(i+1, worth)
}
