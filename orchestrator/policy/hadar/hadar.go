// Package hadar is Hadar's scheduler (Sultana et al., "Hadar: Heterogeneity-Aware Optimization-Based Online Scheduling for
// Deep Learning Clusters"): devices have prices that rise as they are taken, a job is worth its utility less what its
// devices cost, and a dynamic program picks the jobs and their devices of a round so that the sum is largest.
//
// What sets Hadar apart is that the tasks of one job may run on devices of several types at once; the slowest of them sets
// the job's pace (eq. 1b). A job does so if it may mix types (resources: mixed), and over several nodes if it may spread.
//
// HadarE (section V), the same with jobs that may be forked, stands on it: what a round leaves idle goes to further copies of
// such jobs, each with a share of the steps (package fork). forks.go says where that differs from the paper.
//
// # Where this differs from the paper, and why
//
//   - Algorithm 2 as printed compares the costs of taking and of leaving a job, by which every job would be left. Here the
//     sums of payoffs are compared, which is what eq. 8 maximises.
//   - It returns at the first job for which there is no allocation; here the others go on.
//   - Among a job's allocations it takes the cheapest. Eq. 4 takes that of the largest payoff, which is not the same where
//     types differ in speed, and which is the default here: choose=cost is Algorithm 2's.
//   - Its communication cost of an allocation over several nodes is not given. Here it is what the job loses: its measured
//     or assumed slowdown there, by which its utility falls.
//   - The program over all jobs grows exponentially with them. Here it is exact for each window of jobs, those with the
//     largest payoff for a device first; prices carry over from window to window.
//   - FIND_ALLOC looks at the few cheapest allocations of a job. On small cases the sum is .98 to .99 of what an exact solver finds among
//     all allocations (exact_test.go).
//   - A price may keep a job off a device that nobody else wants. With conserve=true, the default, such devices go to the
//     jobs that the program left out; conserve=false is the paper's.
package hadar

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/policy"
)

// Policy is Hadar's scheduler. When a round begins before which a job or a node came or went, all are allocated anew, running jobs
// included; otherwise who runs stays, and jobs that wait take what is free.
type Policy struct {
	round    time.Duration
	restart  float64 // seconds
	window   int
	relative bool
	cheapest bool
	conserve bool
	preempt  bool
	always   bool
	// forks says that it is HadarE.
	forks bool
	s     state
}

// state is the policy's snapshot.
type state struct {
	// Next is when the next round begins; zero before the first.
	Next time.Time `json:"next"`
	// Seen stands for the jobs and nodes that there were when a round last began.
	Seen uint64 `json:"seen,omitempty"`
}

// New makes the policy from its options.
func New(o *policy.Options) policy.Policy {
	return &Policy{
		round: o.Duration("round", 6*time.Minute, "length of a round"),
		restart: o.Duration("restart", 10*time.Second,
			"what a job loses when its devices change; one that would gain less stays where it is").Seconds(),
		window: o.Int("window", 8, 1, 16, "jobs that the program decides about at once"),
		relative: o.Text("utility", "throughput",
			"of a job: steps per second over its life, or relative: that as a part of what it could do alone on its fastest devices",
			"throughput", "relative") == "relative",
		cheapest: o.Text("choose", "payoff", "which of a job's allocations: the one of the largest payoff (eq. 4), or of the least cost "+
			"(algorithm 2)", "payoff", "cost") == "cost",
		conserve: o.Bool("conserve", true, "give devices that prices would leave idle to jobs that wait"),
		always: o.Text("anew", "changed", "in which rounds running jobs are allocated anew: those before which a job or a node came or went, or "+
			"always", "changed", "always") == "always",
		preempt: o.Bool("preempt", true, "allocate running jobs anew in each round; otherwise they keep what they have"),
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

// begins says whether a round begins in which running jobs are allocated anew. In one that finds the same jobs and nodes as the last
// everybody stays: who waits would have to be worth more by now than who runs, and waiting makes nobody worth more.
func (p *Policy) begins(v *policy.View) bool {
	if v.Now.Before(p.s.Next) {
		return false
	}
	p.s.Next = v.Now.Add(p.round)
	seen := v.JobsHash()
	same := seen == p.s.Seen
	p.s.Seen = seen
	return p.always || !same
}

// Decide implements policy.Policy.
func (p *Policy) Decide(v *policy.View) policy.Plan {
	if p.forks {
		return p.decideForks(v)
	}
	var plan *policy.Planner
	jobs, reason := v.Waiting(), "jobs that wait, by payoff"
	if p.preempt && p.begins(v) {
		plan, jobs, reason = policy.Preempt(v), v.Jobs(), "a round: all jobs, by payoff"
	} else {
		plan = policy.Refill(v)
	}
	r := p.newRound(v, plan, jobs)
	for len(r.queue) > 0 && r.free.FreeDevices() > 0 {
		r.window()
	}
	if p.conserve {
		r.fill()
	}
	done := plan.Plan(reason, "others are worth more than it on these devices, at their prices")
	if p.preempt && len(v.Jobs()) > 0 {
		done.Next = p.s.Next
	}
	return done
}
