package elastic

import (
	"time"

	"github.com/outbid-dev/outbid/orchestrator/policy"
)

// NewSLAQ makes SLAQ (Zhang et al., "SLAQ: Quality-Driven Scheduling for Distributed Machine Learning", SoCC 2017,
// section 4).
//
// Definition used. For every job the loss is predicted from its history (section 4.1: a fit with weights that fall with
// age), and normalised by the largest change that it has seen, so that unlike jobs compare. At each epoch jobs get their
// least number of devices in order of the loss that each device of it is predicted to take off until the next epoch, and
// then one device after another goes to the job whose loss it lowers most in that time.
//
// Simplified: the paper picks the family of curves by the job's optimiser (1/(ak^2+bk+c)+d, or mu^(k-b)+c); here both
// A/(k+b)+d and A*mu^k+d are fitted and the better one is taken. A job with fewer than three reports counts as if its
// normalised loss were 1/(1+10x) after a share x of its steps: steep at first, as losses are. Of a metric that is
// maximised the negative is the loss. The epoch is 10 minutes instead of seconds, since here a change of size costs a
// checkpoint; the option "delay" is taken off the next epoch of a job that would be started, moved or resized,
// and the option "stick" keeps devices where others gain little more.
func NewSLAQ(o *policy.Options) policy.Policy {
	epoch := o.Duration("epoch", 10*time.Minute, "time between two decisions on all sizes")
	delay := o.Duration("delay", 30*time.Second, "what a start or a change of size costs a job")
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

// perDevice is the loss that each device of a job's least number takes off, on the type it runs on or its best.
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
