package baseline

import "github.com/outbid-dev/outbid/orchestrator/policy"

// BinPack is BinPacking as OGASched compares itself with it (section 4.1): jobs in order of arrival, each on the node
// with the highest utilisation that has room, as Kubernetes' MostAllocated strategy does. Nothing is preempted.
type BinPack struct{ stateless }

// Name implements policy.Policy.
func (BinPack) Name() string { return "binpack" }

// Decide implements policy.Policy.
func (BinPack) Decide(v *policy.View) policy.Plan {
	return scored(v, "the fullest node with room", func(full float64) float64 { return full })
}
