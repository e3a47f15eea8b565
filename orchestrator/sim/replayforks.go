package sim

import (
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// slotTimes adds up the costs of fork slots.
type slotTimes struct {
	// told is the time when a fork was ordered to save at the end of its slot, by lease. over is the time when the last
	// fork of a trial's fork slot ended.
	told map[uint64]time.Duration
	over map[trialKey]time.Duration

	saving, averaging time.Duration
	saves, averages   int
}

// see handles a change of a trial.
func (r *slotTimes) see(at time.Duration, c *state.Change) {
	if r.told == nil {
		r.told, r.over = map[uint64]time.Duration{}, map[trialKey]time.Duration{}
	}
	key, l := keyOf(c), c.Lease
	if from, waits := r.over[key]; waits && c.Trial.Slot == nil {
		r.averaging += at - from
		r.averages++
		delete(r.over, key)
	}
	switch {
	case c.LeaseEnded():
		if from, slot := r.told[l.ID]; slot {
			r.saving += at - from
			r.saves++
			delete(r.told, l.ID)
		}
		if c.Trial.Consolidating() && len(c.Trial.Slot.Sources()) > 1 {
			r.over[key] = at
		}
	case l != nil && c.Trial.Part(l) != nil && l.Revoking != outbidv1.RevokeKind_REVOKE_KIND_UNSPECIFIED && !l.AtTarget:
		if _, told := r.told[l.ID]; !told {
			r.told[l.ID] = at
		}
	}
}

// costs returns the means.
func (r *slotTimes) costs() (f ForkCosts) {
	if r.saves > 0 {
		f.Upload = r.saving / time.Duration(r.saves)
	}
	if r.averages > 0 {
		f.Average = r.averaging / time.Duration(r.averages)
	}
	return f
}

// WithoutForks returns the apps with one process for each trial.
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
