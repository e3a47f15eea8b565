package rrh

import (
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/spec/terms"
)

// utility is what a job's end is worth so many seconds after its arrival; it never rises.
type utility struct {
	// said is what the app says; nil for nothing.
	said *terms.Utility
	// If it says nothing: priority until alone seconds, then down to 0 in a straight line in so many seconds more.
	priority, alone, patience float64
}

// utilityOf is as the job's app says: like OASiS's, priority / (1 + exp(decay*(t - target))). If it says nothing the end is
// worth the device-seconds that the job needs, and loses its worth, from when it could have been at the earliest, over
// patience times the run time.
func utilityOf(a *policy.App, runtime float64, devices int, weight, patience float64) utility {
	if u := a.Utility; u != nil {
		return utility{said: u}
	}
	return utility{priority: weight * runtime * float64(devices), alone: runtime, patience: patience * runtime}
}

// at is the worth of an end so many seconds after the arrival.
func (u *utility) at(seconds float64) float64 {
	if u.said != nil {
		return u.said.Value(seconds)
	}
	if late := seconds - u.alone; late > 0 {
		return u.priority * max(0, 1-late/max(u.patience, 1e-9))
	}
	return u.priority
}
