package control_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/control"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// says makes a node's newest fork report a loss at a step.
func (c *forkedCluster) says(node string, seq uint64, step int64, loss float64) []*outbidv1.Event {
	c.t.Helper()
	r := report(c.newest(node), seq, step)
	r.GetReport().Metrics = map[string]float64{c.core.State().Sweeps["s-1"].Spec.GetMetric(): loss}
	return c.say(node, r)
}

// savesWith makes a node's newest fork save a step with a loss.
func (c *forkedCluster) savesWith(node string, step int64, loss float64) string {
	c.t.Helper()
	m := saves(c.newest(node), step)
	m.GetSaved().Metric = &loss
	c.say(node, m)
	return m.GetSaved().GetKey()
}

// trainSlot makes both nodes' forks train from a step and save with these losses until the slot ends, and a node average
// the result.
func (c *forkedCluster) trainSlot(from int64, a, b int64, lossA, lossB float64) (average, first, second string) {
	c.t.Helper()
	c.say("a", begins(c.newest("a"), from))
	c.say("b", begins(c.newest("b"), from))
	first, second = c.savesWith("a", from+a, lossA), c.savesWith("b", from+b, lossB)
	c.endsSlot()
	average = c.merge().GetKey()
	c.consolidates(c.trial().Slot.Node, "", false)
	return average, first, second
}

// verdict describes the result of the last fork slot that ended.
func (c *forkedCluster) verdict() string {
	t := c.core.State().TrialView(c.core.State().Sweeps["s-1"], c.trial())
	m := t.GetMerges()[len(t.GetMerges())-1]
	text := strings.ToLower(strings.TrimPrefix(m.GetVerdict().String(), "MERGE_VERDICT_"))
	if m.BestMetric != nil {
		text += fmt.Sprintf(", best %g", m.GetBestMetric())
	}
	if m.Metric != nil {
		text += fmt.Sprintf(", reported %g", m.GetMetric())
	}
	return text
}

// sameAgain fails unless the ledger and a snapshot lead to the same state.
func (c *forkedCluster) sameAgain() {
	c.t.Helper()
	again, err := control.Restore(c.t.Context(), settings(), sharing{forking{new([]string)}}, c.led.Another(), nil)
	if err != nil {
		c.t.Fatal(err)
	}
	restored, err := state.Restore(c.core.State().Snapshot())
	if err != nil {
		c.t.Fatal(err)
	}
	want := c.core.State().Snapshot()
	for name, got := range map[string]*outbidv1.StateSnapshot{"the ledger": again.State().Snapshot(), "a snapshot": restored.Snapshot()} {
		if diff := cmp.Diff(want, got, protocmp.Transform(), cmpopts.EquateNaNs()); diff != "" {
			c.t.Fatalf("%s leads elsewhere:\n%s", name, diff)
		}
	}
}

// An average whose first report is no worse than the best fork's is kept, whichever fork reports it. Until then the
// best fork's checkpoint is kept too.
func TestAnAverageThatIsNotWorseIsKept(t *testing.T) {
	t.Parallel()
	for node, loss := range map[string]float64{"a": 0.5, "b": 0.4} {
		c := newSlotCluster(t, "best")
		average, _, second := c.trainSlot(0, 60, 20, 0.9, 0.5)
		if got := c.verdict(); got != "pending, best 0.5" {
			t.Errorf("before any report it is %s", got)
		}
		c.sameAgain()
		c.stands("running at 80, done 80, goes on from 80")
		if slices.Contains(c.deleted, second) {
			t.Error("the best fork's checkpoint is gone, and may be needed")
		}
		c.say("a", begins(c.newest("a"), 80))
		c.say("b", begins(c.newest("b"), 80))
		c.says(node, 1, 81, loss)
		if got := c.verdict(); got != fmt.Sprintf("kept, best 0.5, reported %g", loss) {
			t.Errorf("%s says %g: it is %s", node, loss, got)
		}
		c.says(map[string]string{"a": "b", "b": "a"}[node], 1, 81, 7) // too late to matter
		c.stands("running at 82, done 82, goes on from 80")
		if c.trial().From().GetKey() != average || c.trial().DroppedMerges != 0 {
			t.Errorf("it goes on from %v", c.trial().From())
		}
		c.sameAgain()
	}
}

// A worse average is replaced by the best fork's checkpoint. The trial keeps its step, and steps trained from the
// average do not count. The trial is forked again once one process has trained it, or never after two dropped
// averages in a row.
func TestAnAverageThatIsWorseIsDropped(t *testing.T) {
	t.Parallel()
	c := newSlotCluster(t, "best")
	_, _, second := c.trainSlot(0, 60, 20, 0.9, 0.5)
	a, b := c.newest("a"), c.newest("b")
	c.say("a", begins(a, 80))
	c.say("b", begins(b, 80))
	before := saves(b, 81) // before any report
	c.say("b", before)
	early := before.GetSaved().GetKey()
	events := c.says("a", 1, 84, 0.6)
	for _, e := range events {
		if e.GetTrialReported() != nil {
			t.Errorf("the report of what is dropped is taken in: %v", e)
		}
	}
	c.stands("running at 80, done 80, goes on from 80")
	if from := c.trial().From(); from.GetKey() != second || c.verdict() != "dropped, best 0.5, reported 0.6" {
		t.Fatalf("it goes on from %v; the average is %s", from, c.verdict())
	}
	for _, node := range []string{"a", "b"} {
		if told := c.told[node][0]; told.GetVerdict() != outbidv1.Verdict_VERDICT_STOP {
			t.Errorf("%s is told %v", node, told)
		}
	}
	c.sameAgain()
	// Messages of forks that do not know of it yet.
	c.says("b", 1, 85, 0.01)
	late := c.savesWith("b", 85, 0.01)
	c.say("a", &outbidv1.UplinkMessage{Fork: a, Kind: &outbidv1.UplinkMessage_Reached{Reached: &outbidv1.ForkReached{Step: 95}}})
	c.stands("running at 80, done 80, goes on from 80")
	c.ends("a")
	c.ends("b")
	c.stands("running at 80, done 80, goes on from 80")
	for _, key := range []string{early, late} {
		if !slices.Contains(c.deleted, key) {
			t.Errorf("%s is kept: deleted were %v", key, c.deleted)
		}
	}
	notes := c.core.State().Sweeps["s-1"].Notes
	want := "the average of fork slot 1 is dropped: loss is 0.6; that of the best fork was 0.5. It continues from the best fork's " +
		"checkpoint, still at step 80; it is trained by one process before it is forked again"
	if !slices.ContainsFunc(notes, func(n *outbidv1.SweepNote) bool { return n.GetText() == want }) {
		t.Errorf("the notes are %v", notes)
	}
	if again := c.trial().ForkAgain; again != outbidv1.ForkAgain_FORK_AGAIN_LATER {
		t.Errorf("it may be forked again: %v", again)
	}
	c.sameAgain()
}

// careful shares like sharing, and grants one process to trials that may not be forked for now.
type careful struct{ sharing }

func (p careful) Decide(v *policy.View) (plan policy.Plan) {
	for _, a := range v.Apps {
		for _, j := range a.Jobs {
			if j.Waiting() && j.Forks == 0 {
				return policy.Plan{Grants: []policy.Grant{{Job: j, Gang: cluster.Gang{{Node: 0, Devices: []int{0}}}, Reason: "alone", TermEnd: v.Now.Add(slot)}}}
			}
		}
	}
	return p.sharing.Decide(v)
}

// aloneUntil makes one process train until a step, save, and leave its device.
func (c *forkedCluster) aloneUntil(step int64) {
	c.t.Helper()
	c.say("a", begins(c.newest("a"), c.trial().From().GetStep()))
	c.says("a", 1, step, 0.3)
	c.savesWith("a", step, 0.3)
	c.now = c.now.Add(slot)
	c.step(control.Command{Sweep: "s-1", Command: outbidv1.SweepCommand_SWEEP_COMMAND_PAUSE, Actor: "me", Done: func(error) {}})
	c.ends("a")
	c.step(control.Command{Sweep: "s-1", Command: outbidv1.SweepCommand_SWEEP_COMMAND_RESUME, Actor: "me", Done: func(error) {}})
}

func TestRepeatedlyDroppedAveragesEndForking(t *testing.T) {
	t.Parallel()
	c := newClusterOf(t, func(seen *[]string) policy.Policy { return careful{sharing{forking{seen}}} }, 101, "best")
	for i, from := range []int64{0, 45} {
		c.trainSlot(from, 20, 10, 0.5, 0.9)
		at := from + 30
		c.say("a", begins(c.newest("a"), at))
		c.says("a", 1, at+1, math.NaN())
		for _, node := range []string{"a", "b"} {
			c.ends(node)
		}
		if int(c.trial().DroppedMerges) != i+1 {
			t.Fatalf("%d averages were dropped in a row: %s", c.trial().DroppedMerges, c.verdict())
		}
		want := []outbidv1.ForkAgain{outbidv1.ForkAgain_FORK_AGAIN_LATER, outbidv1.ForkAgain_FORK_AGAIN_NEVER}[i]
		if c.trial().ForkAgain != want {
			t.Errorf("after %d it may be forked again: %v", i+1, c.trial().ForkAgain)
		}
		c.expect(fmt.Sprintf("running: %d on a at %d", 5+i*5, at)) // by one process
		if i == 0 {
			c.aloneUntil(45)
		}
	}
	c.sameAgain()
}

// An average without a report is kept once steps trained from it count.
func TestAnAverageWithoutReportsIsKept(t *testing.T) {
	t.Parallel()
	c := newSlotCluster(t, "best")
	c.trainSlot(0, 40, 10, 0.9, 0.5)
	c.trainSlot(50, 20, 5, 0.8, 0.7)
	var first *outbidv1.TrialMerge
	for _, m := range c.core.State().TrialView(c.core.State().Sweeps["s-1"], c.trial()).GetMerges() {
		if m.GetRound() == 1 {
			first = m
		}
	}
	if first.GetVerdict() != outbidv1.MergeVerdict_MERGE_VERDICT_KEPT || first.Metric != nil || c.verdict() != "pending, best 0.7" {
		t.Errorf("it is %v, and the next %s", first, c.verdict())
	}
	c.sameAgain()
	// A fork slot without any report cannot be compared.
	c = newSlotCluster(t, "best")
	c.trains("a", 0, 60, 60)
	c.trains("b", 0, 20, 20)
	c.endsSlot()
	c.consolidates(c.trial().Slot.Node, "", false)
	if c.trial().Probation != nil || c.verdict() != "unspecified" {
		t.Errorf("it is to be judged: %v", c.trial().Probation)
	}
}

// An average on probation is judged by the next server if this one ends; the loss of nodes meanwhile has no effect.
func TestAProbationOutlivesNodes(t *testing.T) {
	t.Parallel()
	c := newSlotCluster(t, "best")
	_, _, second := c.trainSlot(0, 60, 20, 0.9, 0.5)
	for range 20 {
		c.now = c.now.Add(time.Second)
		c.say("a")
		c.step(control.Tick{})
	}
	if c.trial().Probation == nil {
		t.Fatal("it is not to be judged any more")
	}
	c.sameAgain()
	c.say("a", begins(c.newest("a"), 80))
	c.says("a", 1, 81, 0.6)
	if c.trial().From().GetKey() != second {
		t.Errorf("it goes on from %v", c.trial().From())
	}
}
