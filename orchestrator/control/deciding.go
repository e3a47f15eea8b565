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

// A policy that takes long to decide a round does so concurrently with the core's steps: see Settings.Beside. It
// keeps the view, which does not change any more, and the core makes a new one. The event RoundBegun marks the view's
// position in the ledger, so that a replay decides on the same view. The decision comes back as the input PolicyDone,
// and the parts that still fit are applied. Until then, rounds and snapshots wait, because the policy is busy. If the
// leader ends first, the round has no effect.

// round is a decision of the policy.
type round struct {
	view *policy.View
	// outside has the bids of external agents. notes is set while the round is simulated to collect the questions to
	// them; before is the policy's snapshot from before that.
	outside agent.Agent
	notes   *agent.Notes
	before  []byte
	plan    policy.Plan
	// beside reports that the policy decides concurrently with the core's steps; over, that it has finished.
	beside, over bool
}

// PolicyDone reports that the policy has finished the round it was deciding.
type PolicyDone struct{}

func (PolicyDone) apply(c *Core) {
	if c.deciding != nil {
		c.deciding.over = true
	}
}

// Deciding reports whether the policy is deciding a round concurrently.
func (c *Core) Deciding() bool { return c.deciding != nil }

// HoldRound keeps the next round from starting in the step in which the current one ends, so that the core can be
// frozen.
func (c *Core) HoldRound() { c.deferRound = true }

// mayDecide reports whether a round may begin.
func (c *Core) mayDecide() bool { return c.deciding == nil && !c.awaitsBids() && !c.deferRound }

// begin starts a round on the view. A long decision is concluded in a later step.
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

// leaveView makes a new view for the core. The old one stays as it is.
func (c *Core) leaveView() {
	c.views.live.freeze(c.views.view.Apps)
	c.views = newViewCache()
}

// conclude applies a decided round.
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

// answer records a policy's admission decisions.
func (c *Core) answer(said []*outbidv1.Admission) {
	for _, a := range said {
		if c.st.Sweeps[a.GetSweep()] != nil {
			c.emit(&outbidv1.Event{Kind: &outbidv1.Event_SweepAnswered{SweepAnswered: &outbidv1.SweepAnswered{Sweep: a.GetSweep(), Admission: a}}})
		}
	}
}

// decisions returns a round's decisions as events. Of a concurrent round it returns those that still fit.
func (c *Core) decisions(r *round) []*outbidv1.Event {
	events := c.decided(r.view, r.plan)
	if r.beside {
		events = c.stillFit(events, r.view.Now)
	}
	return c.withinQuotas(events)
}

// withinQuotas returns the decisions without grants that would exceed the quota of their tenant. The view's Free
// already respects quotas, but a quota may have been lowered since the round began, and policies do not see trials
// that run alone.
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
		if s := c.st.Sweeps[of(e).sweep]; grants && s != nil && !book.add(s, g.LeaseGranted) {
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

// stillFit returns the decisions of a round that began at a time. It omits all those about a trial if one of them no
// longer fits.
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

// fits reports whether a decision of a round that began at a time fits the current state.
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

// rebegin saves the current view during replay, for the decision that the ledger records later.
func (c *Core) rebegin() {
	c.begun = nil
	if c.policy != nil && (c.stateful || c.audit != nil) {
		c.begun = c.views.refresh(c)
		c.leaveView()
	}
}

// live computes values of the changing state on demand for a view, until the view is frozen for a concurrent round.
type live struct {
	mu sync.Mutex
	// core is nil once live is frozen. outlooks and weights then hold the values of the view's apps and their
	// tenants.
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

// decidePatience is how long the loop waits for the policy before it continues concurrently. It is longer than nearly
// every round, because a new view costs more than most rounds, and too short to be noticed.
const decidePatience = 100 * time.Millisecond

// beside runs decide and reports whether it finishes within decidePatience. If not, an input follows when it has.
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
