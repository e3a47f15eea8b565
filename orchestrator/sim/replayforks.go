package sim

import (
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/outbid-dev/outbid/orchestrator/state"
)

// roundTimes adds up what rounds of forks took beside training.
type roundTimes struct {
	// told is when forks whose slot was over were told to save, by lease; over is when the last fork of a trial's round had ended.
	told map[uint64]time.Duration
	over map[trialKey]time.Duration

	saving, averaging time.Duration
	saves, averages   int
}

// see takes in what happened to a trial.
func (r *roundTimes) see(at time.Duration, c *state.Change) {
	if r.told == nil {
		r.told, r.over = map[uint64]time.Duration{}, map[trialKey]time.Duration{}
	}
	switch e := c.Event; {
	case e.GetLeaseRevoked() != nil && c.Trial.Part(c.Lease) != nil && !c.Lease.AtTarget:
		r.told[c.Lease.ID] = at
	case e.GetLeaseEnded() != nil:
		if from, slot := r.told[c.Lease.ID]; slot {
			r.saving += at - from
			r.saves++
			delete(r.told, c.Lease.ID)
		}
		if c.Trial.Consolidating() {
			r.over[keyOf(c)] = at
		}
	case e.GetForksEnded() != nil:
		if from, known := r.over[keyOf(c)]; known && len(e.GetForksEnded().GetForks()) > 1 {
			r.averaging += at - from
			r.averages++
		}
		delete(r.over, keyOf(c))
	}
}

// costs are the means.
func (r *roundTimes) costs() (f ForkCosts) {
	if r.saves > 0 {
		f.Upload = r.saving / time.Duration(r.saves)
	}
	if r.averages > 0 {
		f.Average = r.averaging / time.Duration(r.averages)
	}
	return f
}

// WithoutForks are apps each of whose trials one process trains.
func WithoutForks(apps []App) []App {
	apps = slices.Clone(apps)
	for i := range apps {
		if apps[i].Spec.GetResources().GetForks() != "" {
			apps[i].Spec = proto.CloneOf(apps[i].Spec)
			apps[i].Spec.Resources.Forks = ""
		}
	}
	return apps
}
