package baseline

import "github.com/outbid-dev/outbid/orchestrator/policy"

// Spread is Spreading as defined in OGASched's evaluation (section 4.1): like BinPacking, but each job goes to the node
// with the lowest utilisation that has room, like Kubernetes' LeastAllocated strategy. It does not preempt.
type Spread struct{ stateless }

// Name implements policy.Policy.
func (Spread) Name() string { return "spread" }

// Decide implements policy.Policy.
func (Spread) Decide(v *policy.View) policy.Plan {
	return scored(v, "the emptiest node with room", func(full float64) float64 { return -full })
}
