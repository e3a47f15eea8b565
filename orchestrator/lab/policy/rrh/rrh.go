// Package rrh is the risk-reward heuristic of Irwin, Grit and Chase, "Balancing Risk and Reward in a Market-Based Task
// Service" (HPDC 2004), in the form that OASiS (section V-A) uses as a baseline.
//
// The worth of a job's end falls with time. With RPT the time that it still has to run,
//
//	PV     = worth of an end after RPT / (1 + discount*RPT)          (present value)
//	cost   = sum over the other jobs of what RPT of delay costs them  (opportunity cost)
//	reward = (alpha*PV - (1-alpha)*cost) / (RPT * devices)            (FirstReward, section 5 of that paper)
//
// A job is admitted on arrival if PV - cost is above a threshold. When a job arrives or ends, jobs run or pause in
// order of reward, always with the same number of devices.
//
// Simplifications: a job delays others only by the share of the cluster that it holds, so cost is weighted by that
// share; and the cost of each job's delay is linear, its loss per second if everything took RPT longer. No job is
// dropped: a job that was not admitted runs where no admitted one can. A job that would have to start pays the option
// "delay" in addition to RPT. Without a utility the end of a sweep is worth the device-seconds needed, and falls to 0
// over "patience" times the run time.
package rrh

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/policy"
)

// Policy is the risk-reward heuristic.
type Policy struct {
	alpha, threshold, discount, patience float64
	delay                                time.Duration
	workers                              int
	s                                    memory
}

// memory is the policy's state.
type memory struct {
	// Jobs is the hash of the jobs at the last ranking, and Admitted tells which were admitted on arrival.
	Jobs     uint64
	Admitted map[policy.JobName]bool
}

// New makes the policy from its options.
func New(o *policy.Options) policy.Policy {
	p := &Policy{
		alpha:     o.Float("alpha", 0.5, 0, 1, "weight of reward against risk: 1 considers only the worth, 0 only the cost of delay"),
		threshold: o.Float("threshold", 0, -1e12, 1e12, "a trial is admitted if its worth minus the cost of delay is above this"),
		discount:  o.Float("discount", 0.01, 0, 1e6, "discount rate per hour"),
		patience:  o.Float("patience", 10, 1e-3, 1e6, "number of run times after which an end is worth nothing, without a utility"),
		delay:     o.Duration("delay", 30*time.Second, "time that a start costs a trial"),
		workers:   o.Int("workers", 30, 1, 1<<20, "largest number of devices of a trial"),
	}
	p.reset()
	return p
}

func (p *Policy) reset() { p.s = memory{Admitted: map[policy.JobName]bool{}} }

// Name implements policy.Policy.
func (p *Policy) Name() string { return "rrh" }

// Snapshot implements policy.Policy.
func (p *Policy) Snapshot() ([]byte, error) { return json.Marshal(p.s) }

// Restore implements policy.Policy.
func (p *Policy) Restore(b []byte) error {
	p.reset()
	if err := json.Unmarshal(b, &p.s); err != nil {
		return fmt.Errorf("rrh: snapshot: %w", err)
	}
	return nil
}

// Decide implements policy.Policy.
func (p *Policy) Decide(v *policy.View) policy.Plan {
	jobs := v.Jobs()
	waits := slices.ContainsFunc(jobs, (*policy.Job).Waiting)
	seen := v.JobsHash()
	changed := seen != p.s.Jobs
	p.s.Jobs = seen
	switch {
	case !waits || !changed && v.Free.FreeDevices() == 0:
		return policy.Plan{Reason: "nothing to give"}
	case changed:
		all := policy.Preempt(v)
		all.Rank(p.order(v, jobs), p.size(v.Inventory()), "the highest reward of those that fit")
		return all.Plan("a job came or went: ranked by reward", "paused: others have a higher reward")
	default:
		fill := policy.Refill(v)
		fill.Fill(p.order(v, jobs), "free, and the highest reward of those that fit")
		return fill.Plan("free devices, by reward", "")
	}
}

// size returns a function that returns the number of devices for a job.
func (p *Policy) size(s *policy.Inventory) func(*policy.Job) int {
	return func(j *policy.Job) int { return max(min(s.Wants(j.Demand), p.workers), j.Demand.Min, 1) }
}

// bid is a job in the heuristic's terms.
type bid struct {
	job *policy.Job
	// seconds left to run, and the share of the cluster that it would hold.
	seconds, share float64
	devices        int
	// value is the worth of its end if it runs now, and decay how much that falls per second of delay.
	value, decay float64
	reward       float64
	// refused is 1 if it was not admitted.
	refused int
}

// order lists the jobs, admitted ones first, by reward.
func (p *Policy) order(v *policy.View, jobs []*policy.Job) []*policy.Job {
	bids := p.bids(v, jobs)
	decay := 0.0
	for i := range bids {
		decay += bids[i].decay
	}
	admitted := make(map[policy.JobName]bool, len(jobs))
	for i := range bids {
		b := &bids[i]
		cost := (decay - b.decay) * b.seconds * b.share
		value := b.value / (1 + p.discount/3600*b.seconds)
		b.reward = (p.alpha*value - (1-p.alpha)*cost) / (b.seconds * float64(b.devices))
		in, known := p.s.Admitted[b.job.Name()]
		if !known {
			in = value-cost > p.threshold
		}
		admitted[b.job.Name()] = in
		if !in {
			b.refused = 1
		}
	}
	p.s.Admitted = admitted
	at := make([]int32, len(bids))
	for i := range at {
		at[i] = int32(i)
	}
	slices.SortFunc(at, func(x, y int32) int {
		a, b := &bids[x], &bids[y]
		if c := cmp.Compare(a.refused, b.refused); c != 0 {
			return c
		}
		if c := cmp.Compare(b.reward, a.reward); c != 0 {
			return c
		}
		return cmp.Compare(x, y)
	})
	order := make([]*policy.Job, len(bids))
	for i, x := range at {
		order[i] = bids[x].job
	}
	return order
}

func (p *Policy) bids(v *policy.View, jobs []*policy.Job) []bid {
	s := v.Inventory()
	all := 0
	for k := range s.Types() {
		all += s.Total(k)
	}
	left, sizeOf := v.StepsLeftOf(jobs), p.size(s)
	bids := make([]bid, len(jobs))
	for i, j := range jobs {
		b := bid{job: j, devices: sizeOf(j)}
		rate, start := p.rate(v, s, j, b.devices), p.delay.Seconds()
		if j.Running() && !j.Ending {
			b.devices, start = j.Gang().Size(), 0
		}
		b.seconds = max(1, start+left[i]/rate)
		b.share = min(1, float64(b.devices)/float64(max(1, all)))
		age := max(0, v.Now.Sub(j.Created).Seconds())
		runtime := max(1, float64(max(j.TotalSteps, j.UntilStep, 1))/rate)
		u := utilityOf(j.App, runtime, b.devices, weightOf(j), p.patience)
		b.value = u.at(age + b.seconds)
		b.decay = max(0, b.value-u.at(age+2*b.seconds)) / b.seconds
		bids[i] = b
	}
	return bids
}

// rate returns the steps per second of a job where it runs, or on the best type, or a very small rate if it would make
// none.
func (p *Policy) rate(v *policy.View, s *policy.Inventory, j *policy.Job, n int) float64 {
	rate := 0.0
	if j.Running() {
		rate = v.Rate(j, j.Gang())
	} else {
		for k := range s.Types() {
			if s.Most(j.Demand, k) >= n {
				rate = max(rate, s.Rate(j, k, n))
			}
		}
	}
	return max(rate, 1e-9)
}

func weightOf(j *policy.Job) float64 {
	w := j.Weight * j.App.Weight
	if !(w > 0) || math.IsInf(w, 0) {
		return 1
	}
	return w
}
