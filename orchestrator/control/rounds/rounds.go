// Package rounds owns the policy. It shows the policy a view of the state, has it decide rounds, and turns its decisions
// into events.
package rounds

import (
	"time"

	"github.com/outbid-dev/outbid/orchestrator/bidder"
	"github.com/outbid-dev/outbid/orchestrator/control/faults"
	"github.com/outbid-dev/outbid/orchestrator/control/tenants"
	"github.com/outbid-dev/outbid/orchestrator/control/tuning"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Core is the part of the core that this package needs.
type Core interface {
	// Now returns the time of the current step.
	Now() time.Time
	// Failed reports whether an event could not be applied.
	Failed() bool
	// Fail makes the core unusable.
	Fail(err error)
	// Emit decides an event.
	Emit(e *outbidv1.Event)
	// AskPolicy asks the policy in this step.
	AskPolicy()
}

// Settings configure Rounds.
type Settings struct {
	// Bidders are the external bidders that sweeps may choose, or nil.
	Bidders Bidders
	// Beside runs decide, which decides a round, and reports whether it has finished. If that takes too long, decide
	// continues concurrently with the core's steps, and Decided must be called when it ends. If Beside is nil, the
	// core waits.
	Beside func(decide func()) (over bool)
	// NewPolicy recreates the policy of an earlier server from the settings in the ledger. If nil, this core's policy
	// is used, whatever the options of the earlier one.
	NewPolicy func(*outbidv1.PolicySettings) (policy.Policy, error)
	// Fairness measures how a sweep fares by sharing the cluster, or fared if it is over. It may be nil.
	Fairness func(v *policy.View, a *policy.App, over bool) *outbidv1.Fairness
}

// Audit is called for each replayed round with the policy's decision now and the events recorded then.
type Audit func(at time.Time, round *outbidv1.RoundDecided, now, then []*outbidv1.Event)

// Rounds decides which trials get devices.
type Rounds struct {
	core     Core
	st       *state.State
	set      Settings
	faults   *faults.Faults
	tenants  *tenants.Tenants
	tuning   *tuning.Tuning
	suspects suspects
	// policy decides rounds. During replay it is the policy of that time, or nil if its name differs from that of
	// configured, the policy that the core was made with.
	policy, configured policy.Policy
	// initial is the first snapshot of configured, or nil if it has none.
	initial []byte
	// hasHistory reports whether the policy remembers rounds, which the next policy of its name continues from.
	hasHistory bool
	// stateful policies have state, so each of their rounds is recorded. A policy that preempts is shown every device
	// that sweeps could use.
	stateful, preempts bool
	// next is when the policy is due again, or zero for never.
	next time.Time
	// views caches the policy's view.
	views *viewCache
	// asked counts the requests to external bidders. bids is the round for which they are being asked, or nil. question
	// is what they are to be asked at the end of the step, or nil.
	asked    uint64
	bids     *bids
	question *Question
	// deciding is the round that the policy decides concurrently with the core's steps, or nil. deferRound keeps the
	// next round from starting in the step in which that one ends. During replay, begun is the view of the last such
	// round.
	deciding   *round
	deferRound bool
	begun      *policy.View
	audit      Audit
}

// New returns the Rounds of a core that decides on a state with a policy.
func New(
	core Core, st *state.State, p policy.Policy, f *faults.Faults, tn *tenants.Tenants, tu *tuning.Tuning, set Settings,
) *Rounds {
	rs := &Rounds{core: core, st: st, set: set, faults: f, tenants: tn, tuning: tu, suspects: suspects{core, st, f, tn}, configured: p, views: newViewCache()}
	rs.install(p)
	rs.initial, _ = p.Snapshot()
	return rs
}

// Policy returns the policy that decides rounds.
func (rs *Rounds) Policy() policy.Policy { return rs.policy }

// Mark records what an event has changed in the policy's view.
func (rs *Rounds) Mark(change state.Change) { rs.views.mark(change) }

// OnReplay makes a replay decide every round again, and calls f with both decisions.
func (rs *Rounds) OnReplay(f Audit) { rs.audit = f }

// Due reports whether the policy asked to be called by now.
func (rs *Rounds) Due() bool { return !rs.next.IsZero() && !rs.core.Now().Before(rs.next) }

// Next returns when the policy is due again, or zero for never.
func (rs *Rounds) Next() time.Time { return rs.next }

// Schedule asks tuners for trials to fill free devices, then asks the policy which trials get devices.
func (rs *Rounds) Schedule() {
	if rs.core.Failed() {
		return
	}
	rs.faults.OpenAgain()
	rs.tenants.TakeBack()
	rs.suspects.place()
	if rs.tuning.MayCreate() {
		rs.tuning.AskTuners(rs.view(), rs.preempts)
	}
	rs.begin(rs.view())
	rs.tenants.Reckon()
}

// MayBegin reports whether a round may begin.
func (rs *Rounds) MayBegin() bool { return rs.deciding == nil && !rs.awaitsBids() && !rs.deferRound }

// Deciding reports whether the policy is deciding a round concurrently.
func (rs *Rounds) Deciding() bool { return rs.deciding != nil }

// Defer keeps the next round from starting in the step in which the current one ends, so that the core can be
// frozen.
func (rs *Rounds) Defer() { rs.deferRound = true }

// EndStep ends a deferral once no round is being decided.
func (rs *Rounds) EndStep() { rs.deferRound = rs.deferRound && rs.Deciding() }

// decide asks the policy for its decision. outside holds the bids of external bidders, or is nil. The view is restored
// even after a policy that leaves simulated changes in it.
func (rs *Rounds) decide(v *policy.View, outside bidder.Bidder) policy.Plan {
	if p, ok := rs.policy.(policy.Bidding); ok {
		p.UseBidder(outside)
	}
	simulated := v.Statement()
	defer simulated.Discard()
	return rs.policy.Decide(v)
}

// view brings the policy's view up to date and returns it.
func (rs *Rounds) view() *policy.View { return rs.views.refresh(rs) }

// Fared returns how a sweep that is over fared, or nil if policies do not see it or fairness is not measured.
func (rs *Rounds) Fared(s *state.Sweep) *outbidv1.Fairness {
	if rs.set.Fairness == nil {
		return nil
	}
	v := rs.view()
	at := rs.views.apps[s.ID]
	if at == nil {
		return nil
	}
	return rs.set.Fairness(v, at.app, true)
}
