package elastic

import (
	"time"

	"github.com/outbid-dev/outbid/orchestrator/policy"
)

// NewSLAQ makes SLAQ (Zhang et al., "SLAQ: Quality-Driven Scheduling for Distributed Machine Learning", SoCC 2017,
// section 4).
//
// For every job the loss is predicted from its history (section 4.1: a fit with weights that fall with age), and
// normalised by its largest change so far, so that different jobs can be compared. At each epoch jobs get their least
// number of devices in order of the predicted reduction of the loss per device until the next epoch, and then each
// further device goes to the job whose loss it reduces most in that time.
//
// Simplifications: the paper selects the family of curves by the job's optimiser (1/(ak^2+bk+c)+d, or mu^(k-b)+c); here
// both A/(k+b)+d and A*mu^k+d are fitted and the better one is used. For a job with fewer than three reports the
// normalised loss is assumed to be 1/(1+10x) after a fraction x of its steps: steep at first, like real losses. A
// metric that is maximised is negated. The epoch is 10 minutes instead of seconds because a change of size costs a
// checkpoint here; the option "delay" is subtracted from the next epoch of a job that would be started, moved or
// resized, and the option "stick" keeps devices in place if others gain little more.
func NewSLAQ(o *policy.Options) policy.Policy {
	epoch := o.Duration("epoch", 10*time.Minute, "time between two decisions on all sizes")
	delay := o.Duration("delay", 30*time.Second, "time that a trial loses by a start or a change of size")
	return &Policy{name: "slaq", sizer: &greedy{every: epoch, stick: stickOf(o), value: func(
		v *policy.View, s *policy.Inventory, jobs []*policy.Job,
	) func(i int) value {
		return func(i int) value {
			j := jobs[i]
			loss, at := predict(j), v.StepAt(j)
			end := float64(max(j.TotalSteps, j.UntilStep))
			falls := func(kind, n int) float64 {
				seconds := epoch.Seconds()
				if n != j.Gang().Size() {
					seconds = max(0, seconds-delay.Seconds())
				}
				reached := at + s.Rate(j, kind, n)*seconds
				if end > 0 {
					reached = min(reached, max(end, at))
				}
				return loss(at) - loss(reached)
			}
			return value{job: j, first: perDevice(v, s, j, falls), gain: func(kind, n int) float64 {
				return falls(kind, n+1) - falls(kind, n)
			}}
		}
	}}}
}

// perDevice returns the reduction of the loss per device of a job's least number, on its present or its best type.
func perDevice(v *policy.View, s *policy.Inventory, j *policy.Job, falls func(kind, n int) float64) float64 {
	n := max(1, j.Demand.Min)
	if j.Running() {
		if kind := s.KindOf(v, j.Gang()); kind >= 0 {
			return falls(kind, j.Gang().Size()) / float64(j.Gang().Size())
		}
		return 0
	}
	best := 0.0
	for kind := range s.Types() {
		if s.Most(j.Demand, kind) >= n {
			best = max(best, falls(kind, n)/float64(n))
		}
	}
	return best
}
