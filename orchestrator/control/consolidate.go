package control

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/objects"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// consolidationTries is how many times an average is ordered before the trial continues from one fork's checkpoint.
const consolidationTries = 5

// consolidate averages what the forks of a slot saved, or continues without an average if no fork, or only one, saved
// anything.
func (c *Core) consolidate(s *state.Sweep, t *state.Trial) {
	r := t.Round
	sources := r.Sources()
	switch {
	case len(sources) == 0:
		c.endFruitless(s, t)
	case len(sources) == 1:
		c.endForks(s, t, sources[0].Saved, outbidv1.ForkAgain_FORK_AGAIN_UNSPECIFIED, "one fork saved steps")
	case t.Done() && t.ResumesAs == outbidv1.TrialState_TRIAL_STATE_UNSPECIFIED:
		c.endForks(s, t, sources[0].Saved, outbidv1.ForkAgain_FORK_AGAIN_UNSPECIFIED, "the trial has ended")
	default:
		c.orderConsolidation(s, t)
	}
}

// endFruitless ends a fork slot in which no fork saved a step. One process trains the trial next, until the next slot
// takes it from its device. If that process saves nothing either, forks would restart at the same step forever, so
// the trial is not forked again.
func (c *Core) endFruitless(s *state.Sweep, t *state.Trial) {
	again, reason := max(t.ForkAgain, outbidv1.ForkAgain_FORK_AGAIN_LATER), "none of its forks saved a step"
	if again == outbidv1.ForkAgain_FORK_AGAIN_LATER && !t.Round.Void && fruitlessFrom(t, t.Round.From) {
		again = outbidv1.ForkAgain_FORK_AGAIN_NEVER
		reason = fmt.Sprintf("no fork saved anything after step %d in two fork slots", t.Round.From)
		c.note(s.ID, &t.Number, "warning", "%s: it continues as one process and is not forked again. Forks need code that saves within a fork slot", reason)
	}
	c.endForks(s, t, nil, again, reason)
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
func (c *Core) orderConsolidation(s *state.Sweep, t *state.Trial) {
	r := t.Round
	if n := c.st.Nodes[r.Node]; n != nil && n.Up() && n.Info.GetBoot() == r.Boot {
		return
	}
	name := c.consolidator(r.Node)
	switch {
	case r.Attempt >= consolidationTries, name == "" && s.State == outbidv1.SweepState_SWEEP_STATE_STOPPING:
		c.withoutConsolidation(s, t, outbidv1.ForkAgain_FORK_AGAIN_LATER, "no worker could average what its forks saved")
	case name != "":
		c.orderConsolidationOn(s, t, name)
	}
}

// orderConsolidationOn orders another attempt at an average from a live node.
func (c *Core) orderConsolidationOn(s *state.Sweep, t *state.Trial, node string) {
	c.emit(&outbidv1.Event{Kind: &outbidv1.Event_ConsolidationOrdered{ConsolidationOrdered: &outbidv1.ConsolidationOrdered{
		Sweep: s.ID, Trial: t.Number, Node: node, Boot: c.st.Nodes[node].Info.GetBoot(), Attempt: t.Round.Attempt + 1,
	}}})
	c.dirty(node)
}

// consolidator returns the node to average on, or "" if no node is up. It is the node with the fewest leases, and a
// node other than the one that failed if there is another.
func (c *Core) consolidator(failed string) string {
	best := ""
	rank := func(name string) int {
		if name == failed {
			return 1 << 30
		}
		return len(c.st.Nodes[name].Leases)
	}
	for _, name := range c.st.NodeNames {
		if c.st.Nodes[name].Up() && (best == "" || rank(name) < rank(best)) {
			best = name
		}
	}
	return best
}

// withoutConsolidation continues from the checkpoint of the fork with the most steps. The other forks' steps are
// lost.
func (c *Core) withoutConsolidation(s *state.Sweep, t *state.Trial, again outbidv1.ForkAgain, why string) {
	most, how := t.Round.Sources()[0], "continues as one process for now"
	if again == outbidv1.ForkAgain_FORK_AGAIN_NEVER {
		how = "is not forked again"
	}
	c.note(s.ID, &t.Number, "warning", "%s: it continues from the fork with the most steps, at step %d of %d, and %s",
		why, most.Saved.GetStep(), t.Round.Counts(), how)
	c.endForks(s, t, most.Saved, again, why)
}

// consolidated applies a node's result of an average.
func (c *Core) consolidated(n *state.Node, s *state.Sweep, t *state.Trial, done *outbidv1.Consolidated) {
	r := t.Round
	if !t.Consolidating() || r.Node != n.Info.GetName() || r.Attempt != done.GetAttempt() {
		return // the result of an older attempt
	}
	ck := done.GetCheckpoint()
	switch {
	case ck.GetKey() == consolidatedKey(s, t) && ck.GetStep() == r.Counts():
		ck.LeaseId = r.Parts[0].Lease
		c.endForks(s, t, ck, outbidv1.ForkAgain_FORK_AGAIN_UNSPECIFIED, "the checkpoints of its forks were averaged")
	case done.GetMismatch():
		c.withoutConsolidation(s, t, outbidv1.ForkAgain_FORK_AGAIN_NEVER, done.GetFailure())
	case r.Attempt >= consolidationTries:
		c.withoutConsolidation(s, t, outbidv1.ForkAgain_FORK_AGAIN_LATER, done.GetFailure())
	default:
		c.orderConsolidationOn(s, t, cmp.Or(c.consolidator(r.Node), r.Node))
	}
}

// consolidatedKey returns where the average of a fork slot is stored: with the checkpoints of its first fork, which
// all have fewer steps.
func consolidatedKey(s *state.Sweep, t *state.Trial) string {
	r := t.Round
	format := objects.Safetensors
	if sources := r.Sources(); len(sources) > 0 {
		if ck, ok := objects.ParseCheckpoint(sources[0].Saved.GetKey()); ok {
			format = ck.Format
		}
	}
	return objects.Checkpoint{Sweep: s.ID, Trial: t.Number, Step: r.Counts(), LeaseID: r.Parts[0].Lease, Format: format}.Key()
}

// consolidations returns the averages that a node must compute.
func (c *Core) consolidations(n *state.Node) []*outbidv1.Consolidation {
	var all []*outbidv1.Consolidation
	for _, s := range c.st.Forked() {
		for _, number := range s.Forked {
			t := s.Trials[number]
			if r := t.Round; !t.Consolidating() || r.Node != n.Info.GetName() || r.Boot != n.Info.GetBoot() {
				continue
			}
			all = append(all, consolidationOf(s, t))
		}
	}
	return all
}

func consolidationOf(s *state.Sweep, t *state.Trial) *outbidv1.Consolidation {
	r := t.Round
	order := &outbidv1.Consolidation{
		Fork:    &outbidv1.ForkRef{Sweep: s.ID, Trial: t.Number, LeaseId: r.Parts[0].Lease},
		Attempt: r.Attempt, Step: r.Counts(), Key: consolidatedKey(s, t),
	}
	for _, p := range r.Sources() {
		order.Sources = append(order.Sources, &outbidv1.ConsolidationSource{Checkpoint: p.Saved, Steps: r.Steps(&p)})
	}
	merge := s.Terms.Merge
	if order.Uniform = merge.Uniform; merge.Outer && r.Start != nil {
		order.Outer = &outbidv1.OuterStep{Start: r.Start, Rate: merge.Rate, Momentum: merge.Momentum}
	}
	return order
}

// mayConsolidate reports whether a node reads or stores an object for an average that it was ordered to compute.
func mayConsolidate(v *view, req *outbidv1.AccessRequest) bool {
	s, err := v.Sweep(req.GetFork().GetSweep())
	if err != nil {
		return false
	}
	t, err := s.Trial(req.GetFork().GetTrial())
	if err != nil || !t.Consolidating() || t.Round.Node != req.GetNode() {
		return false
	}
	order := consolidationOf(s.Sweep(), t)
	key, start := req.GetKey(), order.GetOuter().GetStart()
	switch {
	case req.GetWrite():
		return key == order.GetKey() || order.GetOuter() != nil && key == objects.OuterKey(order.GetKey())
	case start != nil && (key == start.GetKey() || start.GetOuter() != nil && key == objects.OuterKey(start.GetKey())):
		return true
	}
	return slices.ContainsFunc(order.GetSources(), func(src *outbidv1.ConsolidationSource) bool {
		return src.GetCheckpoint().GetKey() == key
	})
}
