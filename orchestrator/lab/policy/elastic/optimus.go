package elastic

import (
	"math"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/policy"
)

// NewOptimus makes Optimus (Peng et al., "Optimus: An Efficient Dynamic Resource Scheduler for Deep Learning Clusters",
// EuroSys 2018, section 4).
//
// At each interval every job gets its least number of devices, in order of arrival. Then each further device goes to
// the job whose remaining time it shortens most: Q/f(n) - Q/f(n+1), where Q is the steps left and f the steps per
// second on n devices. Placement begins with the smallest job and uses as few nodes as possible (section 4.2). With
// gain=throughput the criterion is f(n+1)/f(n), which Themis's evaluation attributes to Optimus.
//
// Simplifications: devices replace workers and parameter servers, and are the only resource. f is measured instead of
// fitted to the paper's model, and Q is known instead of fitted to the loss curve; jobs of unknown length have the
// median Q of the others. A change of size costs the option "delay", which the paper does not model, so no job is
// resized for less; nor for a gain that does not exceed the holder's loss by the fraction "stick", because equal jobs
// would otherwise exchange devices all the time. Between intervals, arrivals and ends distribute only free devices.
// Jobs stay on their type of device.
func NewOptimus(o *policy.Options) policy.Policy {
	every := o.Duration("interval", 10*time.Minute, "time between two decisions about all sizes")
	delay := o.Duration("delay", 30*time.Second, "time that a trial loses when its size changes")
	ratio := o.Text("gain", "time", "criterion for the next device: time, the time that it saves; or throughput, the ratio of rates",
		"time", "throughput") == "throughput"
	return &Policy{name: "optimus", sizer: &greedy{every: every, stick: stickOf(o), byArrival: true, value: func(
		v *policy.View, s *policy.Inventory, jobs []*policy.Job,
	) func(i int) value {
		left := v.StepsLeftOf(jobs)
		return func(i int) value {
			j := jobs[i]
			remaining := func(kind, n int) float64 {
				seconds := left[i] / s.Rate(j, kind, n)
				if held := j.Gang().Size(); held > 0 && held != n {
					seconds += delay.Seconds()
				}
				return seconds
			}
			return value{job: j, gain: func(kind, n int) float64 {
				saved := remaining(kind, n) - remaining(kind, n+1)
				if ratio && saved > 0 {
					return s.Rate(j, kind, n+1) / s.Rate(j, kind, n)
				}
				if math.IsNaN(saved) { // it makes no steps there
					return 0
				}
				return saved
			}}
		}
	}}}
}
