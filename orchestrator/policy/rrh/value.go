package rrh

import (
	"math"
	"strconv"

	"github.com/outbid-dev/outbid/orchestrator/policy"
)

// Labels of a sweep that say what the end of one of its trials is worth t seconds after it was created, as in OASiS:
// priority / (1 + exp(decay*(t - target))).
const (
	LabelPriority = "utility.priority"
	LabelDecay    = "utility.decay"
	LabelTarget   = "utility.target"
)

// utility is what a job's end is worth so many seconds after its arrival; it never rises.
type utility struct {
	sigmoid                 bool
	priority, decay, target float64
	// Without a sigmoid: priority until alone seconds, then down to 0 in a straight line in so many seconds more.
	alone, patience float64
}

// utilityOf reads the labels of a job's app. Without them the end is worth the device-seconds that the job needs, and
// loses its worth, from when it could have been at the earliest, over patience times the run time.
func utilityOf(a *policy.App, runtime float64, devices int, weight, patience float64) utility {
	u := utility{priority: weight * runtime * float64(devices), alone: runtime, patience: patience * runtime}
	labels := a.Spec.GetLabels()
	priority, err := strconv.ParseFloat(labels[LabelPriority], 64)
	if err != nil || !(priority >= 0) || math.IsInf(priority, 0) {
		return u
	}
	u.sigmoid, u.priority = true, priority
	u.decay, u.target = number(labels[LabelDecay]), number(labels[LabelTarget])
	return u
}

// number is a label's value; 0 if it is absent, or no number.
func number(text string) float64 {
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
		return 0
	}
	return f
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
