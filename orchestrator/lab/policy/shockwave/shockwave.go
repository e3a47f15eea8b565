// Package shockwave plans a window of rounds by Nash welfare and makespan, after Zheng et al., "Shockwave: Fair and
// Efficient Cluster Scheduling for Dynamic Adaptation in Machine Learning" (NSDI 2023).
//
// Of T rounds job j gets n_j, which maximise Nash welfare over time minus a bound on the makespan (sections 4 and 6):
//
//	1/(N T) sum_j w_j log(u_j) - k max_j r_j
//
// where u_j is the part of its work that j has done at the end of the window, and r_j the run time that it then still
// needs, in seconds. The plan must let every job finish by rhomax times its finish time under equal shares: the mean
// of the estimates since its arrival, weighted by time, with a tenth of the last one. If no plan can, w_j is
// rho_j^lambda for jobs whose estimate rho_j is above rhomax, and 1 for the others (section 6.3), and jobs of larger
// weight come first in the window. Jobs that are left out use idle devices, those with the most work left first. The
// settings are those of the authors' experiment on 32 GPUs.
//
// The paper solves a mixed-integer program with a linear interpolation of the logarithm. Here, for
// bounds on r_j a quarter of a round apart, jobs get the rounds that the bound and their finish time need, and each further
// round goes to the job with the largest gain per device, which is optimal for jobs of equal size because the gains
// fall; the best bound is taken.
//
// Simplifications: the paper's jobs change their batch size, which its predictor foresees; trials here do not. The
// cluster is homogeneous in the paper: a job's rate is that of its fewest devices, averaged over the devices of types
// on which it can run, and it gets the type on which it is fastest among those with room. The window is planned in every round instead of at arrivals and ends.
package shockwave

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/policy"
)

// Policy is Shockwave.
type Policy struct {
	round time.Duration
	// window is T, makespan k per second, power lambda.
	window          int
	makespan, power float64
	rhoMax          float64
	m               memory
}

// memory is the policy's state.
type memory struct {
	// Begun is when the round began, and Order the jobs that it chose, the most urgent first.
	Begun time.Time        `json:"begun"`
	Order []policy.JobName `json:"order,omitempty"`
	// Equal holds the estimates of jobs' finish times under equal shares.
	Equal map[policy.JobName]*estimates `json:"equal,omitempty"`
}

// estimates are a job's finish times under equal shares, in seconds after its arrival.
type estimates struct {
	// Sum is the sum of earlier estimates, each times the seconds for which it was the last one.
	Sum  float64   `json:"sum"`
	Last float64   `json:"last"`
	At   time.Time `json:"at"`
}

// New makes the policy from its options.
func New(o *policy.Options) policy.Policy {
	return &Policy{
		round:    o.Duration("round", 2*time.Minute, "length of a round"),
		window:   o.Int("window", 20, 1, 1000, "rounds that are planned at once"),
		makespan: o.Float("makespan", 1e-3, 0, 1000, "k, the weight of the makespan, per second"),
		power:    o.Float("power", 12, 0, 100, "lambda, the power of rho in the weight of a trial that would be late"),
		rhoMax:   o.Float("rhomax", 1, 0.1, 100, "the largest wanted rho"),
	}
}

// Name implements policy.Policy.
func (*Policy) Name() string { return "shockwave" }

// Preempts implements policy.Preemptive.
func (*Policy) Preempts() bool { return true }

// Snapshot implements policy.Policy.
func (p *Policy) Snapshot() ([]byte, error) { return json.Marshal(p.m) }

// Restore implements policy.Policy.
func (p *Policy) Restore(data []byte) error {
	p.m = memory{}
	if err := json.Unmarshal(data, &p.m); err != nil {
		return fmt.Errorf("shockwave: snapshot: %w", err)
	}
	return nil
}

// Decide implements policy.Policy. Within a round only jobs that the round chose get the devices that become free. A round
// ends early if nothing runs any longer.
func (p *Policy) Decide(v *policy.View) policy.Plan {
	jobs := v.Jobs()
	if len(jobs) == 0 {
		return policy.Plan{Reason: "no jobs"}
	}
	var plan policy.Plan
	if v.Now.Before(p.m.Begun.Add(p.round)) && slices.ContainsFunc(jobs, (*policy.Job).Running) {
		plan = p.within(v, jobs)
	} else {
		plan = p.begin(v, jobs)
	}
	plan.Next = p.m.Begun.Add(p.round)
	return plan
}

// within gives devices that became free to the jobs that the round chose.
func (p *Policy) within(v *policy.View, jobs []*policy.Job) policy.Plan {
	plan, stock := policy.Refill(v), v.Inventory()
	byName := make(map[policy.JobName]*policy.Job, len(jobs))
	for _, j := range jobs {
		byName[j.Name()] = j
	}
	for _, name := range p.m.Order {
		if j := byName[name]; j != nil && j.Waiting() {
			placeLeast(plan, stock, j, "it is in this round's plan")
		}
	}
	return plan.Plan("free devices within the round", "")
}

// begin starts a round.
func (p *Policy) begin(v *policy.View, jobs []*policy.Job) policy.Plan {
	p.m.Begun = v.Now
	all, stock := policy.Preempt(v), v.Inventory()
	prog := p.program(v, all, stock, jobs)
	rounds, late := prog.solve()
	order := prog.first(rounds, late)
	p.m.Order = p.m.Order[:0]
	for _, i := range order {
		p.m.Order = append(p.m.Order, jobs[i].Name())
	}
	for _, i := range order {
		if jobs[i].Running() && !jobs[i].Ending {
			all.Keep(jobs[i])
		}
	}
	for _, i := range order {
		if !jobs[i].Running() || jobs[i].Ending {
			placeLeast(all, stock, jobs[i], "it is in this round's plan")
		}
	}
	for _, i := range prog.mostLeft() { // idle devices
		switch j := jobs[i]; {
		case slices.Contains(order, i):
		case j.Running() && !j.Ending:
			all.Keep(j)
		case j.Waiting():
			placeLeast(all, stock, j, "idle, and it has the most work left")
		}
	}
	return all.Plan("a window planned by Nash welfare", "not in this round's plan")
}

// placeLeast gives a job its fewest devices, of the type on which it is fastest among those with room.
func placeLeast(plan *policy.Planner, stock *policy.Inventory, j *policy.Job, reason string) {
	n := max(1, j.Demand.Min)
	types := make([]int, len(stock.Types()))
	for k := range types {
		types[k] = k
	}
	slices.SortStableFunc(types, func(a, b int) int { return cmp.Compare(stock.Rate(j, b, n), stock.Rate(j, a, n)) })
	for _, k := range types {
		if g, ok := plan.Free().Place(j.Demand, n, stock.Types()[k]); ok {
			plan.PlaceOn(j, plan.PreferFreeNow(j, g), reason)
			return
		}
	}
	if g, ok := plan.Free().Place(j.Demand, n, ""); ok {
		plan.PlaceOn(j, plan.PreferFreeNow(j, g), reason)
	}
}

// program returns the program of the window that begins now.
func (p *Policy) program(v *policy.View, all *policy.Planner, stock *policy.Inventory, jobs []*policy.Job) *program {
	left := v.StepsLeftOf(jobs)
	prog := &program{
		devices: all.Free().FreeDevices(), rounds: p.window, seconds: p.round.Seconds(), makespan: p.makespan,
		power: p.power, jobs: make([]job, len(jobs)),
	}
	equal := make(map[policy.JobName]*estimates, len(jobs))
	share := min(1, float64(max(prog.devices, 1))/float64(len(jobs)))
	for i, j := range jobs {
		n := max(1, j.Demand.Min)
		rate, done := meanRate(stock, j, n), v.StepAt(j)
		remaining := left[i] / rate
		age := v.Now.Sub(j.Created).Seconds()
		goal := p.m.Equal[j.Name()].next(v.Now, (done/rate+remaining)/share)
		equal[j.Name()] = goal
		deadline := goal.goal(age) * p.rhoMax
		prog.jobs[i] = job{
			devices: n, weight: max(j.Weight*j.App.Weight, 1e-9), done: done / max(done+left[i], 1),
			perRound: rate * p.round.Seconds() / max(done+left[i], 1), remaining: remaining,
			// By then it must not need more run time than its share of the rest of its time gives.
			most: (deadline - age - p.round.Seconds()*float64(p.window)) * share,
			rho:  (age + remaining/share) / max(deadline, 1e-9),
		}
	}
	p.m.Equal = equal
	return prog
}

// next adds an estimate.
func (e *estimates) next(now time.Time, finish float64) *estimates {
	if e == nil {
		return &estimates{Last: finish, At: now}
	}
	return &estimates{Sum: e.Sum + e.Last*now.Sub(e.At).Seconds(), Last: finish, At: now}
}

// goal returns the finish time that a job of this age may expect.
func (e *estimates) goal(age float64) float64 {
	const momentum = 0.9
	mean := e.Last
	if age > 0 && e.Sum > 0 {
		mean = e.Sum / age
	}
	return momentum*mean + (1-momentum)*e.Last
}

// meanRate returns the steps per second of a job on n devices, averaged over the devices on which it can run.
func meanRate(stock *policy.Inventory, j *policy.Job, n int) float64 {
	sum, devices := 0.0, 0
	for k := range stock.Types() {
		if stock.Most(j.Demand, k) >= n {
			sum += stock.Rate(j, k, n) * float64(stock.Total(k))
			devices += stock.Total(k)
		}
	}
	return max(sum/float64(max(devices, 1)), 1e-9)
}

// mostLeft returns the jobs, those with the most run time left first.
func (p *program) mostLeft() []int {
	order := make([]int, len(p.jobs))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(p.jobs[b].remaining, p.jobs[a].remaining) })
	return order
}

// roundsFor returns how many rounds a job needs to leave at most this run time, in seconds.
func (p *program) roundsFor(j *job, remain float64) int {
	return int(math.Ceil(max(0, j.remaining-max(remain, 0))/p.seconds - 1e-9))
}
