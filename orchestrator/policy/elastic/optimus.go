package elastic

import (
	"math"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/policy"
)

// NewOptimus makes Optimus (Peng et al., "Optimus: An Efficient Dynamic Resource Scheduler for Deep Learning Clusters",
// EuroSys 2018, section 4).
//
// Definition used. At each interval every job gets its least number of devices, in order of arrival; then one device
// after another goes to the job whose remaining time it shortens most: Q/f(n) - Q/f(n+1), Q the steps that are left and
// f the steps per second of n devices. Placing begins with the smallest job and uses as few nodes as it can (section
// 4.2). With gain=throughput it is f(n+1)/f(n), the metric by which Themis's evaluation describes Optimus.
//
// Simplified: devices take the place of workers and parameter servers, and are the only resource; f is what was measured
// instead of a fit of the paper's model, and Q what is known instead of a fit of the loss curve. Jobs of which nothing
// is known have the median Q of the others. A change of size costs the option "delay", which the paper bears unnamed; so
// nothing is resized for less; nor for a gain that is not larger by the share "stick" than the loss of who holds the
// device, without which like jobs would pass their devices round. Between intervals, arrivals and ends share out only what is free. Jobs stay on the type
// of device that they run on.
func NewOptimus(o *policy.Options) policy.Policy {
	every := o.Duration("interval", 10*time.Minute, "time between two decisions on all sizes")
	delay := o.Duration("delay", 30*time.Second, "what a change of size costs a job")
	ratio := o.Text("gain", "time", "what the next device goes by: the time it saves, or the throughput ratio",
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
