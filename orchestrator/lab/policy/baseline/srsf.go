package baseline

import (
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/policy/baseline"
)

// SRSF is preemptive shortest remaining service first. Service is time x GPUs, so a job on many GPUs comes after one of
// the same length on few (Tiresias, NSDI 2019, section 3; a baseline of Themis, NSDI 2020, section 6, which hands out
// one GPU at a time). Because service does not depend on how many GPUs a job gets, the first job stays first, GPU after
// GPU, until it has all it can use; a job that needs a gang gets it whole.
type SRSF struct {
	stateless
	Unit baseline.Unit
}

// Name implements policy.Policy.
func (SRSF) Name() string { return "srsf" }

// Preempts implements policy.Preemptive.
func (SRSF) Preempts() bool { return true }

// Decide implements policy.Policy.
func (s SRSF) Decide(v *policy.View) policy.Plan {
	key := func(j *policy.Job) float64 { return baseline.ServiceLeft(v, j) }
	if s.Unit == baseline.ByApp {
		key = baseline.PerApp(v, baseline.AppServiceLeft)
	}
	return baseline.ByKey(v, key, "the least remaining service of those that waited", "another needs less service", "shortest remaining service first")
}
