package control

import (
	"cmp"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/outbid-dev/outbid/orchestrator/objects"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// A trial may be trained by several forks in fork slots (package fork). A policy grants the leases of a slot, each
// with a share of the remaining steps. A fork that has trained its share, or whose slot is over, saves and ends. When
// all have ended, a worker averages what they saved (consolidate.go), and the trial waits for its next slot.

// checkForks returns an error if a sweep asks for forks and the policy does not support them.
func checkForks(p policy.Policy, sp *outbidv1.SweepSpec) error {
	if sp.GetResources().GetForks() == "" || policy.ForksJobs(p) {
		return nil
	}
	return fmt.Errorf("%w: resources.forks: policy %s of this server does not fork trials; start the server with --policy themis or hadare, or leave forks out",
		state.ErrInvalid, p.Name())
}

// forksBegan returns the event that begins a fork slot before its first grant, or nil for other grants.
func (c *Core) forksBegan(plan policy.Plan, g *policy.Grant) *outbidv1.Event {
	if g.Steps <= 0 || g.Fork {
		return nil
	}
	e := &outbidv1.ForksBegan{Sweep: g.Job.App.ID, Trial: g.Job.Trial}
	for i := range plan.Grants {
		if plan.Grants[i].Job == g.Job {
			e.Forks++
		}
	}
	if s := c.st.Sweeps[e.Sweep]; s != nil && int(e.Trial) < len(s.Trials) {
		e.Start = s.Trials[e.Trial].From()
	}
	if !g.TermEnd.IsZero() {
		e.Ends = timestamppb.New(g.TermEnd)
	}
	return &outbidv1.Event{Kind: &outbidv1.Event_ForksBegan{ForksBegan: e}}
}

// mayShare reports whether a lease fits the trial's current fork slot, or fits a trial without one.
func mayShare(t *state.Trial, e *outbidv1.LeaseGranted) bool {
	r := t.Round
	if r == nil || e.GetShare() <= 0 {
		return r == nil && e.GetShare() == 0
	}
	return !r.Void && len(r.Parts) < int(r.Forks) && (len(r.Parts) == 0 || len(t.Leases) > 0)
}

// startOf returns the checkpoint that a lease's fork starts from. It is the same for all forks of a slot.
func startOf(t *state.Trial, l *state.Lease) *outbidv1.Checkpoint {
	if t.Part(l) != nil {
		return t.Round.Start
	}
	return t.From()
}

// seedOf returns the seed of a lease's fork. It differs in each fork slot, so that forks draw their data in different
// orders.
func seedOf(t *state.Trial, l *state.Lease) uint64 {
	_, i := t.Round.Part(l.ID)
	if i <= 0 && (t.Round == nil || t.Round.From == 0) {
		return t.Seed
	}
	x := t.Seed ^ uint64(t.Round.From)*0x9e3779b97f4a7c15 ^ uint64(i)<<48
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9 // the mixing function of splitmix64
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// partOf returns the part of a fork slot that a lease trains, or nil.
func partOf(t *state.Trial, l *state.Lease) *outbidv1.ForkPart {
	own, i := t.Round.Part(l.ID)
	if own == nil {
		return nil
	}
	p := &outbidv1.ForkPart{Index: int32(i), Count: int32(len(t.Round.Parts)), Share: own.Share, TrialSeed: t.Seed}
	for k := range t.Round.Parts {
		share := t.Round.Parts[k].Share
		if p.Total += share; k < i {
			p.Before += share
		}
	}
	return p
}

// countForks returns a report with the trial's step: the start of the fork slot plus the steps of all forks since. It
// copies the report, because the original may be sent again.
func countForks(t *state.Trial, l *state.Lease, r *outbidv1.Report) *outbidv1.Report {
	r.ForkStep = 0
	if t.Part(l) == nil {
		return r
	}
	r = proto.CloneOf(r)
	r.ForkStep = r.GetStep()
	r.Step = t.Round.Reported(l.ID, r.ForkStep).Step()
	return r
}

// touchForked marks the sweeps whose trials are trained by forks, or whose forks are being averaged.
func (c *Core) touchForked() {
	for _, s := range c.st.Forked() {
		c.touched[s.ID] = true
	}
}

// advanceForks ends what is over: forks that trained their share, and fork slots.
func (c *Core) advanceForks(s *state.Sweep) {
	for _, n := range slices.Clone(s.Forked) {
		t := s.Trials[n]
		for _, l := range slices.Clone(t.Leases) {
			switch {
			case l.Revoking != outbidv1.RevokeKind_REVOKE_KIND_UNSPECIFIED || t.Part(l) == nil:
			case l.AtTarget:
				c.revokeLease(s, t, l, outbidv1.RevokeKind_REVOKE_KIND_PAUSE, "trained its share of the fork slot")
			case t.Round.Overdue(c.now):
				c.revokeLease(s, t, l, outbidv1.RevokeKind_REVOKE_KIND_PAUSE, "the fork slot is over")
			}
		}
		if t.Consolidating() {
			c.consolidate(s, t)
		}
	}
}

// endForks ends a fork slot. The trial continues from a checkpoint, or from where the slot began if that is nil.
func (c *Core) endForks(s *state.Sweep, t *state.Trial, to *outbidv1.Checkpoint, again outbidv1.ForkAgain, reason string) {
	r := t.Round
	if to != nil && !r.Void {
		c.acceptAverage(t)
	}
	e := &outbidv1.ForksEnded{Sweep: s.ID, Trial: t.Number, Step: cmp.Or(to.GetStep(), r.From), Checkpoint: to, Again: again, Reason: reason}
	for _, p := range r.Sources() {
		if to != nil && (to.GetStep() == r.Counts() || to == p.Saved) {
			e.Forks = append(e.Forks, &outbidv1.ForkSteps{LeaseId: p.Lease, Steps: r.Steps(&p)})
		}
	}
	c.emit(&outbidv1.Event{Kind: &outbidv1.Event_ForksEnded{ForksEnded: e}})
	if len(e.GetForks()) > 1 {
		c.out.Merges.Averaged++
		c.doubt(s, t, r, to)
	}
	c.drop(s, t)
}

// inRound reports whether a checkpoint may be used by an average that is about to be made.
func inRound(t *state.Trial, ck objects.Checkpoint) bool {
	part, _ := t.Round.Part(ck.LeaseID)
	return part != nil
}

// forkable reports whether a sweep's jobs may be forked.
func (e *appEntry) forkable() bool { return e.sweep.Terms.MostForks > 1 }

// fillForks sets how a job may be forked.
func (e *appEntry) fillForks(j *policy.Job, t *state.Trial) {
	j.Forked, j.Consolidating = t.Round != nil && len(t.Leases) > 0, t.Consolidating()
	if t.ForkAgain == outbidv1.ForkAgain_FORK_AGAIN_UNSPECIFIED && t.UntilStep > 0 {
		j.LeastForks, j.Forks = e.sweep.Terms.LeastForks, e.sweep.Terms.MostForks
		if len(t.Leases) == 0 {
			j.StartStep = t.From().GetStep()
		}
	}
}
