package rounds

import (
	"fmt"
	"slices"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/control/trials"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// stillFit returns the decisions of a round that began at a time. It omits all those about a trial if one of them no
// longer fits.
func (rs *Rounds) stillFit(events []*outbidv1.Event, began time.Time) []*outbidv1.Event {
	type trial struct {
		sweep  string
		number int32
	}
	of := func(e *outbidv1.Event) trial {
		ref := rs.st.TrialOf(e)
		return trial{ref.GetSweep(), ref.GetTrial()}
	}
	gone := map[trial]bool{}
	for _, e := range events {
		if !rs.fits(e, began) {
			gone[of(e)] = true
		}
	}
	leaseID := rs.st.NextLease
	var kept []*outbidv1.Event
	for _, e := range events {
		if gone[of(e)] {
			continue
		}
		if granted, ok := e.GetKind().(*outbidv1.Event_LeaseGranted); ok {
			granted.LeaseGranted.LeaseId = leaseID
			leaseID++
		}
		kept = append(kept, e)
	}
	return kept
}

// fits reports whether a decision of a round that began at a time fits the current state.
func (rs *Rounds) fits(e *outbidv1.Event, began time.Time) bool {
	ref := rs.st.TrialOf(e)
	s := rs.st.Sweeps[ref.GetSweep()]
	if s == nil || int(ref.GetTrial()) >= len(s.Trials) {
		return false
	}
	t := s.Trials[ref.GetTrial()]
	same := func(id uint64) bool {
		l := t.Held(id)
		return l != nil && !l.Granted.After(began) && l.Revoking == outbidv1.RevokeKind_REVOKE_KIND_UNSPECIFIED
	}
	switch k := e.GetKind().(type) {
	case *outbidv1.Event_LeaseRevoked:
		return same(k.LeaseRevoked.GetLeaseId())
	case *outbidv1.Event_LeaseRenewed:
		return same(k.LeaseRenewed.GetLeaseId())
	case *outbidv1.Event_LeaseGranted:
		waits := t.State == outbidv1.TrialState_TRIAL_STATE_QUEUED && t.Slot == nil
		beside := k.LeaseGranted.GetFork() && k.LeaseGranted.GetShare() == 0 && mayHave(t, k.LeaseGranted)
		return s.State == outbidv1.SweepState_SWEEP_STATE_RUNNING && (waits || beside) && !trials.Alone(t) && rs.st.CanGrant(k.LeaseGranted) == nil &&
			rs.faults.OffLimits(s, t, k.LeaseGranted) == ""
	default:
		return true
	}
}

// refused reports whether a policy's decision does not fit the state. That is a mistake of the policy: it is recorded
// in the sweep's notes and has no effect.
func (rs *Rounds) refused(e *outbidv1.Event) bool {
	ref := rs.st.TrialOf(e)
	s := rs.st.Sweeps[ref.GetSweep()]
	t := s.Trials[ref.GetTrial()]
	why := ""
	switch k := e.GetKind().(type) {
	case *outbidv1.Event_LeaseRevoked:
		if l := t.Held(k.LeaseRevoked.GetLeaseId()); l == nil || l.Revoking != outbidv1.RevokeKind_REVOKE_KIND_UNSPECIFIED {
			return true // it is ending already
		}
	case *outbidv1.Event_ForksBegan:
		if t.State != outbidv1.TrialState_TRIAL_STATE_QUEUED || t.Slot != nil {
			why = "forks that the trial cannot have now"
		}
	case *outbidv1.Event_LeaseGranted:
		k.LeaseGranted.LeaseId = rs.st.NextLease // reuse the IDs of refused grants
		if !mayHave(t, k.LeaseGranted) || s.State != outbidv1.SweepState_SWEEP_STATE_RUNNING || holdsNothing(k.LeaseGranted) {
			why = "devices that the trial cannot have now"
		} else if err := rs.st.CanGrant(k.LeaseGranted); err != nil {
			why = "devices that are not free: " + err.Error()
		} else if node := rs.faults.OffLimits(s, t, k.LeaseGranted); node != "" {
			why = "node " + node + ", which the trial must avoid"
		}
	}
	if why == "" {
		return false
	}
	rs.core.Emit(&outbidv1.Event{Kind: &outbidv1.Event_Note{Note: &outbidv1.Note{
		Sweep: s.ID, Trial: &t.Number, Level: "error", Text: fmt.Sprintf("policy %s granted %s", rs.policy.Name(), why),
		Kind: outbidv1.NoteKind_NOTE_KIND_GRANT_REFUSED,
	}}})
	return true
}

// mayHave reports whether a trial may have a lease now: the first one if it is queued, or another one for a fork if
// it is running.
func mayHave(t *state.Trial, e *outbidv1.LeaseGranted) bool {
	if !mayShare(t, e) {
		return false
	}
	if !e.GetFork() {
		return t.State == outbidv1.TrialState_TRIAL_STATE_QUEUED
	}
	return t.State == outbidv1.TrialState_TRIAL_STATE_RUNNING && !t.Pausing && t.Lead().Holder == state.Workers &&
		t.Lead().Revoking == outbidv1.RevokeKind_REVOKE_KIND_UNSPECIFIED
}

// mayShare reports whether a lease fits the trial's current fork slot, or fits a trial without one.
func mayShare(t *state.Trial, e *outbidv1.LeaseGranted) bool {
	slot := t.Slot
	if slot == nil || e.GetShare() <= 0 {
		return slot == nil && e.GetShare() == 0
	}
	return !slot.Void && len(slot.Parts) < int(slot.Forks) && (len(slot.Parts) == 0 || len(t.Leases) > 0)
}

// holdsNothing reports whether a grant lacks places or has a place without devices.
func holdsNothing(e *outbidv1.LeaseGranted) bool {
	return len(e.GetPlaces()) == 0 ||
		slices.ContainsFunc(e.GetPlaces(), func(p *outbidv1.LeasePlace) bool { return len(p.GetDevices()) == 0 })
}
