package rrh

import (
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/spec/terms"
)

// utility is the worth of a job's end by the seconds since its arrival; it never rises.
type utility struct {
	// said is the sweep's utility, or nil.
	said *terms.Utility
	// Without it: priority until alone seconds, then falling linearly to 0 in patience seconds.
	priority, alone, patience float64
}

// utilityOf returns the utility of the job's sweep: like OASiS's, priority / (1 + exp(decay*(t - target))). Without one
// the end is worth the device-seconds that the job needs, and that worth falls to 0, from the earliest possible end,
// over patience times the run time.
func utilityOf(a *policy.App, runtime float64, devices int, weight, patience float64) utility {
	if u := a.Utility; u != nil {
		return utility{said: u}
	}
	return utility{priority: weight * runtime * float64(devices), alone: runtime, patience: patience * runtime}
}

// at returns the worth of an end at the given seconds after the arrival.
func (u *utility) at(seconds float64) float64 {
	if u.said != nil {
		return u.said.Value(seconds)
	}
	if late := seconds - u.alone; late > 0 {
		return u.priority * max(0, 1-late/max(u.patience, 1e-9))
	}
	return u.priority
}
