package control

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/outbid-dev/outbid/orchestrator/agent"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// schedule asks tuners for trials to fill free devices, then asks the policy which trials get devices.
func (c *Core) schedule() {
	if c.err != nil {
		return
	}
	c.openNodesAgain()
	c.takeBackSpent()
	c.placeSuspects()
	c.askTuners()
	c.begin(c.views.refresh(c))
	_, c.metered = c.meter()
}

// decide asks the policy for its decision. outside holds the bids of external agents, or is nil. The view is restored
// even after a policy that leaves simulated changes in it.
func (c *Core) decide(v *policy.View, outside agent.Agent) policy.Plan {
	if p, ok := c.policy.(policy.Bidding); ok {
		p.UseAgents(outside)
	}
	simulated := v.Statement()
	defer simulated.Discard()
	return c.policy.Decide(v)
}

// decided returns a plan as events: first the revocations, then the renewals, then the grants.
func (c *Core) decided(v *policy.View, plan policy.Plan) []*outbidv1.Event {
	var events []*outbidv1.Event
	for _, r := range plan.Revokes {
		for _, l := range c.leasesOf(r.Job) {
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
		for _, l := range c.leasesOf(r.Job) {
			events = append(events, &outbidv1.Event{Kind: &outbidv1.Event_LeaseRenewed{LeaseRenewed: &outbidv1.LeaseRenewed{
				Sweep: r.Job.App.ID, Trial: l.Trial, LeaseId: l.ID, TermEnd: timestamppb.New(r.TermEnd), Reason: r.Reason,
			}}})
		}
	}
	leaseID := c.st.NextLease
	for i := range plan.Grants {
		if began := c.forksBegan(plan, &plan.Grants[i]); began != nil {
			events = append(events, began)
		}
		events = append(events, granted(v, &plan.Grants[i], leaseID))
		leaseID++
	}
	return events
}

// leasesOf returns the leases of a job's trial.
func (c *Core) leasesOf(j *policy.Job) []*state.Lease {
	s := c.st.Sweeps[j.App.ID]
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

// refused reports whether a policy's decision does not fit the state. That is a mistake of the policy: it is recorded
// in the sweep's notes and has no effect.
func (c *Core) refused(e *outbidv1.Event) bool {
	ref := c.st.TrialOf(e)
	s := c.st.Sweeps[ref.GetSweep()]
	t := s.Trials[ref.GetTrial()]
	why := ""
	switch k := e.GetKind().(type) {
	case *outbidv1.Event_LeaseRevoked:
		if l := t.Held(k.LeaseRevoked.GetLeaseId()); l == nil || l.Revoking != outbidv1.RevokeKind_REVOKE_KIND_UNSPECIFIED {
			return true // it is ending already
		}
	case *outbidv1.Event_ForksBegan:
		if t.State != outbidv1.TrialState_TRIAL_STATE_QUEUED || t.Round != nil {
			why = "forks that the trial cannot have now"
		}
	case *outbidv1.Event_LeaseGranted:
		k.LeaseGranted.LeaseId = c.st.NextLease // reuse the IDs of refused grants
		if !mayHave(t, k.LeaseGranted) || s.State != outbidv1.SweepState_SWEEP_STATE_RUNNING || holdsNothing(k.LeaseGranted) {
			why = "devices that the trial cannot have now"
		} else if err := c.st.CanGrant(k.LeaseGranted); err != nil {
			why = "devices that are not free: " + err.Error()
		} else if node := c.offLimits(s, t, k.LeaseGranted); node != "" {
			why = "node " + node + ", which the trial must avoid"
		}
	}
	if why == "" {
		return false
	}
	c.emit(&outbidv1.Event{Kind: &outbidv1.Event_Note{Note: &outbidv1.Note{
		Sweep: s.ID, Trial: &t.Number, Level: "error", Text: fmt.Sprintf("policy %s granted %s", c.policy.Name(), why),
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

// holdsNothing reports whether a grant lacks places or has a place without devices.
func holdsNothing(e *outbidv1.LeaseGranted) bool {
	return len(e.GetPlaces()) == 0 ||
		slices.ContainsFunc(e.GetPlaces(), func(p *outbidv1.LeasePlace) bool { return len(p.GetDevices()) == 0 })
}

// aheadAtMost limits how many trials a tuner is asked for beyond what is free, so that a preempting policy sees them.
const aheadAtMost = 256

// askTuners asks tuners for trials if devices are free that no trial waits for. A sweep without running or waiting
// trials is always asked for one, so that the policy sees its demand. If the policy preempts, it is asked for as many
// as the cluster could run.
func (c *Core) askTuners() {
	if len(c.mayCreate) == 0 {
		return
	}
	c.asksOn = false
	v := c.views.refresh(c)
	idle, size := v.Free.FreeDevices(), 0
	if c.preempts {
		for i := range v.Nodes {
			size += len(v.Nodes[i].Devices)
		}
	}
	for _, s := range c.creatorsInOrder() {
		t := c.tuners[s.ID]
		if s.State != outbidv1.SweepState_SWEEP_STATE_RUNNING || t == nil {
			continue
		}
		status, asked := t.Status(), 0
		if r := c.Remote(s.ID); r != nil {
			// Ask for the next free device while the tuner draws for another one, so that the tuner does not wait for
			// this step.
			status.Waiting, asked = r.Said().Waiting, r.AskedFor()
		}
		if status.Waiting || status.Exhausted {
			delete(c.mayCreate, s.ID)
			continue
		}
		n := 0
		d := s.Terms.Demand
		d.Avoid = c.avoids(s, nil)
		if idle > 0 {
			n = v.Free.Slots(d, idle) - len(s.Queued)
		}
		if len(s.Queued) == 0 && len(s.Running) == 0 {
			n = max(n, 1)
		}
		if c.preempts {
			n = max(n, min(size/d.Min, aheadAtMost)-len(s.Queued)-len(s.Running))
		}
		if !c.askFor(s, min(n, room(s))-asked) {
			return
		}
	}
}

// askAtOnce limits how many trials a tuner is asked for in one question, whose answer is one batch of the ledger.
const askAtOnce = 256

// askFor asks a sweep's tuner for n trials, or for as many as it has. It reports whether the step has room for more.
func (c *Core) askFor(s *state.Sweep, n int) (room bool) {
	for n > 0 && c.err == nil {
		if c.full() {
			c.asksOn = true
			return false
		}
		c.ask(s, min(n, askAtOnce))
		c.markBatchEnd()
		n -= askAtOnce
		t := c.tuners[s.ID]
		if t == nil || s.State != outbidv1.SweepState_SWEEP_STATE_RUNNING || t.Status().Waiting || t.Status().Exhausted {
			break
		}
	}
	return true
}

func (c *Core) creatorsInOrder() []*state.Sweep {
	all := make([]*state.Sweep, 0, len(c.mayCreate))
	for id := range c.mayCreate {
		all = append(all, c.st.Sweeps[id])
	}
	slices.SortFunc(all, func(a, b *state.Sweep) int { return a.Order - b.Order })
	return all
}

// noteMayCreate records that a sweep's tuner may have new trials.
func (c *Core) noteMayCreate(s *state.Sweep) {
	if s.Spec.GetExternal() == nil && !s.Done() {
		c.mayCreate[s.ID] = true
	}
}
