// Package lottery grants free devices to waiting jobs in an order drawn by lot, after Waldspurger and Weihl, "Lottery
// Scheduling: Flexible Proportional-Share Resource Management" (OSDI 1994). It does not preempt. In a comparison it is
// the control: a policy that does no better gains nothing from its knowledge of jobs.
//
// A job has as many tickets as its sweep has weight. It draws once, so the policy has no state: jobs in order of
// exponential times, whose rates are the tickets, are tickets drawn one after another without replacement.
package lottery

import (
	"cmp"
	"hash/fnv"
	"math/rand/v2"
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/policy"
)

// Policy draws the order of jobs.
type Policy struct{ seed uint64 }

// New makes the policy from its options.
func New(o *policy.Options) policy.Policy {
	return Policy{seed: o.Seed("seed", 1, "seed of the draws")}
}

// Name implements policy.Policy.
func (Policy) Name() string { return "lottery" }

// Decide implements policy.Policy.
func (l Policy) Decide(v *policy.View) policy.Plan {
	const why = "drawn by lot"
	p, jobs := policy.Extend(v), v.Waiting()
	turn := make(map[*policy.Job]float64, len(jobs))
	for _, j := range jobs {
		turn[j] = l.draw(j) / v.ShareOf(j.App)
	}
	slices.SortStableFunc(jobs, func(a, b *policy.Job) int { return cmp.Compare(turn[a], turn[b]) })
	p.Fill(jobs, why)
	return p.Plan(why, "")
}

// draw returns an exponentially distributed number, which depends on the seed and the job's name alone.
func (l Policy) draw(j *policy.Job) float64 {
	name, _ := j.Name().MarshalText()
	hash := fnv.New64a()
	_, _ = hash.Write(name)
	return rand.New(rand.NewPCG(l.seed, hash.Sum64())).ExpFloat64()
}

// Snapshot implements policy.Policy. The policy has no state.
func (Policy) Snapshot() ([]byte, error) { return nil, nil }

// Restore implements policy.Policy.
func (Policy) Restore([]byte) error { return nil }
