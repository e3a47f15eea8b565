// Package hadar is Hadar's scheduler (Sultana et al., "Hadar: Heterogeneity-Aware Optimization-Based Online Scheduling
// for Deep Learning Clusters"). Devices have prices that rise as they are taken, a job's payoff is its utility minus
// the cost of its devices, and a dynamic program picks the jobs and devices of a round that maximise the sum of
// payoffs.
//
// Unlike other schedulers, Hadar may run the tasks of one job on several device types at once; the slowest sets the
// job's pace (eq. 1b). A job does so if it may mix types (resources: mixed), and uses several nodes if it may spread.
//
// HadarE (section V) is the same for jobs that may be forked: nodes that a round leaves idle get further forks of such
// jobs, each with a share of the steps (package fork). See forks.go for its differences from the paper.
//
// # Differences from the paper
//
//   - Algorithm 2 as printed compares the costs of taking and of leaving a job, which would leave every job. Here the
//     sums of payoffs are compared, which eq. 8 maximises.
//   - Algorithm 2 returns at the first job without an allocation; here it continues with the others.
//   - Algorithm 2 takes a job's cheapest allocation. Eq. 4 takes the one with the largest payoff, which differs if
//     types differ in speed and is the default here; Variant.Cheapest selects Algorithm 2's.
//   - Algorithm 2 subtracts the price of one round from a utility. Equations 3a and 8 sum the prices over all slots of a
//     schedule; Variant.Charge does that, at the prices of this round.
//   - The paper does not define the communication cost of an allocation over several nodes. Here it is the job's loss:
//     its measured or assumed slowdown, which lowers its utility.
//   - The program over all jobs takes time exponential in their number. Here it is exact for each window of jobs, those
//     with the largest payoff per device first; prices carry over from window to window.
//   - FIND_ALLOC considers the few cheapest allocations of a job. On small cases the sum is .98 to .99 of that of an
//     exact solver over all allocations (exact_test.go).
//   - A price may keep a job off a device that no other job wants. With Conserve, the default, jobs that the
//     program left out get such devices; without it the policy follows the paper.
package hadar

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/policy"
)

// Policy is Hadar's scheduler. When a round begins and jobs or nodes have changed since the last, all jobs are
// allocated again, including running ones; otherwise running jobs stay, and waiting ones get free devices.
type Policy struct {
	Variant

	round   time.Duration
	restart float64 // seconds
	preempt bool
	// forks selects HadarE.
	forks bool
	s     state
}

// state is the policy's snapshot.
type state struct {
	// Next is when the next round begins, or zero before the first.
	Next time.Time `json:"next"`
	// Seen is the hash of the jobs and nodes when the last round began.
	Seen uint64 `json:"seen,omitempty"`
}

// Variant selects rules that differ from the default ones, for comparisons. No option of the product changes them; the
// lab (orchestrator/lab/policy/ablation) has options for them.
type Variant struct {
	// Window is the number of trials that the dynamic program decides about at once.
	Window int
	// Relative divides a trial's utility, its steps per second, by its rate on its fastest devices.
	Relative bool
	// Cheapest gives a trial the cheapest allocation (algorithm 2), not the one with the largest payoff (eq. 4).
	Cheapest bool
	// Charge subtracts from a utility the devices' price for all rounds until the trial would end there (equations 3a and
	// 8), and not for one round as algorithm 2 does.
	Charge bool
	// Conserve gives devices that prices would leave idle to waiting trials.
	Conserve bool
	// Always allocates running trials again in every round, also if trials and nodes have not changed.
	Always bool
}

// Default returns the variant that the product uses.
func Default() Variant { return Variant{Window: 8, Conserve: true} }

// New makes the policy from its options.
func New(o *policy.Options) policy.Policy { return NewVariant(o, Default()) }

// NewVariant makes a variant of the policy from its options.
func NewVariant(o *policy.Options, v Variant) *Policy {
	return &Policy{
		Variant: v,
		round:   o.Duration("round", 6*time.Minute, "length of a round"),
		restart: o.Duration("restart", 10*time.Second,
			"time that a trial loses when its devices change; a trial that would gain less is not moved").Seconds(),
		preempt: o.Bool("preempt", true, "allocate running trials again in each round; otherwise they keep their devices"),
	}
}

// Name implements policy.Policy.
func (p *Policy) Name() string {
	if p.forks {
		return "hadare"
	}
	return "hadar"
}

// Preempts implements policy.Preemptive.
func (p *Policy) Preempts() bool { return p.preempt }

// ForksJobs implements policy.Forking.
func (p *Policy) ForksJobs() bool { return p.forks }

// Snapshot implements policy.Policy.
func (p *Policy) Snapshot() ([]byte, error) {
	data, err := json.Marshal(p.s)
	if err != nil {
		return nil, fmt.Errorf("write the state of policy hadar: %w", err)
	}
	return data, nil
}

// Restore implements policy.Policy.
func (p *Policy) Restore(data []byte) error {
	var s state
	if err := json.Unmarshal(data, &s); err != nil {
		return fmt.Errorf("read the state of policy hadar: %w", err)
	}
	p.s = s
	return nil
}

// beginRound reports whether a round begins in which running jobs are allocated again. If jobs and nodes are the same
// as in the last round all stay: a change would require a waiting job to have gained on the running ones, and waiting
// does not increase a job's payoff.
func (p *Policy) beginRound(v *policy.View) bool {
	if v.Now.Before(p.s.Next) {
		return false
	}
	p.s.Next = v.Now.Add(p.round)
	seen := v.JobsHash()
	same := seen == p.s.Seen
	p.s.Seen = seen
	return p.Always || !same
}

// Decide implements policy.Policy.
func (p *Policy) Decide(v *policy.View) policy.Plan {
	if p.forks {
		return p.decideForks(v)
	}
	var plan *policy.Planner
	jobs, reason := v.Waiting(), "jobs that wait, by payoff"
	if p.preempt && p.beginRound(v) {
		plan, jobs, reason = policy.Preempt(v), v.Jobs(), "a round: all jobs, by payoff"
	} else {
		plan = policy.Refill(v)
	}
	r := p.newRound(v, plan, jobs)
	for len(r.queue) > 0 && r.free.FreeDevices() > 0 {
		r.window()
	}
	if p.Conserve {
		r.fill()
	}
	done := plan.Plan(reason, "others are worth more than it on these devices, at their prices")
	if p.preempt && len(v.Jobs()) > 0 {
		done.Next = p.s.Next
	}
	return done
}
