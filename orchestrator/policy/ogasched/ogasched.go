// Package ogasched is OGASched (Zhao et al., "Scheduling Multi-Server Jobs with Sublinear Regrets via Online Learning")
// for a cluster of whole devices and jobs that run over many slots. Package ascent has the algorithm, and package slots of
// the lab the paper's own model.
//
// A sweep is a port (type of job), a node an instance, and a device type a kind of resource. After each slot, the share
// of each sweep in each node moves one step up the gradient of the slot's reward,
//
//	sum over nodes of alpha*f(y) - max over types of beta * sum over nodes of y
//
// and is projected onto the feasible set: at most what the node has, and at most what the sweep's trials can use there.
// f is one of the paper's four utilities. alpha is the sweep's speed on that type over its speed on its best one, times
// its weight. All running and waiting trials of a sweep share its port (section 3.4's several arrivals, combined).
//
// Rounding. A sweep's share of a type is the sum of its fractions. At the end of a slot its running trials are kept up
// to its share, rounded up, and waiting ones are placed up to its share, rounded down, on the nodes where its share is
// largest. So a share that fluctuates around a whole number stops no trial. A gang is placed whole or not at all. Free
// devices that remain go to sweeps whose share exceeds their holdings the most, and a trial whose devices no other
// trial wants keeps them. The reason of each slot's round contains the worth of the fractions and that of the whole
// devices.
package ogasched

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/policy/ogasched/ascent"
)

// Policy is OGASched.
type Policy struct {
	Variant

	slot    time.Duration
	beta    float64
	preempt bool
	m       memory
}

// memory is the policy's state.
type memory struct {
	// Next is when the slot ends, or zero before the first.
	Next time.Time `json:"next"`
	// Rate is the length of the next step.
	Rate float64 `json:"rate"`
	// Shares are the fractions of devices kept for each sweep, by node and type ("node-1/v100").
	Shares map[string]map[string]float64 `json:"shares"`
}

// Variant selects rules that differ from the default ones, for comparisons. No option of the product changes them; the
// lab (orchestrator/lab/policy/ablation) has options for them.
type Variant struct {
	// Utility is the form of a sweep's gain from the number of its devices on a node.
	Utility ascent.Utility
	// Rate is the length of the first step up the gradient, and Decay that of each later one as a fraction of the step
	// before it.
	Rate, Decay float64
}

// Default returns the variant that the product uses.
func Default() Variant { return Variant{Utility: ascent.Log, Rate: 2, Decay: 0.9999} }

// New makes the policy from its options.
func New(o *policy.Options) policy.Policy { return NewVariant(o, Default()) }

// NewVariant makes a variant of the policy from its options.
func NewVariant(o *policy.Options, v Variant) *Policy {
	p := &Policy{
		Variant: v,
		slot:    o.Duration("slot", time.Minute, "length of a slot; shares are learnt, and running trials may be stopped, after each slot"),
		beta:    o.Float("beta", 0.05, 0, 1, "communication overhead of a device, relative to a gain of 1 for the first device"),
		preempt: o.Bool("preempt", true, "stop trials of sweeps that hold more than their share if others hold less"),
	}
	p.reset()
	return p
}

func (p *Policy) reset() { p.m = memory{Rate: p.Rate, Shares: map[string]map[string]float64{}} }

// Name implements policy.Policy.
func (p *Policy) Name() string { return "ogasched" }

// Preempts implements policy.Preemptive.
func (p *Policy) Preempts() bool { return p.preempt }

// Snapshot implements policy.Policy.
func (p *Policy) Snapshot() ([]byte, error) { return json.Marshal(p.m) }

// Restore implements policy.Policy.
func (p *Policy) Restore(b []byte) error {
	p.reset()
	if err := json.Unmarshal(b, &p.m); err != nil {
		return fmt.Errorf("ogasched: snapshot: %w", err)
	}
	return nil
}

// Decide implements policy.Policy.
func (p *Policy) Decide(v *policy.View) policy.Plan {
	jobs := v.Jobs()
	if len(jobs) == 0 {
		return policy.Plan{Reason: "no jobs"}
	}
	m := p.instance(v)
	var plan policy.Plan
	if v.Now.Before(p.m.Next) {
		fill := policy.Refill(v)
		fill.Fill(m.byNeed(v.Waiting()), "free, and its sweep holds least of its share")
		plan = fill.Plan("free devices, within a slot", "")
	} else {
		m.learn(p)
		p.m.Next, p.m.Rate = v.Now.Add(p.slot), p.m.Rate*p.Decay
		plan = p.divide(v, m, jobs)
	}
	plan.Next = p.m.Next
	return plan
}

// divide gives out devices by the shares of a new slot.
func (p *Policy) divide(v *policy.View, m *instance, jobs []*policy.Job) policy.Plan {
	fractions := m.reward(p, func(s *port) []float64 { return s.y })
	var plan *policy.Planner
	if p.preempt {
		plan = policy.Preempt(v)
		m.keepRunning(plan, jobs)
	} else {
		plan = policy.Refill(v)
	}
	m.place(plan, m.byNeed(v.Waiting()))
	for _, j := range jobs {
		plan.Keep(j)
	}
	plan.Fill(m.byNeed(v.Waiting()), "free, and its sweep holds least of its share")
	whole := m.reward(p, func(s *port) []float64 { return s.given })
	reason := fmt.Sprintf("a slot: fractions of devices would be worth %.2f, the whole ones of them %.2f", fractions, whole)
	return plan.Plan(reason, "its sweep holds more than its share, others less than theirs")
}
