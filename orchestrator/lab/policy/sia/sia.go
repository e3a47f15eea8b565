// Package sia chooses each job's number and type of devices by goodput, after Jayaram Subramanya et al., "Sia:
// Heterogeneity-aware, goodput-optimized ML-cluster scheduling" (SOSP 2023).
//
// In each round every job gets at most one configuration, a number of devices of one type: powers of two up to a whole
// node, then whole nodes (section 3.3). The choice maximises the sum over jobs of
//
//	lambda - (r G / min G)^p
//
// for configured jobs, where G is the goodput of the configuration, min G that of the job's worst one, p < 0 the
// fairness power, and r the restart factor (T - N S) / (T + S) for a change: T is the job's age, N the number of its
// restarts, and S the time of a restart (section 3.4; this is the paper's minimisation, with the sign changed). A job
// starts with its fewest devices and at most doubles them from round to round.
//
// Simplifications: goodput is the measured rate of steps, because trials keep their batch size. The integer program is
// solved by dynamic programming over the devices of each type while that is small, and otherwise by Lagrangian
// relaxation with local search (see solve). A job on devices of several types keeps them. S is an option.
package sia

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/policy"
)

// Policy is Sia.
type Policy struct {
	round, restart time.Duration
	// power is p, and queue is lambda.
	power, queue float64
	m            memory
}

// memory is the policy's state: when the round began, the configurations that it chose for jobs which wait for them, and
// how many devices each job had last.
type memory struct {
	Begun  time.Time                 `json:"begun"`
	Wanted map[policy.JobName]wanted `json:"wanted,omitempty"`
	Last   map[policy.JobName]int    `json:"last,omitempty"`
}

type wanted struct {
	Type    string `json:"type"`
	Devices int    `json:"devices"`
}

// New makes the policy from its options.
func New(o *policy.Options) policy.Policy {
	return &Policy{
		round:   o.Duration("round", time.Minute, "length of a round"),
		restart: o.Duration("restart", 30*time.Second, "time that a trial loses when its devices change"),
		power:   -o.Float("fairness", 0.5, 0.01, 10, "minus the fairness power p: larger values prefer trials with few devices"),
		queue:   o.Float("queue", 1.1, 0, 1000, "lambda, the penalty of a trial that waits"),
	}
}

// Name implements policy.Policy.
func (*Policy) Name() string { return "sia" }

// Preempts implements policy.Preemptive.
func (*Policy) Preempts() bool { return true }

// Snapshot implements policy.Policy.
func (p *Policy) Snapshot() ([]byte, error) { return json.Marshal(p.m) }

// Restore implements policy.Policy.
func (p *Policy) Restore(data []byte) error {
	p.m = memory{}
	if err := json.Unmarshal(data, &p.m); err != nil {
		return fmt.Errorf("sia: snapshot: %w", err)
	}
	return nil
}

// Decide implements policy.Policy. Within a round only jobs that the round chose get the devices that become free. A round
// ends early if nothing runs any longer.
func (p *Policy) Decide(v *policy.View) policy.Plan {
	var plan policy.Plan
	if v.Now.Before(p.m.Begun.Add(p.round)) && slices.ContainsFunc(v.Jobs(), (*policy.Job).Running) {
		plan = p.within(v)
	} else {
		plan = p.begin(v)
	}
	if len(v.Jobs()) > 0 {
		plan.Next = p.m.Begun.Add(p.round)
	}
	return plan
}

// within gives devices that became free to the jobs for which the round chose them.
func (p *Policy) within(v *policy.View) policy.Plan {
	plan := policy.Refill(v)
	for _, j := range v.Waiting() {
		if w, ok := p.m.Wanted[j.Name()]; ok {
			place(plan, j, w, reasonOf(w))
		}
	}
	return plan.Plan("free devices within the round", "")
}

// begin starts a round.
func (p *Policy) begin(v *policy.View) policy.Plan {
	jobs, stock := v.Jobs(), v.Inventory()
	all := policy.Preempt(v)
	p.m.Begun = v.Now
	p.remember(jobs)
	free := make([]int, len(stock.Types()))
	for k, kind := range stock.Types() {
		free[k] = all.Free().FreeOf(kind)
	}
	sets := make([][]choice, len(jobs))
	for i, j := range jobs {
		if mixed(v, j) {
			all.Keep(j)
			for k, kind := range stock.Types() {
				free[k] = min(free[k], all.Free().FreeOf(kind))
			}
			continue
		}
		sets[i] = p.choices(v, stock, j)
	}
	picked := solve(sets, free)
	p.apply(v, all, stock, jobs, sets, picked)
	return all.Plan("configurations by goodput", "another configuration, or other jobs gain more by its devices")
}

// remember records what jobs hold, and forgets those that have ended.
func (p *Policy) remember(jobs []*policy.Job) {
	last := make(map[policy.JobName]int, len(jobs))
	for _, j := range jobs {
		if n := j.Gang().Size(); n > 0 {
			last[j.Name()] = n
		} else if n := p.m.Last[j.Name()]; n > 0 {
			last[j.Name()] = n
		}
	}
	p.m.Last, p.m.Wanted = last, map[policy.JobName]wanted{}
}

// mixed reports whether a job runs on devices of several types, or as several forks.
func mixed(v *policy.View, j *policy.Job) bool {
	return j.Running() && !j.Ending && (len(j.Gangs) > 1 || cluster.TypeOf(v.Nodes, j.Gang()) == "")
}

// choices lists the configurations of a job with their worth.
func (p *Policy) choices(v *policy.View, stock *policy.Inventory, j *policy.Job) []choice {
	var all []choice
	worst := math.Inf(1)
	for k := range stock.Types() {
		for _, n := range configurations(stock, j, k) {
			if rate := stock.Rate(j, k, n); rate > 0 {
				all = append(all, choice{kind: k, devices: n, worth: rate})
				worst = min(worst, rate)
			}
		}
	}
	most := max(j.Demand.Min, 1, 2*p.m.Last[j.Name()])
	all = slices.DeleteFunc(all, func(c choice) bool { return c.devices > most })
	held, kind := j.Gang().Size(), stock.KindOf(v, j.Gang())
	factor := p.restartFactor(v, j)
	for i, c := range all {
		gain := c.worth / worst
		if j.Running() && !j.Ending && (c.devices != held || c.kind != kind) {
			gain *= factor
		}
		all[i].worth = max(j.Weight*j.App.Weight, 1e-9) * (p.queue - math.Pow(gain, p.power))
		all[i].held = j.Running() && !j.Ending && c.devices == held && c.kind == kind
	}
	return all
}

// restartFactor discounts a change of a job's configuration: the part of its time that it would have trained if it
// changed as often as so far (section 3.4).
func (p *Policy) restartFactor(v *policy.View, j *policy.Job) float64 {
	age, lost := v.Now.Sub(j.Created).Seconds(), p.restart.Seconds()
	return max((age-float64(max(0, j.Leases-1))*lost)/(age+lost), 0.01)
}

// configurations lists the numbers of devices of a type that a job may get: its least, powers of two up to a node, and
// whole nodes.
func configurations(stock *policy.Inventory, j *policy.Job, kind int) []int {
	most, least := stock.Most(j.Demand, kind), max(1, j.Demand.Min)
	if most < least {
		return nil
	}
	all, node := []int{least}, 1
	for n := 1; n <= most; n++ {
		if stock.Locality(kind, n) <= cluster.SameMachine {
			node = n
		}
		if n > least && (n <= node && n&(n-1) == 0 || n%node == 0) {
			all = append(all, n)
		}
	}
	return all
}

// apply places the jobs as chosen: first those that stay, then the largest.
func (p *Policy) apply(v *policy.View, all *policy.Planner, stock *policy.Inventory, jobs []*policy.Job, sets [][]choice, picked []int) {
	var order []int
	for i, j := range jobs {
		switch c := picked[i]; {
		case c < 0:
		case sets[i][c].held:
			all.Keep(j)
		default:
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Compare(sets[b][picked[b]].devices, sets[a][picked[a]].devices)
	})
	for _, i := range order {
		j, c := jobs[i], sets[i][picked[i]]
		w := wanted{stock.Types()[c.kind], c.devices}
		if place(all, j, w, reasonOf(w)) {
			p.m.Wanted[j.Name()] = w
		} else if j.Running() && !j.Ending {
			all.Keep(j)
		}
	}
	for _, j := range jobs { // fragments that no configuration fits
		if _, chosen := p.m.Wanted[j.Name()]; j.Waiting() && !chosen && v.Free.FreeDevices() > 0 {
			if g, ok := all.Free().Place(j.Demand, max(1, j.Demand.Min), ""); ok {
				all.PlaceOn(j, all.PreferFreeNow(j, g), "free, and no other configuration fits")
			}
		}
	}
}

// place gives a job its configuration, now or once the devices are free.
func place(plan *policy.Planner, j *policy.Job, w wanted, reason string) bool {
	try := plan.Statement()
	if j.Running() && !j.Ending {
		plan.Drop(j)
	}
	g, ok := plan.Free().Place(j.Demand, w.Devices, w.Type)
	if ok && plan.PlaceOn(j, plan.PreferFreeNow(j, g), reason) {
		try.Commit()
		return true
	}
	try.Discard()
	return false
}

func reasonOf(w wanted) string {
	return fmt.Sprintf("%d x %s has the most goodput for its fairness", w.Devices, w.Type)
}
