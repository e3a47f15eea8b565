package rounds

import (
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// decisions returns a round's decisions as events. Of a concurrent round it returns those that still fit.
func (rs *Rounds) decisions(r *round) []*outbidv1.Event {
	events := decided(rs.st, r.view, r.plan)
	if r.beside {
		events = rs.stillFit(events, r.view.Now)
	}
	return rs.withinQuotas(events)
}

// decided returns a plan as events: first the revocations, then the renewals, then the grants.
func decided(st *state.State, v *policy.View, plan policy.Plan) []*outbidv1.Event {
	var events []*outbidv1.Event
	for _, r := range plan.Revokes {
		for _, l := range leasesOf(st, r.Job) {
			if l.Revoking != outbidv1.RevokeKind_REVOKE_KIND_UNSPECIFIED {
				continue // a fork that trained its share is ending already
			}
			events = append(events, &outbidv1.Event{Kind: &outbidv1.Event_LeaseRevoked{LeaseRevoked: &outbidv1.LeaseRevoked{
				Sweep: r.Job.App.ID, Trial: l.Trial, LeaseId: l.ID, How: outbidv1.RevokeKind_REVOKE_KIND_PAUSE,
				Reason: r.Reason,
			}}})
		}
	}
	for _, r := range plan.Renews {
		for _, l := range leasesOf(st, r.Job) {
			events = append(events, &outbidv1.Event{Kind: &outbidv1.Event_LeaseRenewed{LeaseRenewed: &outbidv1.LeaseRenewed{
				Sweep: r.Job.App.ID, Trial: l.Trial, LeaseId: l.ID, TermEnd: timestamppb.New(r.TermEnd), Reason: r.Reason,
			}}})
		}
	}
	leaseID := st.NextLease
	for i := range plan.Grants {
		if began := forksBegan(st, plan, &plan.Grants[i]); began != nil {
			events = append(events, began)
		}
		events = append(events, granted(v, &plan.Grants[i], leaseID))
		leaseID++
	}
	return events
}

// leasesOf returns the leases of a job's trial.
func leasesOf(st *state.State, j *policy.Job) []*state.Lease {
	s := st.Sweeps[j.App.ID]
	if s == nil || int(j.Trial) >= len(s.Trials) {
		return nil
	}
	return s.Trials[j.Trial].Leases
}

func granted(v *policy.View, g *policy.Grant, leaseID uint64) *outbidv1.Event {
	e := &outbidv1.LeaseGranted{
		Sweep: g.Job.App.ID, Trial: g.Job.Trial, LeaseId: leaseID, Reason: g.Reason, Places: state.LeasePlaces(v.Nodes, g.Gang),
		Fork: g.Fork, Share: g.Steps, Rate: g.Rate,
	}
	if !g.TermEnd.IsZero() {
		e.TermEnd = timestamppb.New(g.TermEnd)
	}
	return &outbidv1.Event{Kind: &outbidv1.Event_LeaseGranted{LeaseGranted: e}}
}

// forksBegan returns the event that begins a fork slot before its first grant, or nil for other grants.
func forksBegan(st *state.State, plan policy.Plan, g *policy.Grant) *outbidv1.Event {
	if g.Steps <= 0 || g.Fork {
		return nil
	}
	e := &outbidv1.ForksBegan{Sweep: g.Job.App.ID, Trial: g.Job.Trial}
	for i := range plan.Grants {
		if plan.Grants[i].Job == g.Job {
			e.Forks++
		}
	}
	if s := st.Sweeps[e.Sweep]; s != nil && int(e.Trial) < len(s.Trials) {
		e.Start = s.Trials[e.Trial].From()
	}
	if !g.TermEnd.IsZero() {
		e.Ends = timestamppb.New(g.TermEnd)
	}
	return &outbidv1.Event{Kind: &outbidv1.Event_ForksBegan{ForksBegan: e}}
}

// withinQuotas returns the decisions without grants that would exceed the quota of their tenant. The view's Free
// already respects quotas, but a quota may have been lowered since the round began, and policies do not see trials
// that run alone.
func (rs *Rounds) withinQuotas(events []*outbidv1.Event) []*outbidv1.Event {
	if len(rs.st.Tenants()) == 0 {
		return events
	}
	type trial struct {
		sweep  string
		number int32
	}
	of := func(e *outbidv1.Event) trial {
		ref := rs.st.TrialOf(e)
		return trial{ref.GetSweep(), ref.GetTrial()}
	}
	book, beyond := rs.tenants.NewBook(), map[trial]bool{}
	for _, e := range events {
		g, grants := e.GetKind().(*outbidv1.Event_LeaseGranted)
		if s := rs.st.Sweeps[of(e).sweep]; grants && s != nil && !book.Add(s, g.LeaseGranted) {
			beyond[of(e)] = true
		}
	}
	if len(beyond) == 0 {
		return events
	}
	leaseID := rs.st.NextLease
	var kept []*outbidv1.Event
	for _, e := range events {
		g, grants := e.GetKind().(*outbidv1.Event_LeaseGranted)
		_, begins := e.GetKind().(*outbidv1.Event_ForksBegan)
		if beyond[of(e)] && (grants || begins) { // forks are granted together or not at all
			continue
		}
		if grants {
			g.LeaseGranted.LeaseId = leaseID
			leaseID++
		}
		kept = append(kept, e)
	}
	return kept
}
