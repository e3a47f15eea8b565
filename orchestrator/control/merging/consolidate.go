package merging

import (
	"cmp"
	"fmt"

	"github.com/outbid-dev/outbid/orchestrator/objects"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// consolidationTries is how many times an average is ordered before the trial continues from one fork's checkpoint.
const consolidationTries = 5

// consolidate averages what the forks of a slot saved, or continues without an average if no fork, or only one, saved
// anything.
func (mg *Merging) consolidate(s *state.Sweep, t *state.Trial) {
	slot := t.Slot
	sources := slot.Sources()
	switch {
	case len(sources) == 0:
		mg.endFruitless(s, t)
	case len(sources) == 1:
		mg.endForks(s, t, sources[0].Saved, outbidv1.ForkAgain_FORK_AGAIN_UNSPECIFIED, "one fork saved steps")
	case t.Done() && t.ResumesAs == outbidv1.TrialState_TRIAL_STATE_UNSPECIFIED:
		mg.endForks(s, t, sources[0].Saved, outbidv1.ForkAgain_FORK_AGAIN_UNSPECIFIED, "the trial has ended")
	default:
		mg.orderConsolidation(s, t)
	}
}

// endFruitless ends a fork slot in which no fork saved a step. One process trains the trial next, until the next slot
// takes it from its device. If that process saves nothing either, forks would restart at the same step forever, so
// the trial is not forked again.
func (mg *Merging) endFruitless(s *state.Sweep, t *state.Trial) {
	again, reason := max(t.ForkAgain, outbidv1.ForkAgain_FORK_AGAIN_LATER), "none of its forks saved a step"
	if again == outbidv1.ForkAgain_FORK_AGAIN_LATER && !t.Slot.Void && fruitlessFrom(t, t.Slot.From) {
		again = outbidv1.ForkAgain_FORK_AGAIN_NEVER
		reason = fmt.Sprintf("no fork saved anything after step %d in two fork slots", t.Slot.From)
		mg.core.Note(s.ID, &t.Number, "warning", "%s: it continues as one process and is not forked again. Forks need code that saves within a fork slot", reason)
	}
	mg.endForks(s, t, nil, again, reason)
}

// fruitlessFrom reports whether the trial's last fork slot began at this step and saved nothing.
func fruitlessFrom(t *state.Trial, from int64) bool {
	if len(t.Merges) == 0 {
		return false
	}
	last := t.Merges[len(t.Merges)-1]
	return last.GetFromStep() == from && last.GetStep() == from
}

// orderConsolidation makes a node average what the forks saved, unless a live node is doing so.
func (mg *Merging) orderConsolidation(s *state.Sweep, t *state.Trial) {
	slot := t.Slot
	if n := mg.st.Nodes[slot.Node]; n != nil && n.Up() && n.Info.GetBoot() == slot.Boot {
		return
	}
	name := mg.consolidator(slot.Node)
	switch {
	case slot.Attempt >= consolidationTries, name == "" && s.State == outbidv1.SweepState_SWEEP_STATE_STOPPING:
		mg.withoutConsolidation(s, t, outbidv1.ForkAgain_FORK_AGAIN_LATER, "no worker could average what its forks saved")
	case name != "":
		mg.orderConsolidationOn(s, t, name)
	}
}

// orderConsolidationOn orders another attempt at an average from a live node.
func (mg *Merging) orderConsolidationOn(s *state.Sweep, t *state.Trial, node string) {
	mg.core.Emit(&outbidv1.Event{Kind: &outbidv1.Event_ConsolidationOrdered{ConsolidationOrdered: &outbidv1.ConsolidationOrdered{
		Sweep: s.ID, Trial: t.Number, Node: node, Boot: mg.st.Nodes[node].Info.GetBoot(), Attempt: t.Slot.Attempt + 1,
	}}})
	mg.core.OrdersDue(node)
}

// consolidator returns the node to average on, or "" if no node is up. It is the node with the fewest leases, and a
// node other than the one that failed if there is another.
func (mg *Merging) consolidator(failed string) string {
	best := ""
	rank := func(name string) int {
		if name == failed {
			return 1 << 30
		}
		return len(mg.st.Nodes[name].Leases)
	}
	for _, name := range mg.st.NodeNames {
		if mg.st.Nodes[name].Up() && (best == "" || rank(name) < rank(best)) {
			best = name
		}
	}
	return best
}

// withoutConsolidation continues from the checkpoint of the fork with the most steps. The other forks' steps are
// lost.
func (mg *Merging) withoutConsolidation(s *state.Sweep, t *state.Trial, again outbidv1.ForkAgain, why string) {
	most, how := t.Slot.Sources()[0], "continues as one process for now"
	if again == outbidv1.ForkAgain_FORK_AGAIN_NEVER {
		how = "is not forked again"
	}
	mg.core.Note(s.ID, &t.Number, "warning", "%s: it continues from the fork with the most steps, at step %d of %d, and %s",
		why, most.Saved.GetStep(), t.Slot.Counts(), how)
	mg.endForks(s, t, most.Saved, again, why)
}

// Consolidated applies a node's result of an average.
func (mg *Merging) Consolidated(n *state.Node, s *state.Sweep, t *state.Trial, done *outbidv1.Consolidated) {
	slot := t.Slot
	if !t.Consolidating() || slot.Node != n.Info.GetName() || slot.Attempt != done.GetAttempt() {
		return // the result of an older attempt
	}
	ck := done.GetCheckpoint()
	switch {
	case ck.GetKey() == consolidatedKey(s, t) && ck.GetStep() == slot.Counts():
		ck.LeaseId = slot.Parts[0].Lease
		mg.endForks(s, t, ck, outbidv1.ForkAgain_FORK_AGAIN_UNSPECIFIED, "the checkpoints of its forks were averaged")
	case done.GetMismatch():
		mg.withoutConsolidation(s, t, outbidv1.ForkAgain_FORK_AGAIN_NEVER, done.GetFailure())
	case slot.Attempt >= consolidationTries:
		mg.withoutConsolidation(s, t, outbidv1.ForkAgain_FORK_AGAIN_LATER, done.GetFailure())
	default:
		mg.orderConsolidationOn(s, t, cmp.Or(mg.consolidator(slot.Node), slot.Node))
	}
}

// consolidatedKey returns where the average of a fork slot is stored: with the checkpoints of its first fork, which
// all have fewer steps.
func consolidatedKey(s *state.Sweep, t *state.Trial) string {
	slot := t.Slot
	format := objects.Safetensors
	if sources := slot.Sources(); len(sources) > 0 {
		if ck, ok := objects.ParseCheckpoint(sources[0].Saved.GetKey()); ok {
			format = ck.Format
		}
	}
	return objects.Checkpoint{Sweep: s.ID, Trial: t.Number, Step: slot.Counts(), LeaseID: slot.Parts[0].Lease, Format: format}.Key()
}

// Consolidations returns the averages that a node must compute.
func (mg *Merging) Consolidations(n *state.Node) []*outbidv1.Consolidation {
	var all []*outbidv1.Consolidation
	for _, s := range mg.st.Forked() {
		for _, number := range s.Forked {
			t := s.Trials[number]
			if slot := t.Slot; !t.Consolidating() || slot.Node != n.Info.GetName() || slot.Boot != n.Info.GetBoot() {
				continue
			}
			all = append(all, Consolidation(s, t))
		}
	}
	return all
}

// Consolidation returns the order to average what the forks of a trial saved.
func Consolidation(s *state.Sweep, t *state.Trial) *outbidv1.Consolidation {
	slot := t.Slot
	order := &outbidv1.Consolidation{
		Fork:    &outbidv1.ForkRef{Sweep: s.ID, Trial: t.Number, LeaseId: slot.Parts[0].Lease},
		Attempt: slot.Attempt, Step: slot.Counts(), Key: consolidatedKey(s, t),
	}
	for _, p := range slot.Sources() {
		order.Sources = append(order.Sources, &outbidv1.ConsolidationSource{Checkpoint: p.Saved, Steps: slot.Steps(&p)})
	}
	merge := s.Terms.Merge
	if order.Uniform = merge.Uniform; merge.Outer && slot.Start != nil {
		order.Outer = &outbidv1.OuterStep{Start: slot.Start, Rate: merge.Rate, Momentum: merge.Momentum}
	}
	return order
}
