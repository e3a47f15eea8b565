package state

import (
	"cmp"
	"slices"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/fork"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Part returns the part of the trial's fork slot that a lease trains, or nil.
func (t *Trial) Part(l *Lease) *fork.Part {
	part, _ := t.Slot.Part(l.ID)
	return part
}

// Until returns the target step of a lease's fork: the target of the trial, or that of its share of the fork slot.
func (t *Trial) Until(l *Lease) int64 {
	if t.Part(l) != nil {
		return t.Slot.Until(l.ID)
	}
	return t.UntilStep
}

// Consolidating reports whether the trial's forks have ended and must be averaged.
func (t *Trial) Consolidating() bool { return t.Slot != nil && len(t.Leases) == 0 }

// needsForSlot reports whether the trial's fork slot started from a checkpoint, or needs it for the average.
func (t *Trial) needsForSlot(c *outbidv1.Checkpoint) bool {
	if t.Slot == nil {
		return false
	}
	return c.GetKey() == t.Slot.Start.GetKey() || slices.ContainsFunc(t.Slot.Parts, func(p fork.Part) bool {
		return p.Saved != nil && p.Saved.GetKey() == c.GetKey()
	})
}

// forkSlots owns the fork slots of trials: only it changes Trial.Slot.
type forkSlots struct {
	// forked are the sweeps with a trial in a fork slot.
	forked map[*Sweep]bool
}

// Forked returns the sweeps with a trial in a fork slot, in order of submission.
func (x *forkSlots) Forked() []*Sweep {
	if len(x.forked) == 0 {
		return nil
	}
	all := make([]*Sweep, 0, len(x.forked))
	for s := range x.forked {
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b *Sweep) int { return cmp.Compare(a.Order, b.Order) })
	return all
}

// setSlot updates a trial's fork slot; nil ends it.
func (x *forkSlots) setSlot(s *Sweep, t *Trial, slot *fork.Slot) {
	t.Slot = slot
	i, had := slices.BinarySearch(s.Forked, t.Number)
	switch {
	case slot != nil && !had:
		s.Forked = slices.Insert(s.Forked, i, t.Number)
	case slot == nil && had:
		s.Forked = slices.Delete(s.Forked, i, i+1)
	}
	if len(s.Forked) > 0 {
		x.forked[s] = true
	} else {
		delete(x.forked, s)
	}
}

func (x *forkSlots) forksBegan(at time.Time, s *Sweep, t *Trial, e *outbidv1.ForksBegan) error {
	if t.Slot != nil {
		return broken("a fork slot begins during another one")
	}
	slot := fork.Begin(e.GetStart(), e.GetForks(), from(e.GetEnds()))
	slot.Began = at
	x.setSlot(s, t, slot)
	return nil
}

// joinSlot adds a lease with a share of the trial's fork slot to the slot.
func (x *forkSlots) joinSlot(s *Sweep, t *Trial, l *Lease, e *outbidv1.LeaseGranted) error {
	switch {
	case e.GetShare() == 0 && t.Slot == nil:
		return nil
	case e.GetShare() <= 0 || t.Slot == nil || t.Slot.Void:
		return broken("lease %d has a share of %d steps, which does not fit the trial's fork slot", l.ID, e.GetShare())
	}
	x.setSlot(s, t, t.Slot.Join(l.ID, e.GetShare()).Placed(l.ID, l.placesView(), e.GetRate()))
	l.Step = t.Slot.From
	return nil
}

// dropUnsavedSteps drops the steps that a fork has not saved when its lease ends.
func (x *forkSlots) dropUnsavedSteps(s *Sweep, t *Trial, l *Lease) {
	if t.Part(l) != nil {
		x.setSlot(s, t, t.Slot.Ended(l.ID))
		s.advance(t, t.Slot.Step())
	}
}

// countForkSteps adds a fork's steps to the trial's if it is part of a fork slot. A trial that makes progress as one
// process may be forked again.
func (x *forkSlots) countForkSteps(s *Sweep, t *Trial, l *Lease) {
	switch {
	case t.Part(l) != nil:
		x.setSlot(s, t, t.Slot.Reported(l.ID, l.Step))
		s.advance(t, t.Slot.Step())
	case t.ForkAgain == outbidv1.ForkAgain_FORK_AGAIN_LATER && l.Step > l.FromStep:
		t.ForkAgain = outbidv1.ForkAgain_FORK_AGAIN_UNSPECIFIED
	}
}

func (x *forkSlots) savedInSlot(s *Sweep, t *Trial, c *outbidv1.Checkpoint) {
	if part, _ := t.Slot.Part(c.GetLeaseId()); part != nil && !part.Over {
		x.setSlot(s, t, t.Slot.Saved(c.GetLeaseId(), c))
	}
}

func (x *forkSlots) consolidationOrdered(_ time.Time, s *Sweep, t *Trial, e *outbidv1.ConsolidationOrdered) error {
	if !t.Consolidating() {
		return broken("it has no forks to average, or they are still training")
	}
	x.setSlot(s, t, t.Slot.Ordered(e.GetAttempt(), e.GetNode(), e.GetBoot()))
	return nil
}

// forksEnded continues the trial from the result of its forks.
func (x *forkSlots) forksEnded(at time.Time, s *Sweep, t *Trial, e *outbidv1.ForksEnded) error {
	c := e.GetCheckpoint()
	if !t.Consolidating() {
		return broken("it has no forks to average, or they are still training")
	}
	void := t.Slot.Void
	t.recordMerge(at, e)
	x.setSlot(s, t, nil)
	t.ForkAgain = e.GetAgain()
	if void {
		return nil
	}
	s.advance(t, e.GetStep())
	if c == nil {
		return nil
	}
	t.Checkpoints = slices.DeleteFunc(slices.Clone(t.Checkpoints), func(o *outbidv1.Checkpoint) bool { return o.GetKey() == c.GetKey() })
	t.Checkpoints = append(t.Checkpoints, c) // the last one is the one to continue from
	s.rank(t.Number, c)
	return nil
}

func slotRecord(slot *fork.Slot) *outbidv1.ForkRound {
	if slot == nil {
		return nil
	}
	record := &outbidv1.ForkRound{
		Start: slot.Start, Began: stamp(slot.Began), Ends: stamp(slot.Ends), Forks: slot.Forks, Attempt: slot.Attempt, Node: slot.Node, Boot: slot.Boot, Void: slot.Void,
		Lost: slot.Lost,
	}
	for _, p := range slot.Parts {
		record.Parts = append(record.Parts, &outbidv1.ForkRoundPart{
			LeaseId: p.Lease, Share: p.Share, Done: p.Done, Saved: p.Saved, Over: p.Over,
			Places: p.Places, Forecast: p.Forecast, Rate: p.Rate,
		})
	}
	return record
}

func (x *forkSlots) restoreSlot(s *Sweep, t *Trial, record *outbidv1.ForkRound) {
	if record == nil {
		return
	}
	slot := fork.Begin(record.GetStart(), record.GetForks(), from(record.GetEnds()))
	slot.Began, slot.Attempt, slot.Node, slot.Boot, slot.Void = from(record.GetBegan()), record.GetAttempt(), record.GetNode(), record.GetBoot(), record.GetVoid()
	slot.Lost = record.GetLost()
	for _, p := range record.GetParts() {
		slot.Parts = append(slot.Parts, fork.Part{
			Lease: p.GetLeaseId(), Share: p.GetShare(), Done: p.GetDone(), Saved: p.GetSaved(), Over: p.GetOver(),
			Places: p.GetPlaces(), Forecast: p.GetForecast(), Rate: p.GetRate(),
		})
	}
	x.setSlot(s, t, slot)
}
