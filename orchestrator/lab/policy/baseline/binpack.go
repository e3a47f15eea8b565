package baseline

import "github.com/outbid-dev/outbid/orchestrator/policy"

// BinPack is BinPacking as defined in OGASched's evaluation (section 4.1): jobs in order of arrival, each on the node
// with the highest utilisation that has room, like Kubernetes' MostAllocated strategy. It does not preempt.
type BinPack struct{ stateless }

// Name implements policy.Policy.
func (BinPack) Name() string { return "binpack" }

// Decide implements policy.Policy.
func (BinPack) Decide(v *policy.View) policy.Plan {
	return scored(v, "the fullest node with room", func(full float64) float64 { return full })
}
