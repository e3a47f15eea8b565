package baseline

import "github.com/outbid-dev/outbid/orchestrator/policy"

// SRTF is preemptive shortest remaining time first as defined in Themis's evaluation (NSDI 2020, section 6): whenever
// devices become available each job, or each sweep, reports how long it still needs with as many devices as it could
// get, and the shortest gets what it wants first. Shorter jobs take devices from longer ones.
type SRTF struct {
	stateless
	Unit Unit
}

// Name implements policy.Policy.
func (SRTF) Name() string { return "srtf" }

// Preempts implements policy.Preemptive.
func (SRTF) Preempts() bool { return true }

// Decide implements policy.Policy.
func (s SRTF) Decide(v *policy.View) policy.Plan {
	key := func(j *policy.Job) float64 { return timeLeft(v, j) }
	if s.Unit == ByApp {
		key = PerApp(v, appTimeLeft)
	}
	return ByKey(v, key, "the shortest remaining time of those that waited", "another has less time left", "shortest remaining time first")
}
