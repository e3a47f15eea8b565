package sim

import (
	"fmt"
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// slotChecker counts what the forks of fork slots trained, based on the actions of their processes, independently of the
// control loop:
//
//   - All forks of a slot begin at the trial's checkpoint, and their shares do not exceed the trial's remaining steps.
//   - A report has the step of the trial: the step where the slot began plus the steps that each fork has done since.
//   - When the slot ends, everything that the forks had saved according to the ledger counts once, and the checkpoint
//     that the trial continues from is made of exactly that. Less counts only if no worker could average, or the trial
//     had ended.
//   - If an average is dropped, no step is undone: the trial continues at the step where its slot ended, from the
//     checkpoint of one fork. Steps done since do not count.
type slotChecker struct {
	active map[trialKey]*watchedSlot
	parts  map[uint64]*watchedPart
	// averages are those that workers stored, by key.
	averages map[string]*outbidv1.Consolidation
	// voided are the leases whose forks began with an average that was dropped.
	voided map[uint64]bool
}

type watchedSlot struct {
	key  trialKey
	from int64
	// forks are the forks of the slot, in order.
	forks []*watchedPart
	// orders counts the orders to average. failed is set if one failed in a worker.
	orders int
	failed bool
}

// watchedPart is a fork of a slot.
type watchedPart struct {
	slot  *watchedSlot
	lease uint64
	share int64
	// trained is the number of steps of its process until newest, its newest checkpoint in the ledger. reported is
	// the number until its last report.
	trained, reported int64
	newest            string
	// reached is set once it did its share.
	reached bool
}

func newSlotChecker() *slotChecker {
	return &slotChecker{active: map[trialKey]*watchedSlot{}, parts: map[uint64]*watchedPart{}, averages: map[string]*outbidv1.Consolidation{}, voided: map[uint64]bool{}}
}

// recordFailure records that a worker could not average.
func (c *slotChecker) recordFailure(o *outbidv1.Consolidation) {
	if p := c.parts[o.GetFork().GetLeaseId()]; p != nil {
		p.slot.failed = true
	}
}

func (v *invariants) forksBegan(e *outbidv1.ForksBegan) error {
	key := trialKey{e.GetSweep(), e.GetTrial()}
	if r := v.slots.active[key]; r != nil || len(v.holds[key]) > 0 {
		return fmt.Errorf("trial %d of %s begins a fork slot while it holds leases %v, or has a slot from step %d", key.trial, key.sweep, v.holds[key], r.start())
	}
	// A step that was almost complete when it was saved may count or not.
	if saved := v.steps.savedStep(key); e.GetStart().GetStep() != int64(saved+rounding) && e.GetStart().GetStep() != int64(saved) {
		return fmt.Errorf("trial %d of %s begins a fork slot at step %d, but is saved at %g", key.trial, key.sweep, e.GetStart().GetStep(), saved)
	}
	v.slots.active[key] = &watchedSlot{key: key, from: e.GetStart().GetStep()}
	return nil
}

// start returns the first step of a slot, or -1 without a slot.
func (r *watchedSlot) start() int64 {
	if r == nil {
		return -1
	}
	return r.from
}

// handleSlotLease handles a lease that is part of its trial's slot.
func (v *invariants) handleSlotLease(key trialKey, e *outbidv1.LeaseGranted) error {
	r := v.slots.active[key]
	if r == nil {
		return fmt.Errorf("lease %d has a share of %d steps, but trial %d of %s has no fork slot", e.GetLeaseId(), e.GetShare(), key.trial, key.sweep)
	}
	p := &watchedPart{slot: r, lease: e.GetLeaseId(), share: e.GetShare()}
	r.forks, v.slots.parts[e.GetLeaseId()] = append(r.forks, p), p
	shares := r.from
	for _, o := range r.forks {
		shares += o.share
	}
	if until := v.w.core.State().Sweeps[key.sweep].Trials[key.trial].UntilStep; shares > until {
		return fmt.Errorf("the forks of trial %d of %s train until step %d together, past the trial's target %d", key.trial, key.sweep, shares, until)
	}
	return nil
}

func (p *watchedPart) checkStart(e *outbidv1.ForkStarted) error {
	if e.GetFromStep() != p.slot.from {
		return fmt.Errorf("a fork of trial %d of %s starts from step %d; its slot began at %d", e.GetTrial(), e.GetSweep(), e.GetFromStep(), p.slot.from)
	}
	return nil
}

// handleSave handles a checkpoint in the ledger. steps is the number of steps that the process trained for it.
func (p *watchedPart) handleSave(c *outbidv1.Checkpoint, steps float64) error {
	p.trained += int64(steps + rounding)
	p.newest = c.GetKey()
	if c.GetStep() != p.slot.from+p.trained || p.trained > p.share {
		return fmt.Errorf("lease %d of trial %d of %s saved step %d; its process trained %d from %d on, of a share of %d",
			p.lease, p.slot.key.trial, p.slot.key.sweep, c.GetStep(), p.trained, p.slot.from, p.share)
	}
	return nil
}

// checkReport checks the step of a report, which counts the steps of all forks.
func (p *watchedPart) checkReport(r *outbidv1.Report) error {
	p.reported = r.GetForkStep() - p.slot.from
	sum := p.slot.from
	for _, o := range p.slot.forks {
		sum += o.reported
	}
	if r.GetStep() != sum {
		return fmt.Errorf("lease %d of trial %d of %s reports step %d; its slot began at %d, and its forks have said %d since",
			p.lease, p.slot.key.trial, p.slot.key.sweep, r.GetStep(), p.slot.from, sum-p.slot.from)
	}
	return nil
}

// handleLeaseEnd handles the end of its lease. Steps that were not saved are lost.
func (p *watchedPart) handleLeaseEnd() {
	if p != nil {
		p.reported = p.trained
	}
}

// suspected reports whether its trial should run alone because nodes were lost under it.
func (p *watchedPart) suspected(st *state.State) bool {
	return st.Sweeps[p.slot.key.sweep].Trials[p.slot.key.trial].Suspected
}

func (v *invariants) handleOrder(e *outbidv1.ConsolidationOrdered) error {
	key := trialKey{e.GetSweep(), e.GetTrial()}
	r := v.slots.active[key]
	if r == nil || len(v.holds[key]) > 0 {
		return fmt.Errorf("an average is ordered for trial %d of %s, which holds leases %v; its slot began at step %d", key.trial, key.sweep, v.holds[key], r.start())
	}
	r.orders++
	return nil
}

// mostOrders is the number of orders after which a trial continues without an average.
const mostOrders = 5

// forksEnded checks that a slot counts all steps of its forks, once.
func (v *invariants) forksEnded(e *outbidv1.ForksEnded) error {
	key := trialKey{e.GetSweep(), e.GetTrial()}
	r := v.slots.active[key]
	if r == nil || len(v.holds[key]) > 0 {
		return fmt.Errorf("a fork slot of trial %d of %s ends, which holds leases %v; it began at step %d", key.trial, key.sweep, v.holds[key], r.start())
	}
	delete(v.slots.active, key)
	var saved []*watchedPart
	for _, p := range r.forks {
		delete(v.slots.parts, p.lease)
		if p.trained > 0 {
			saved = append(saved, p)
		}
	}
	excused := r.failed || r.orders >= mostOrders || v.quiet[key] || v.idle[key.sweep]
	if err := r.checkCounted(saved, e, v.slots.averages[e.GetCheckpoint().GetKey()], excused); err != nil {
		return fmt.Errorf("a fork slot of %d forks of trial %d of %s, which began at step %d: %w", len(r.forks), key.trial, key.sweep, r.from, err)
	}
	v.steps.handleSlotEnd(key, e.GetStep(), e.GetCheckpoint().GetKey())
	return nil
}

// mergeJudged checks that a dropped average costs no step that its slot counted.
func (v *invariants) mergeJudged(e *outbidv1.MergeJudged) error {
	key, to := trialKey{e.GetSweep(), e.GetTrial()}, e.GetCheckpoint()
	made := v.slots.averages[e.GetKey()]
	if made == nil {
		return fmt.Errorf("trial %d of %s: %q is judged, but no worker made that average", key.trial, key.sweep, e.GetKey())
	}
	if e.GetVerdict() != outbidv1.MergeVerdict_MERGE_VERDICT_DROPPED {
		return nil
	}
	of := func(s *outbidv1.ConsolidationSource) bool { return s.GetCheckpoint().GetKey() == to.GetKey() }
	if to.GetStep() != made.GetStep() || !slices.ContainsFunc(made.GetSources(), of) {
		return fmt.Errorf("trial %d of %s continues from %v instead of a source of the average %v", key.trial, key.sweep, to, made)
	}
	if t := v.w.core.State().Sweeps[key.sweep].Trials[key.trial]; t.Step != made.GetStep() || t.From().GetKey() != to.GetKey() {
		return fmt.Errorf("trial %d of %s is at step %d and continues from %v, after its average of step %d was dropped", key.trial, key.sweep,
			t.Step, t.From(), made.GetStep())
	}
	for _, lease := range v.holds[key] {
		v.slots.voided[lease] = true
	}
	if r := v.slots.active[key]; r != nil {
		for _, p := range r.forks {
			p.trained, p.reported, p.newest = 0, 0, ""
		}
	}
	v.w.exact[to.GetKey()] = float64(to.GetStep()) // the checkpoint now stands for all steps of the slot
	v.steps.dropCheckpoint(key, to.GetKey())
	v.steps.handleSlotEnd(key, to.GetStep(), to.GetKey())
	return nil
}

// checkCounted checks that the steps of all forks that saved are counted, or those of one fork if that is excused.
func (r *watchedSlot) checkCounted(saved []*watchedPart, e *outbidv1.ForksEnded, made *outbidv1.Consolidation, excused bool) error {
	all, key := r.from, e.GetCheckpoint().GetKey()
	for _, p := range saved {
		all += p.trained
	}
	steps := r.from
	for _, f := range e.GetForks() {
		if !slices.ContainsFunc(saved, func(p *watchedPart) bool { return p.lease == f.GetLeaseId() && p.trained == f.GetSteps() }) {
			return fmt.Errorf("%d steps of lease %d are counted, but it saved another number", f.GetSteps(), f.GetLeaseId())
		}
		steps += f.GetSteps()
	}
	switch {
	case e.GetStep() != steps:
		return fmt.Errorf("it ends at %d, but its forks add up to %d", e.GetStep(), steps)
	case e.GetStep() != all && !excused:
		return fmt.Errorf("it ends at %d, but its forks had saved until %d: %s", e.GetStep(), all, e.GetReason())
	case len(saved) == 0 && key != "", len(saved) == 1 && key != saved[0].newest:
		return fmt.Errorf("the trial continues from %q, but %d forks saved anything", key, len(saved))
	case len(saved) < 2:
		return nil
	case e.GetStep() == all:
		return r.checkAverage(saved, key, made)
	case len(e.GetForks()) != 1 || !slices.ContainsFunc(saved, func(p *watchedPart) bool { return p.newest == key }):
		return fmt.Errorf("the trial continues from %q, which is not the newest checkpoint of a fork", key)
	}
	return nil
}

// checkAverage checks that an average is made of each fork's newest checkpoint, weighted by the fork's steps.
func (r *watchedSlot) checkAverage(saved []*watchedPart, key string, made *outbidv1.Consolidation) error {
	ok := len(made.GetSources()) == len(saved)
	for _, s := range made.GetSources() {
		ok = ok && slices.ContainsFunc(saved, func(p *watchedPart) bool {
			return p.newest == s.GetCheckpoint().GetKey() && p.trained == s.GetSteps()
		})
	}
	if !ok {
		return fmt.Errorf("the trial continues from %q, which is made of %v, not of what its %d forks saved", key, made.GetSources(), len(saved))
	}
	return nil
}
