package control_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/outbid-dev/outbid/orchestrator/objects"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// ForksJobs returns true, because sweeps with a forks_merge setting require it.
func (sharing) ForksJobs() bool { return true }

// merge returns the only average that a node must compute.
func (c *forkedCluster) merge() *outbidv1.Consolidation {
	c.t.Helper()
	m := c.merges[c.trial().Slot.Node]
	if len(m) != 1 {
		c.t.Fatalf("%d averages are to be made", len(m))
	}
	return m[0]
}

// leavesState makes the averaging node send its result with the state of an outer optimizer.
func (c *forkedCluster) leavesState(bytes int64) {
	c.t.Helper()
	m := c.merge()
	c.say(c.trial().Slot.Node, &outbidv1.UplinkMessage{Fork: m.GetFork(), Kind: &outbidv1.UplinkMessage_Consolidated{Consolidated: &outbidv1.Consolidated{
		Attempt: m.GetAttempt(), Checkpoint: &outbidv1.Checkpoint{Key: m.GetKey(), Step: m.GetStep(), Outer: &outbidv1.OuterState{Bytes: bytes, Sha256: "ab"}},
	}}})
}

// keepsWhatIsNeeded fails if a checkpoint was deleted that a trial may start from, or that must be averaged.
func (c *forkedCluster) keepsWhatIsNeeded() {
	c.t.Helper()
	for _, s := range c.core.State().Sweeps {
		for _, t := range s.Trials {
			needed := append(slices.Clone(t.Checkpoints), t.Start, t.From())
			if r := t.Slot; r != nil {
				needed = append(needed, r.Start)
				for i := range r.Parts {
					needed = append(needed, r.Parts[i].Saved)
				}
			}
			for _, ck := range needed {
				if ck != nil && (slices.Contains(c.deleted, ck.GetKey()) || slices.Contains(c.deleted, objects.OuterKey(ck.GetKey()))) {
					c.t.Fatalf("%s was deleted, and trial %d of %s may need it", ck.GetKey(), t.Number, s.ID)
				}
			}
		}
	}
}

// Whatever forks do, nothing that is still needed is deleted, and in the end only what the spec keeps is left.
func TestForksLeaveNoUnneededCheckpoints(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		c := newSlotCluster(t, rapid.SampledFrom([]string{"steps", "uniform", "outer"}).Draw(rt, "merge"))
		saved := map[string]bool{}
		for turn := 0; !c.trial().Done() && turn < 60; turn++ {
			for _, node := range []string{"a", "b"} {
				for _, l := range slices.Clone(c.trial().Leases) {
					if l.Rank0() == node {
						c.trainsOn(rt, node, l, saved)
					}
				}
			}
			if c.trial().Consolidating() && c.trial().Slot.Node != "" {
				switch failure := rapid.IntRange(0, 5).Draw(rt, "failure"); failure {
				case 0:
					c.consolidates(c.trial().Slot.Node, "its disk is full", false)
				case 1:
					c.consolidates(c.trial().Slot.Node, "they differ", true)
				default:
					saved[c.merge().GetKey()] = true
					c.leavesState(9)
				}
			}
		}
		if !c.trial().Done() {
			rt.Skip("it takes longer")
		}
		for key := range saved {
			kept := slices.ContainsFunc(c.trial().Checkpoints, func(ck *outbidv1.Checkpoint) bool { return ck.GetKey() == key })
			if !kept && !slices.Contains(c.deleted, key) {
				rt.Fatalf("nobody needs %s, and it is there", key)
			}
		}
	})
}

// trainsOn makes a node's fork train, save, end as ordered, or fail.
func (c *forkedCluster) trainsOn(t *rapid.T, node string, l *state.Lease, saved map[string]bool) {
	f := c.newest(node)
	if f.GetLeaseId() != l.ID {
		return
	}
	if l.Revoking != outbidv1.RevokeKind_REVOKE_KIND_UNSPECIFIED {
		c.ends(node)
		return
	}
	from := max(l.Step, c.trial().From().GetStep())
	if r := c.trial().Slot; r != nil {
		from = max(l.Step, r.From)
	}
	until := c.trial().Until(l)
	step := rapid.Int64Range(from, max(until, from)).Draw(t, "step")
	c.say(node, begins(f, from))
	ck := saves(f, step)
	if saved[ck.GetSaved().GetKey()] && step < until {
		return // a worker stores no step twice
	}
	switch what := rapid.IntRange(0, 9).Draw(t, "what"); {
	case what == 0:
		c.say(node, endsFork(f, outbidv1.ForkOutcome_FORK_OUTCOME_FAILED, step))
	case step == until:
		saved[ck.GetSaved().GetKey()] = true
		c.reaches(node, step)
	default:
		saved[ck.GetSaved().GetKey()] = true
		c.say(node, ck)
	}
}

// A worker averages forks as the sweep's spec says. An outer optimizer gets the start of the fork slot and the
// optimizer's last state, which is kept as long as its checkpoint.
func TestOrdersContainTheMergeSettings(t *testing.T) {
	t.Parallel()
	for merge, want := range map[string]bool{"": false, "steps": false, "uniform": true} {
		if m := halfway(t, merge).merge(); m.GetUniform() != want || m.GetOuter() != nil {
			t.Errorf("%q: %v", merge, m)
		}
	}
	c := halfway(t, "outer(0.5, 0.8)")
	if m := c.merge(); m.GetOuter() != nil {
		t.Errorf("a round that began with nothing has an outer step: %v", m)
	}
	c.leavesState(123) // as if there had been one
	round := func(from, a, b int64) {
		c.trains("a", from, from+a, 0)
		c.trains("b", from, from+b, 0)
		c.reaches("a", from+a)
		c.ends("a")
		c.reaches("b", from+b)
		c.ends("b")
	}
	round(80, 15, 5)
	first := "checkpoints/s-1/0/000000000080-1.ckpt"
	outer := c.merge().GetOuter()
	if got := fmt.Sprintf("%g %g %s %d", outer.GetRate(), outer.GetMomentum(), outer.GetStart().GetKey(), outer.GetStart().GetOuter().GetBytes()); got != "0.5 0.8 "+first+" 123" {
		t.Errorf("the outer step is %s", got)
	}
	if slices.Contains(c.deleted, first) {
		t.Fatalf("deleted were %v, and the next average is made of one of them", c.deleted)
	}
	c.leavesState(124)
	c.trains("a", 100, 101, 101)
	c.reaches("a", 101)
	c.ends("a")
	for _, key := range []string{first, first + ".outer"} {
		if !slices.Contains(c.deleted, key) {
			t.Errorf("%s is kept: deleted were %v", key, c.deleted)
		}
	}
}

// A trial that saves nothing is not forked repeatedly from the same step: one process trains it to its end.
func TestForksThatSaveNothing(t *testing.T) {
	t.Parallel()
	c := newSlotCluster(t)
	fruitless := func() {
		t.Helper()
		c.trains("a", 0, 60, 0)
		c.trains("b", 0, 20, 0)
		c.endsSlot()
	}
	fruitless()
	if again := c.trial().ForkAgain; again != outbidv1.ForkAgain_FORK_AGAIN_LATER {
		t.Fatalf("after one fork slot it may be forked again: %s", again)
	}
	fruitless()
	if again := c.trial().ForkAgain; again != outbidv1.ForkAgain_FORK_AGAIN_NEVER {
		t.Errorf("after two fork slots it may be forked again: %s", again)
	}
	const want = "no fork saved anything after step 0 in two fork slots: it continues as one process and is not forked again"
	if notes := c.core.State().Sweeps["s-1"].Notes; len(notes) == 0 || !strings.Contains(notes[len(notes)-1].GetText(), want) {
		t.Errorf("the notes are %v", notes)
	}
}
