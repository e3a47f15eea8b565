package baseline

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/policy"
)

// Tiresias is discretised two-dimensional least attained service (NSDI 2019, section 4). A job's attained service, GPUs
// x time, determines its queue: the less service, the higher the queue. Within a queue running jobs continue and others
// wait in order of arrival, so only a job of a higher queue evicts one of a lower queue. Gangs are consolidated on one
// node if they fit. All queues are served every Interval; in between, free devices are handed out in the same order. A
// job below the top queue that has waited Promote times as long as it has run returns to the top as if it were new.
type Tiresias struct {
	// Thresholds between queues in GPU-seconds, ascending.
	Thresholds []float64
	Interval   time.Duration
	// Promote is the promotion knob; 0 for never.
	Promote float64
	Unit    Unit

	state tiresiasState
}

// tiresiasState is the state of Tiresias.
type tiresiasState struct {
	// Last is when all queues were last served.
	Last time.Time
	// Forgiven is the service of promoted jobs, in GPU-seconds, that no longer counts.
	Forgiven map[policy.JobName]float64 `json:",omitempty"`
}

// Name implements policy.Policy.
func (*Tiresias) Name() string { return "tiresias" }

// Preempts implements policy.Preemptive.
func (*Tiresias) Preempts() bool { return true }

// Snapshot implements policy.Policy.
func (t *Tiresias) Snapshot() ([]byte, error) { return json.Marshal(t.state) }

// Restore implements policy.Policy.
func (t *Tiresias) Restore(b []byte) error {
	t.state = tiresiasState{}
	if err := json.Unmarshal(b, &t.state); err != nil {
		return fmt.Errorf("tiresias: snapshot: %w", err)
	}
	return nil
}

// NewTiresias makes it from options.
func NewTiresias(o *policy.Options) *Tiresias {
	return &Tiresias{
		Thresholds: o.Ascending("threshold", "3600", "attained GPU-seconds from which a trial is in the next lower queue"),
		Interval:   o.Duration("interval", time.Minute, "time between two reviews of the queues"),
		Promote: o.Float("promote", 0, 0, 1e9,
			"a trial that waited this many times as long as it ran returns to the top queue; 0 for never"),
		Unit: UnitOption(o),
	}
}

// Decide implements policy.Policy.
func (t *Tiresias) Decide(v *policy.View) policy.Plan {
	due := t.state.Last.IsZero() || !v.Now.Before(t.state.Last.Add(t.Interval))
	if !due && v.Free.FreeDevices() == 0 {
		return policy.Plan{Next: t.state.Last.Add(t.Interval)}
	}
	if due {
		t.state.Last = v.Now
		t.promote(v)
	}
	const round = "least attained service first"
	for range v.Line() {
		p := policy.Refill(v)
		left := t.serve(v, p, due)
		plan := p.Plan(round, "")
		if left {
			plan.Next = t.state.Last.Add(t.Interval)
		}
		return plan
	}
	return policy.Plan{Reason: round} // no job waits
}

// serve lets waiting jobs, queue by queue, take free devices and, if due, those of jobs in lower queues. It reports
// whether some jobs still wait.
func (t *Tiresias) serve(v *policy.View, p *policy.Planner, due bool) (left bool) {
	c := &contest{v: v, p: p, reason: "the highest queue that waited", evicted: "another job had less service"}
	queueOf := t.queueOf(v)
	if due {
		c.victims = t.victims(v, queueOf)
	}
	for q := range len(t.Thresholds) + 1 {
		before := func(victim *policy.Job) bool { return q < queueOf(victim) }
		for _, a := range v.Apps {
			for _, j := range a.Jobs {
				if !j.Waiting() || queueOf(j) != q {
					continue
				}
				if c.hopeless(before) {
					return true
				}
				if !c.admit(j, before) {
					left = true
				}
			}
		}
	}
	return left
}

// victims returns the running jobs below the top queue: the lowest queue first, and in it the latest to arrive first.
func (t *Tiresias) victims(v *policy.View, queueOf func(*policy.Job) int) []*policy.Job {
	var all []*policy.Job
	for q := len(t.Thresholds); q > 0; q-- {
		for _, a := range slices.Backward(v.Apps) {
			for _, j := range slices.Backward(a.Jobs) {
				if j.Running() && !j.Ending && queueOf(j) == q {
					all = append(all, j)
				}
			}
		}
	}
	return all
}

// queueOf returns a function that returns a job's queue by its attained service, 0 for the top.
func (t *Tiresias) queueOf(v *policy.View) func(*policy.Job) int {
	if t.Unit == ByApp {
		service := PerApp(v, appAttained)
		return func(j *policy.Job) int { return t.queue(service(j)) }
	}
	return func(j *policy.Job) int { return t.queue(v.Attained(j) - t.forgiven(j)) }
}

// queue returns the queue for an amount of service.
func (t *Tiresias) queue(service float64) int {
	q := 0
	for q < len(t.Thresholds) && service >= t.Thresholds[q] {
		q++
	}
	return q
}

func (t *Tiresias) forgiven(j *policy.Job) float64 {
	if len(t.state.Forgiven) == 0 {
		return 0
	}
	return t.state.Forgiven[j.Name()]
}

// promote forgives the service of jobs that have starved, and drops entries of jobs that are gone.
func (t *Tiresias) promote(v *policy.View) {
	if t.Promote == 0 || t.Unit == ByApp {
		return
	}
	kept := map[policy.JobName]float64{}
	for _, a := range v.Apps {
		for _, j := range a.Jobs {
			f := t.forgiven(j)
			ran := (j.DeviceSeconds - f) / float64(max(1, j.Demand.Min))
			if j.Waiting() && t.queue(j.DeviceSeconds-f) > 0 && v.Now.Sub(j.Queued).Seconds() >= t.Promote*ran {
				f = j.DeviceSeconds
			}
			if f > 0 {
				kept[j.Name()] = f
			}
		}
	}
	t.state.Forgiven = nil
	if len(kept) > 0 {
		t.state.Forgiven = kept
	}
}

// appAttained returns the device-seconds of a sweep so far.
func appAttained(v *policy.View, a *policy.App) float64 {
	sum := a.DeviceSeconds
	for _, j := range a.Jobs {
		sum += v.Attained(j) - j.DeviceSeconds
	}
	return sum
}
