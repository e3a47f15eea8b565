package rrh

import (
	"math"

	"github.com/outbid-dev/outbid/orchestrator/policy"
)

// utility is what a job's end is worth so many seconds after its arrival; it never rises.
type utility struct {
	sigmoid                 bool
	priority, decay, target float64
	// Without a sigmoid: priority until alone seconds, then down to 0 in a straight line in so many seconds more.
	alone, patience float64
}

// utilityOf is as the job's app says: like OASiS's, priority / (1 + exp(decay*(t - target))). If it says nothing the end is
// worth the device-seconds that the job needs, and loses its worth, from when it could have been at the earliest, over
// patience times the run time.
func utilityOf(a *policy.App, runtime float64, devices int, weight, patience float64) utility {
	if u := a.Utility; u != nil {
		return utility{sigmoid: true, priority: u.GetPriority(), decay: u.GetDecay(), target: u.GetTarget()}
	}
	return utility{priority: weight * runtime * float64(devices), alone: runtime, patience: patience * runtime}
}

// at is the worth of an end so many seconds after the arrival.
func (u *utility) at(seconds float64) float64 {
	if u.sigmoid {
		return u.priority / (1 + math.Exp(u.decay*(seconds-u.target)))
	}
	if late := seconds - u.alone; late > 0 {
		return u.priority * max(0, 1-late/max(u.patience, 1e-9))
	}
	return u.priority
}
