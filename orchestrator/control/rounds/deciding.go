package rounds

import (
	"time"

	"github.com/outbid-dev/outbid/orchestrator/bidder"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// A policy that takes long to decide a round does so concurrently with the core's steps: see Settings.Beside. It keeps
// the view, which does not change any more, and the core makes a new one. The event RoundBegun marks the view's position
// in the ledger, so that a replay decides on the same view. When the policy has finished, the parts of its decision that
// still fit are applied. Until then, rounds and snapshots wait, because the policy is busy. If the leader ends first, the
// round has no effect.

// round is a decision of the policy.
type round struct {
	view *policy.View
	// outside has the bids of external bidders. notes is set while the round is simulated to collect the questions to
	// them; before is the policy's snapshot from before that.
	outside bidder.Bidder
	notes   *bidder.Notes
	before  []byte
	plan    policy.Plan
	// beside reports that the policy decides concurrently with the core's steps; over, that it has finished.
	beside, over bool
}

// begin starts a round on the view. A long decision is concluded in a later step.
func (rs *Rounds) begin(v *policy.View) {
	r := &round{view: v}
	rs.setBids(r)
	rs.next = time.Time{}
	decide := func() { r.plan = rs.decide(v, r.outside) }
	if rs.set.Beside == nil {
		decide()
	} else if !rs.set.Beside(decide) {
		r.beside, rs.deciding = true, r
		rs.leaveView()
		rs.core.Emit(&outbidv1.Event{Kind: &outbidv1.Event_RoundBegun{RoundBegun: &outbidv1.RoundBegun{Round: v.Round}}})
		return
	}
	rs.conclude(r)
}

// Decided records that the policy has finished the round that it was deciding concurrently.
func (rs *Rounds) Decided() {
	if rs.deciding != nil {
		rs.deciding.over = true
	}
}

// Conclude applies the concurrent round if the policy has finished it, and reports whether it did.
func (rs *Rounds) Conclude() bool {
	r := rs.deciding
	if r == nil || !r.over {
		return false
	}
	rs.deciding = nil
	rs.conclude(r)
	return true
}

// Forget drops the view of a concurrent round, because the server that decided it ended first.
func (rs *Rounds) Forget() { rs.begun = nil }

// leaveView makes a new view for the core. The old one stays as it is.
func (rs *Rounds) leaveView() {
	rs.views.live.freeze(rs.views.view.Apps)
	rs.views = newViewCache()
}

// conclude applies a decided round.
func (rs *Rounds) conclude(r *round) {
	if rs.core.Failed() || rs.asksOutside(r) {
		return
	}
	rs.next = r.plan.Next
	if rs.stateful || r.beside || len(r.plan.Grants)+len(r.plan.Revokes)+len(r.plan.Renews) > 0 {
		rs.core.Emit(&outbidv1.Event{Kind: &outbidv1.Event_RoundDecided{RoundDecided: &outbidv1.RoundDecided{
			Round: r.view.Round, Policy: rs.policy.Name(), Reason: r.plan.Reason, Auction: r.plan.Auction, BegunBefore: r.beside,
			Prices: r.plan.Prices,
		}}})
		rs.answer(r.plan.Admissions)
	}
	for _, e := range rs.decisions(r) {
		if !rs.refused(e) {
			rs.core.Emit(e)
		}
	}
}

// answer records a policy's admission decisions.
func (rs *Rounds) answer(said []*outbidv1.Admission) {
	for _, a := range said {
		if rs.st.Sweeps[a.GetSweep()] != nil {
			rs.core.Emit(&outbidv1.Event{Kind: &outbidv1.Event_SweepAnswered{SweepAnswered: &outbidv1.SweepAnswered{Sweep: a.GetSweep(), Admission: a}}})
		}
	}
}

// Rebegin saves the current view during replay, for the decision that the ledger records later.
func (rs *Rounds) Rebegin() {
	rs.begun = nil
	if rs.policy != nil && (rs.stateful || rs.audit != nil) {
		rs.begun = rs.view()
		rs.leaveView()
	}
}

// Redecide makes a stateful policy decide a past round again. The result is ignored, because the events
// that follow contain it.
func (rs *Rounds) Redecide(then *outbidv1.RoundDecided, following []*outbidv1.Event) {
	r := &round{view: rs.begun, beside: then.GetBegunBefore()}
	rs.begun = nil
	if rs.policy == nil || then.GetPolicy() != rs.policy.Name() || !rs.stateful && rs.audit == nil {
		return
	}
	rs.hasHistory = true
	if !r.beside {
		r.view = rs.view()
	} else if r.view == nil {
		return // it was begun under another policy
	}
	r.plan = rs.decide(r.view, bidder.Recorded(then.GetAuction()))
	if rs.audit != nil {
		rs.audit(rs.core.Now(), then, rs.decisions(r), following)
	}
}
