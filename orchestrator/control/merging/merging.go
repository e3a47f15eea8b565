// Package merging ends fork slots: it has what the forks of a trial saved averaged by a worker, and judges the average.
//
// A trial may be trained by several forks in fork slots (package fork). A policy grants the leases of a slot, each with
// a share of the remaining steps. A fork that has trained its share, or whose slot is over, saves and ends. When all
// have ended, a worker averages what they saved, and the trial waits for its next slot.
package merging

import (
	"cmp"
	"slices"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/control/trials"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Core is the part of the core that this package needs.
type Core interface {
	// Now returns the time of the current step.
	Now() time.Time
	// Emit decides an event.
	Emit(e *outbidv1.Event)
	// Note adds a line for the user to the log of a sweep or a trial.
	Note(sweep string, trial *int32, level, format string, args ...any)
	// Touch makes the core advance a sweep before the step ends.
	Touch(sweep string)
	// OrdersDue makes the core send a node orders at the end of the step.
	OrdersDue(node string)
}

// Merging decides about fork slots and averages. All that it knows is in the state, except its counts.
type Merging struct {
	core   Core
	st     *state.State
	trials *trials.Trials
	counts Counts
}

// New returns the Merging of a core that decides on a state.
func New(core Core, st *state.State, t *trials.Trials) *Merging {
	return &Merging{core: core, st: st, trials: t}
}

// TakeCounts returns the counts since the last call.
func (mg *Merging) TakeCounts() Counts {
	counts := mg.counts
	mg.counts = Counts{}
	return counts
}

// TouchForked marks the sweeps whose trials are trained by forks, or whose forks are being averaged.
func (mg *Merging) TouchForked() {
	for _, s := range mg.st.Forked() {
		mg.core.Touch(s.ID)
	}
}

// Advance ends what is over: forks that trained their share, and fork slots.
func (mg *Merging) Advance(s *state.Sweep) {
	for _, n := range slices.Clone(s.Forked) {
		t := s.Trials[n]
		for _, l := range slices.Clone(t.Leases) {
			switch {
			case l.Revoking != outbidv1.RevokeKind_REVOKE_KIND_UNSPECIFIED || t.Part(l) == nil:
			case l.AtTarget:
				mg.trials.RevokeLease(s, t, l, outbidv1.RevokeKind_REVOKE_KIND_PAUSE, "trained its share of the fork slot")
			case t.Slot.Overdue(mg.core.Now()):
				mg.trials.RevokeLease(s, t, l, outbidv1.RevokeKind_REVOKE_KIND_PAUSE, "the fork slot is over")
			}
		}
		if t.Consolidating() {
			mg.consolidate(s, t)
		}
	}
}

// endForks ends a fork slot. The trial continues from a checkpoint, or from where the slot began if that is nil.
func (mg *Merging) endForks(s *state.Sweep, t *state.Trial, to *outbidv1.Checkpoint, again outbidv1.ForkAgain, reason string) {
	slot := t.Slot
	if to != nil && !slot.Void {
		mg.AcceptAverage(t)
	}
	e := &outbidv1.ForksEnded{Sweep: s.ID, Trial: t.Number, Step: cmp.Or(to.GetStep(), slot.From), Checkpoint: to, Again: again, Reason: reason}
	for _, p := range slot.Sources() {
		if to != nil && (to.GetStep() == slot.Counts() || to == p.Saved) {
			e.Forks = append(e.Forks, &outbidv1.ForkSteps{LeaseId: p.Lease, Steps: slot.Steps(&p)})
		}
	}
	mg.core.Emit(&outbidv1.Event{Kind: &outbidv1.Event_ForksEnded{ForksEnded: e}})
	if len(e.GetForks()) > 1 {
		mg.counts.Averaged++
		mg.doubt(s, t, slot, to)
	}
	mg.trials.Drop(s, t)
}
