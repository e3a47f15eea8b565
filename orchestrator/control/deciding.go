package control

import (
	"errors"
	"sync"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/agent"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/tuner"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// A policy that takes its time over a round decides beside the core's steps, which go on: Settings.Beside says when it does. It is left
// the view, which nobody else changes from then on, and the core makes itself a new one. RoundBegun marks in the ledger what there
// was then, so that whoever reads the ledger has the round decided again on the same. What it decided comes back as an
// input, PolicyDone, and happens as far as it still fits. Until then there is no other round, and no snapshot, as the policy is not to be
// disturbed. A round whose leader ends before it is over never was.

// round is one that the policy decides.
type round struct {
	view *policy.View
	// outside has the bids of agents outside. It is notes where the round is gone through to hear what they are to be asked; before is
	// what the policy remembered until then.
	outside agent.Agent
	notes   *agent.Notes
	before  []byte
	plan    policy.Plan
	// beside the core's steps, and over.
	beside, over bool
}

// PolicyDone says that the policy has decided the round that it was taking its time over.
type PolicyDone struct{}

func (PolicyDone) apply(c *Core) {
	if c.deciding != nil {
		c.deciding.over = true
	}
}

// Deciding says whether the policy decides a round beside the core's steps.
func (c *Core) Deciding() bool { return c.deciding != nil }

// HoldRound has no round begin in the step in which the one under way ends: the core can be frozen then.
func (c *Core) HoldRound() { c.holding = true }

// mayDecide says whether a round may begin.
func (c *Core) mayDecide() bool { return c.deciding == nil && !c.awaitsBids() && !c.holding }

// begin has the policy decide on the view. If that takes long the round is concluded in a later step.
func (c *Core) begin(v *policy.View) {
	r := &round{view: v}
	c.bidders(r)
	c.next = time.Time{}
	decide := func() { r.plan = c.decide(v, r.outside) }
	if c.set.Beside == nil {
		decide()
	} else if !c.set.Beside(decide) {
		r.beside, c.deciding = true, r
		c.leaveView()
		c.emit(&outbidv1.Event{Kind: &outbidv1.Event_RoundBegun{RoundBegun: &outbidv1.RoundBegun{Round: v.Round}}})
		return
	}
	c.conclude(r)
}

// leaveView makes the core a new view. The one before changes no more.
func (c *Core) leaveView() {
	c.views.live.freeze(c.views.view.Apps)
	c.views = newViewCache()
}

// conclude has a round happen that the policy has decided.
func (c *Core) conclude(r *round) {
	if c.err != nil || c.asksOutside(r) {
		return
	}
	c.next = r.plan.Next
	if c.stateful || r.beside || len(r.plan.Grants)+len(r.plan.Revokes)+len(r.plan.Renews) > 0 {
		c.emit(&outbidv1.Event{Kind: &outbidv1.Event_RoundDecided{RoundDecided: &outbidv1.RoundDecided{
			Round: r.view.Round, Policy: c.policy.Name(), Reason: r.plan.Reason, Auction: r.plan.Auction, BegunBefore: r.beside,
			Prices: r.plan.Prices,
		}}})
		c.answer(r.plan.Admissions)
	}
	for _, e := range c.decisions(r) {
		if !c.refused(e) {
			c.emit(e)
		}
	}
}

// answer says to sweeps what a policy with admission answers them.
func (c *Core) answer(said []*outbidv1.Admission) {
	for _, a := range said {
		if c.st.Sweeps[a.GetSweep()] != nil {
			c.emit(&outbidv1.Event{Kind: &outbidv1.Event_SweepAnswered{SweepAnswered: &outbidv1.SweepAnswered{Sweep: a.GetSweep(), Admission: a}}})
		}
	}
}

// decisions are what a round decided, as events; of one that was decided beside, those that still fit.
func (c *Core) decisions(r *round) []*outbidv1.Event {
	events := c.decided(r.view, r.plan)
	if r.beside {
		events = c.stillFit(events, r.view.Now)
	}
	return c.withinQuotas(events)
}

// withinQuotas are the decisions of a round without what gives trials devices by which a tenant would hold more than its quota allows.
// The view's Free finds no place for these; but a quota may have been lowered since a round began, and policies do not see trials that
// run alone.
func (c *Core) withinQuotas(events []*outbidv1.Event) []*outbidv1.Event {
	if len(c.st.Tenants()) == 0 {
		return events
	}
	type trial struct {
		sweep  string
		number int32
	}
	of := func(e *outbidv1.Event) trial {
		ref := c.st.TrialOf(e)
		return trial{ref.GetSweep(), ref.GetTrial()}
	}
	book, beyond := c.quotaBook(), map[trial]bool{}
	for _, e := range events {
		g, grants := e.GetKind().(*outbidv1.Event_LeaseGranted)
		if s := c.st.Sweeps[of(e).sweep]; grants && s != nil && !book.take(s, g.LeaseGranted) {
			beyond[of(e)] = true
		}
	}
	if len(beyond) == 0 {
		return events
	}
	leaseID := c.st.NextLease
	var kept []*outbidv1.Event
	for _, e := range events {
		g, grants := e.GetKind().(*outbidv1.Event_LeaseGranted)
		_, begins := e.GetKind().(*outbidv1.Event_ForksBegan)
		if beyond[of(e)] && (grants || begins) { // forks come together or not at all
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

// stillFit are the decisions of a round that began at a time, without those about trials for which one of them fits no more.
func (c *Core) stillFit(events []*outbidv1.Event, began time.Time) []*outbidv1.Event {
	type trial struct {
		sweep  string
		number int32
	}
	of := func(e *outbidv1.Event) trial {
		ref := c.st.TrialOf(e)
		return trial{ref.GetSweep(), ref.GetTrial()}
	}
	gone := map[trial]bool{}
	for _, e := range events {
		if !c.fits(e, began) {
			gone[of(e)] = true
		}
	}
	leaseID := c.st.NextLease
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

// fits says whether a decision of a round that began at a time fits what there is by now.
func (c *Core) fits(e *outbidv1.Event, began time.Time) bool {
	ref := c.st.TrialOf(e)
	s := c.st.Sweeps[ref.GetSweep()]
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
		waits := t.State == outbidv1.TrialState_TRIAL_STATE_QUEUED && t.Round == nil
		beside := k.LeaseGranted.GetFork() && k.LeaseGranted.GetShare() == 0 && mayHave(t, k.LeaseGranted)
		return s.State == outbidv1.SweepState_SWEEP_STATE_RUNNING && (waits || beside) && !alone(t) && c.st.CanGrant(k.LeaseGranted) == nil &&
			c.offLimits(s, t, k.LeaseGranted) == ""
	default:
		return true
	}
}

// rebegin has the policy of the past decide on what there is here when the ledger says later what it decided.
func (c *Core) rebegin() {
	c.begun = nil
	if c.policy != nil && (c.stateful || c.audit != nil) {
		c.begun = c.views.refresh(c)
		c.leaveView()
	}
}

// live is what a view works out only when a policy asks for it, of what changes as the core goes on: until the view is left to a policy
// that takes its time.
type live struct {
	mu sync.Mutex
	// core is nil once it is frozen: then outlooks are those of the view's apps, and weights of their tenants.
	core     *Core
	outlooks map[string]tuner.Outlook
	weights  map[string]float64
}

func (l *live) outlook(sweep string) tuner.Outlook {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.core == nil {
		return l.outlooks[sweep]
	}
	o, _ := l.core.outlook(sweep)
	return o
}

func (l *live) meanWeight(tenant string) float64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.core == nil {
		return l.weights[tenant]
	}
	return l.core.st.MeanWeight(tenant)
}

func (l *live) freeze(apps []*policy.App) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.outlooks, l.weights = make(map[string]tuner.Outlook, len(apps)), map[string]float64{}
	for _, a := range apps {
		l.outlooks[a.ID], _ = l.core.outlook(a.ID)
		if _, known := l.weights[a.Tenant]; !known {
			l.weights[a.Tenant] = l.core.st.MeanWeight(a.Tenant)
		}
	}
	l.core = nil
}

// decidePatience is how long the loop waits for the policy before it goes on beside it: longer than nearly every round takes, as the
// view costs more to make anew than most rounds; and so short that nobody minds.
const decidePatience = 100 * time.Millisecond

// beside runs what decides a round, and says whether it is over within decidePatience. If not, an input says when it is.
func (l *Loop) beside(decide func()) bool {
	done := make(chan struct{})
	l.policy.Go(func() {
		defer close(done)
		decide()
	})
	patience := time.NewTimer(decidePatience)
	defer patience.Stop()
	select {
	case <-done:
		return true
	case <-patience.C:
	}
	go func() {
		<-done
		select {
		case l.in <- PolicyDone{}:
		case <-l.leading.Done():
		case <-l.done:
		}
	}()
	return false
}

var errDeciding = errors.New("the policy is deciding a round")
