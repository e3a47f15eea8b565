package state

import (
	"slices"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/fork"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// mergesKept limits the finished fork slots that a trial keeps; the ledger has all of them.
const mergesKept = 8

// recordMerge records the result of the trial's fork slot, which ends.
func (t *Trial) recordMerge(at time.Time, e *outbidv1.ForksEnded) {
	slot := t.Slot
	t.Slots++
	m := &outbidv1.TrialMerge{
		Round: t.Slots, Began: stamp(slot.Began), Time: stamp(at), FromStep: slot.From, Step: e.GetStep(), Reason: e.GetReason(),
	}
	if len(e.GetForks()) > 1 {
		m.AveragedOn = slot.Node
	}
	for i := range slot.Parts {
		part := forkView(slot, &slot.Parts[i], "ended")
		part.Counted = countedOf(e, part.GetLeaseId())
		m.Forks = append(m.Forks, part)
	}
	kept := t.Merges[max(0, len(t.Merges)+1-mergesKept):]
	t.Merges = append(slices.Clip(slices.Clone(kept)), m) // readers may have the old list
}

// countedOf returns the steps of a fork that count after its fork slot.
func countedOf(e *outbidv1.ForksEnded, lease uint64) int64 {
	for _, f := range e.GetForks() {
		if f.GetLeaseId() == lease {
			return f.GetSteps()
		}
	}
	return 0
}

// slotView returns the trial's fork slot as users see it.
func (t *Trial) slotView() *outbidv1.TrialRound {
	slot := t.Slot
	v := &outbidv1.TrialRound{FromStep: slot.From, Began: stamp(slot.Began), Ends: stamp(slot.Ends)}
	if t.Consolidating() {
		v.ConsolidatesOn, v.Attempt = slot.Node, slot.Attempt
	}
	for i := range slot.Parts {
		how := "ended"
		if l := t.Held(slot.Parts[i].Lease); l != nil {
			how = leaseWord(l.state())
		}
		v.Forks = append(v.Forks, forkView(slot, &slot.Parts[i], how))
	}
	return v
}

func forkView(slot *fork.Slot, p *fork.Part, how string) *outbidv1.TrialFork {
	return &outbidv1.TrialFork{
		LeaseId: p.Lease, Places: p.Places, State: how, Share: p.Share, Steps: p.Done, Counted: slot.Steps(p),
		StepsPerSecond: p.Rate, ForecastStepsPerSecond: p.Forecast,
	}
}
