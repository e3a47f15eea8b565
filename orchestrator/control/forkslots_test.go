package control_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/control"
	forks "github.com/outbid-dev/outbid/orchestrator/fork"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// slot is the length of the fork slots in these tests.
const slot = 90 * time.Second

// sharing grants each waiting job a device of every node for forks. Node a gets three times the steps of b, except
// for the last step, which one fork trains alone.
type sharing struct{ forking }

func (p sharing) Decide(v *policy.View) (plan policy.Plan) {
	for _, a := range v.Apps {
		for _, j := range a.Jobs {
			*p.seen = append(*p.seen, fmt.Sprintf("waits %t, forked %t, consolidating %t", j.Waiting(), j.Forked, j.Consolidating))
			if !j.Waiting() {
				continue
			}
			shares := forks.Divide(j.UntilStep-1-j.Step, []float64{3, 1}, time.Nanosecond)
			if len(v.Nodes) < 2 || j.UntilStep-1 <= j.Step || !v.Free.IsFree(cluster.Gang{{Node: 1, Devices: []int{0}}}) {
				shares = []int64{0}
			}
			for n, share := range shares {
				plan.Grants = append(plan.Grants, policy.Grant{
					Job: j, Gang: cluster.Gang{{Node: n, Devices: []int{0}}}, Fork: n > 0, Steps: share, Rate: 3 / float64(1+2*n), Reason: "its share", TermEnd: v.Now.Add(slot),
				})
			}
			return plan
		}
	}
	return plan
}

// newSlotCluster trains a trial until step 101 in fork slots. In the first one, a trains 75 steps and b 25.
func newSlotCluster(t *testing.T, merge ...string) *forkedCluster {
	t.Helper()
	return newClusterOf(t, func(seen *[]string) policy.Policy { return sharing{forking{seen}} }, 101, merge...)
}

// newest returns the last fork that a node was given.
func (c *forkedCluster) newest(node string) *outbidv1.ForkRef {
	return c.forks[node][len(c.forks[node])-1]
}

// trains makes a node's newest fork begin at a step, report steps, and save a step if save is above 0.
func (c *forkedCluster) trains(node string, from, step, save int64) *outbidv1.ForkRef {
	c.t.Helper()
	f := c.newest(node)
	c.say(node, begins(f, from), report(f, 1, step))
	if save > 0 {
		c.say(node, saves(f, save))
	}
	return f
}

func (c *forkedCluster) reaches(node string, step int64) {
	c.t.Helper()
	f := c.newest(node)
	c.say(node, saves(f, step), &outbidv1.UplinkMessage{Fork: f, Kind: &outbidv1.UplinkMessage_Reached{Reached: &outbidv1.ForkReached{Step: step}}})
}

// ends makes a node's newest fork end as ordered.
func (c *forkedCluster) ends(node string) {
	c.t.Helper()
	f := c.newest(node)
	for i, o := range c.forks[node] {
		if o == f {
			c.forks[node] = append(c.forks[node][:i:i], c.forks[node][i+1:]...)
			c.forks["gone "+node] = append(c.forks["gone "+node], f)
		}
	}
	c.say(node, endsFork(f, outbidv1.ForkOutcome_FORK_OUTCOME_ORDERED, 0))
}

// averages describes what a node was ordered to average.
func (c *forkedCluster) averages(node string) string {
	var all []string
	for _, m := range c.merges[node] {
		text := fmt.Sprintf("%s to step %d of", m.GetKey(), m.GetStep())
		for _, s := range m.GetSources() {
			text += fmt.Sprintf(" %d-%d*%d", s.GetCheckpoint().GetStep(), s.GetCheckpoint().GetLeaseId(), s.GetSteps())
		}
		all = append(all, text)
	}
	return strings.Join(all, "; ")
}

// consolidates makes a node send the result of the average that it was ordered to compute.
func (c *forkedCluster) consolidates(node string, failure string, mismatch bool) []*outbidv1.Event {
	c.t.Helper()
	if len(c.merges[node]) != 1 {
		c.t.Fatalf("%s is to make %d averages", node, len(c.merges[node]))
	}
	m := c.merges[node][0]
	done := &outbidv1.Consolidated{Attempt: m.GetAttempt(), Failure: failure, Mismatch: mismatch}
	if failure == "" {
		done.Checkpoint = &outbidv1.Checkpoint{Key: m.GetKey(), Step: m.GetStep()}
	}
	return c.say(node, &outbidv1.UplinkMessage{Fork: m.GetFork(), Kind: &outbidv1.UplinkMessage_Consolidated{Consolidated: done}})
}

func (c *forkedCluster) stands(want string) {
	c.t.Helper()
	t := c.trial()
	got := fmt.Sprintf("%s at %d, done %d, goes on from %d", state.TrialWord(t.State), t.Step, c.core.State().Sweeps["s-1"].Steps, t.From().GetStep())
	if got != want {
		c.t.Fatalf("it is %s, want %s", got, want)
	}
}

// In a fork slot each fork trains its share from the same checkpoint. Their steps add up, a worker averages what they
// saved weighted by steps, and the trial continues from the average. The last step is trained by one process, whose
// report the tuner gets.
func TestAForkSlot(t *testing.T) {
	t.Parallel()
	c := newSlotCluster(t)
	a, b := c.told["a"][0], c.told["b"][0]
	if a.GetUntilStep() != 75 || b.GetUntilStep() != 25 || a.GetBody().GetSeed() == b.GetBody().GetSeed() {
		t.Errorf("a is told %v, b %v", a, b)
	}
	if p := b.GetBody().GetPart(); p.GetIndex() != 1 || p.GetCount() != 2 || p.GetShare() != 25 || p.GetBefore() != 75 || p.GetTotal() != 100 ||
		p.GetTrialSeed() != a.GetBody().GetPart().GetTrialSeed() || p.GetTrialSeed() != c.trial().Seed {
		t.Errorf("b's part is %v", p)
	}
	c.trains("a", 0, 10, 0)
	c.trains("b", 0, 4, 0)
	c.stands("running at 14, done 14, goes on from 0")
	c.say("a", report(c.newest("a"), 2, 20))
	if last := c.trial().Last; last.GetStep() != 24 || last.GetForkStep() != 20 {
		t.Errorf("the last report is %v", last)
	}
	c.reaches("a", 75)
	c.stands("running at 79, done 79, goes on from 75") // the leading fork's checkpoint would do if nothing else were saved
	c.ends("a")
	c.reaches("b", 25)
	if told := c.told["b"][0]; told.GetVerdict() != outbidv1.Verdict_VERDICT_PAUSE {
		t.Errorf("b did its share, and is told %v", told.GetVerdict())
	}
	c.ends("b")
	c.stands("queued at 100, done 100, goes on from 25")
	node := c.trial().Slot.Node
	if want := "checkpoints/s-1/0/000000000100-1.ckpt to step 100 of 75-1*75 25-2*25"; c.averages(node) != want {
		t.Fatalf("%s is told to average %s, want %s", node, c.averages(node), want)
	}
	if got := c.seen[len(c.seen)-1]; got != "waits false, forked false, consolidating true" {
		t.Errorf("the policy sees that it %s", got)
	}
	again, err := control.Restore(t.Context(), settings(), sharing{forking{new([]string)}}, c.led.Another(), nil)
	if err != nil || again.State().Sweeps["s-1"].Trials[0].Slot.Counts() != 100 {
		t.Fatalf("after a restart it has %v (%v)", again.State().Sweeps["s-1"].Trials[0].Slot, err)
	}
	c.consolidates(node, "", false)
	c.expect("running: 3 on a at 100") // the last step
	c.trains("a", 100, 101, 101)
	c.reaches("a", 101)
	c.stands("completed at 101, done 101, goes on from 101")
}

// shown returns a trial's forks as users see them: those of its current slot, and those of the last one that ended.
func (c *forkedCluster) shown() string {
	t := c.core.State().TrialView(c.core.State().Sweeps["s-1"], c.trial())
	in := func(forks []*outbidv1.TrialFork) (text string) {
		for _, f := range forks {
			text += fmt.Sprintf("; %d %s on %s %v %s: %d of %d, %d count, at %g of %g/s", f.GetLeaseId(), f.GetState(), f.GetPlaces()[0].GetNode(),
				f.GetPlaces()[0].GetDevices(), f.GetPlaces()[0].GetType(), f.GetSteps(), f.GetShare(), f.GetCounted(), f.GetStepsPerSecond(),
				f.GetForecastStepsPerSecond())
		}
		return text
	}
	text := fmt.Sprintf("%d rounds, %g/s", t.GetRounds(), t.GetStepsPerSecond())
	if r := t.GetRound(); r != nil {
		text += fmt.Sprintf("; from %d for %s, averaged on %q try %d", r.GetFromStep(), r.GetEnds().AsTime().Sub(r.GetBegan().AsTime()),
			r.GetConsolidatesOn(), r.GetAttempt()) + in(r.GetForks())
	}
	if n := len(t.GetMerges()); n > 0 {
		m := t.GetMerges()[n-1]
		text += fmt.Sprintf(" | round %d from %d to %d, averaged on %q, %s", m.GetRound(), m.GetFromStep(), m.GetStep(), m.GetAveragedOn(), m.GetReason()) +
			in(m.GetForks())
	}
	return text
}

// Users see where each fork trains, its share, its steps, its rate and the forecast rate, and the result of a fork
// slot, also after a restart.
func TestForksAreShown(t *testing.T) {
	t.Parallel()
	c := newSlotCluster(t)
	trains := func(node string, step int64, seconds float64) {
		f := c.newest(node)
		r := report(f, 1, step)
		r.GetReport().TrainSeconds = seconds
		c.say(node, begins(f, 0), r)
	}
	trains("a", 60, 30)
	trains("b", 20, 20)
	c.say("b", saves(c.newest("b"), 10))
	want := `0 rounds, 3/s; from 0 for 1m30s, averaged on "" try 0; 1 running on a [0] gpu: 60 of 75, 0 count, at 2 of 3/s` +
		`; 2 running on b [0] gpu: 20 of 25, 10 count, at 1 of 1/s`
	if got := c.shown(); got != want {
		t.Errorf("while they train\n%s, want\n%s", got, want)
	}
	c.reaches("a", 75)
	c.ends("a")
	c.say("b", endsFork(c.newest("b"), outbidv1.ForkOutcome_FORK_OUTCOME_FAILED, 20))
	node := c.trial().Slot.Node
	want = `0 rounds, 0/s; from 0 for 1m30s, averaged on "` + node + `" try 1; 1 ended on a [0] gpu: 75 of 75, 75 count, at 2 of 3/s` +
		`; 2 ended on b [0] gpu: 10 of 25, 10 count, at 1 of 1/s`
	if got := c.shown(); got != want {
		t.Errorf("while what they saved is averaged\n%s, want\n%s", got, want)
	}
	c.consolidates(node, "", false)
	if avoided := c.trial().Avoided; len(avoided) > 0 {
		t.Errorf("a fork failed, and the next fork slot keeps off %v", avoided)
	}
	want = ` | round 1 from 0 to 85, averaged on "` + node + `", the checkpoints of its forks were averaged; 1 ended on a [0] gpu: 75 of 75, 75 count, at 2 of 3/s` +
		`; 2 ended on b [0] gpu: 10 of 25, 10 count, at 1 of 1/s`
	if got := c.shown(); !strings.HasSuffix(got, want) || !strings.HasPrefix(got, "1 rounds, 0/s; from 85") {
		t.Errorf("afterwards\n%s, want ...\n%s", got, want)
	}
	again, err := control.Restore(t.Context(), settings(), sharing{forking{new([]string)}}, c.led.Another(), nil)
	if err != nil {
		t.Fatal(err)
	}
	view := func(st *state.State) *outbidv1.Trial {
		return st.TrialView(st.Sweeps["s-1"], st.Sweeps["s-1"].Trials[0])
	}
	before := view(c.core.State())
	if diff := cmp.Diff(before, view(again.State()), protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
	restored, err := state.Restore(c.core.State().Snapshot())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, view(restored), protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
}

// When a slot ends, a fork that has not trained its share saves what it has, and the next slot divides the remaining
// steps. The steps that a fork saved count even if it then fails or its node is lost.
func TestSavedStepsOfForksCount(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		ends func(*forkedCluster)
		want string
	}{
		"late": {func(c *forkedCluster) {
			c.now = c.now.Add(slot)
			c.say("a")
			c.say("b")
			c.step(control.Tick{})
			c.say("b", saves(c.newest("b"), 20))
			c.ends("b")
		}, "queued at 80, done 80, goes on from 60"},
		"failed after it saved": {func(c *forkedCluster) {
			c.say("b", saves(c.newest("b"), 12), endsFork(c.newest("b"), outbidv1.ForkOutcome_FORK_OUTCOME_FAILED, 20))
		}, "queued at 72, done 80, goes on from 60"},
		"failed and saved nothing": {func(c *forkedCluster) {
			c.say("b", endsFork(c.newest("b"), outbidv1.ForkOutcome_FORK_OUTCOME_FAILED, 20))
		}, "running at 60, done 80, goes on from 60"},
		"lost": {func(c *forkedCluster) {
			c.say("b", saves(c.newest("b"), 12))
			for range 20 {
				c.now = c.now.Add(time.Second)
				c.say("a")
				c.step(control.Tick{})
			}
		}, "queued at 72, done 80, goes on from 60"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newSlotCluster(t)
			c.trains("a", 0, 60, 60)
			c.trains("b", 0, 20, 0)
			tc.ends(c)
			if c.trial().Held(1) != nil {
				c.now = c.now.Add(slot)
				c.say("a")
				c.step(control.Tick{})
				c.ends("a")
			}
			c.stands(tc.want)
			if c.trial().Restarts != 0 {
				t.Errorf("it was started again %d times", c.trial().Restarts)
			}
			if !c.trial().Consolidating() {
				return
			}
			c.consolidates(c.trial().Slot.Node, "", false)
			if tr := c.trial(); tr.From().GetStep() != tr.Step || tr.Step != c.core.State().Sweeps["s-1"].Trials[0].From().GetStep() {
				t.Errorf("it is at %d and goes on from %v", tr.Step, tr.From())
			}
		})
	}
}

// All nodes of a fork slot that are lost at once, as by a power cut, count as one loss: the trial is not suspected,
// and is forked again. If it happens again before the trial makes progress, the trial is suspected.
func TestNodesThatAForkSlotLosesCountOnce(t *testing.T) {
	t.Parallel()
	c := newSlotCluster(t)
	silent := func() {
		for range 20 {
			c.now = c.now.Add(time.Second)
			c.step(control.Tick{})
		}
	}
	c.trains("a", 0, 60, 60)
	c.trains("b", 0, 20, 20)
	silent()
	if tr := c.trial(); tr.NodeLosses != 1 || tr.Suspected || len(tr.Leases) > 0 {
		t.Fatalf("%d losses count, suspected is %t, it holds %v", tr.NodeLosses, tr.Suspected, tr.Leases)
	}
	c.say("a")
	c.say("b")
	c.step(control.Tick{})
	c.consolidates(c.trial().Slot.Node, "", false)
	c.say("a")
	c.say("b")
	if tr := c.trial(); tr.From().GetStep() != 80 || len(tr.Leases) != 2 || tr.Slot.Lost {
		t.Fatalf("it goes on from %v under %v in %v", tr.From(), tr.Leases, tr.Slot)
	}
	silent()
	if tr := c.trial(); tr.NodeLosses != 2 || !tr.Suspected {
		t.Errorf("after it happened again %d losses count, suspected is %t", tr.NodeLosses, tr.Suspected)
	}
}

// endsSlot ends a fork slot: both nodes send another uplink, and their forks end.
func (c *forkedCluster) endsSlot() {
	c.t.Helper()
	c.now = c.now.Add(slot)
	c.say("a")
	c.say("b")
	c.step(control.Tick{})
	c.ends("a")
	c.ends("b")
}

// halfway returns a cluster whose trial's forks have saved 60 and 20 steps, which a node must average.
func halfway(t *testing.T, merge ...string) *forkedCluster {
	t.Helper()
	c := newSlotCluster(t, merge...)
	c.trains("a", 0, 60, 60)
	c.trains("b", 0, 20, 20)
	c.endsSlot()
	c.stands("queued at 80, done 80, goes on from 60")
	return c
}

// An average that fails, or whose node is lost, is retried on another node. If averaging is impossible, the trial
// continues from the fork with the most steps.
func TestConsolidationsThatFail(t *testing.T) {
	t.Parallel()
	t.Run("is tried elsewhere", func(t *testing.T) {
		t.Parallel()
		c := halfway(t)
		first := c.trial().Slot.Node
		c.consolidates(first, "its disk is full", false)
		second := c.trial().Slot.Node
		if second == first || c.trial().Slot.Attempt != 2 {
			t.Fatalf("%s failed, and now it is %s's, try %d", first, second, c.trial().Slot.Attempt)
		}
		c.say(second)
		c.consolidates(second, "", false)
		if c.trial().Slot.Counts() != 80 || len(c.trial().Leases) != 2 { // its next fork slot
			t.Errorf("it goes on with %v", c.trial().Slot)
		}
	})
	t.Run("its node is lost", func(t *testing.T) {
		t.Parallel()
		c := halfway(t)
		first := c.trial().Slot.Node
		other := map[string]string{"a": "b", "b": "a"}[first]
		for range 20 {
			c.now = c.now.Add(time.Second)
			c.say(other)
			c.step(control.Tick{})
		}
		if c.trial().Slot.Node != other || c.averages(other) == "" {
			t.Fatalf("%s is lost, and %s is to average %q", first, c.trial().Slot.Node, c.averages(other))
		}
	})
	t.Run("mismatch", func(t *testing.T) {
		t.Parallel()
		c := halfway(t)
		c.consolidates(c.trial().Slot.Node, "the checkpoints differ in their tensors", true)
		c.expect("running: 3 on a at 60, 4 on b at 60")
		if again := c.trial().ForkAgain; again != outbidv1.ForkAgain_FORK_AGAIN_NEVER {
			t.Errorf("it may be forked again: %s", again)
		}
		notes := c.core.State().Sweeps["s-1"].Notes
		if len(notes) == 0 || !strings.Contains(notes[len(notes)-1].GetText(), "differ in their tensors: it continues from the fork with the most steps, at step 60 of 80, and is not forked again") {
			t.Errorf("the notes are %v", notes)
		}
	})
	t.Run("said too late", func(t *testing.T) {
		t.Parallel()
		c := halfway(t)
		node := c.trial().Slot.Node
		late := c.merges[node][0]
		c.consolidates(node, "", false)
		seq, counts := c.core.State().Seq, c.trial().Step
		c.say(node, &outbidv1.UplinkMessage{Fork: late.GetFork(), Kind: &outbidv1.UplinkMessage_Consolidated{Consolidated: &outbidv1.Consolidated{
			Attempt: late.GetAttempt(), Checkpoint: &outbidv1.Checkpoint{Key: late.GetKey(), Step: late.GetStep()},
		}}})
		if c.trial().Step != counts || c.trial().Slot.Parts[0].Over {
			t.Errorf("before batch %d it was at %d, now it is at %d", seq, counts, c.trial().Step)
		}
	})
}

// Pausing or stopping a sweep while forks train loses nothing that they saved.
func TestForksOfASweepThatIsStopped(t *testing.T) {
	t.Parallel()
	c := newSlotCluster(t)
	c.trains("a", 0, 60, 60)
	c.trains("b", 0, 20, 20)
	c.step(control.Command{Sweep: "s-1", Command: outbidv1.SweepCommand_SWEEP_COMMAND_STOP, Actor: "me", Done: func(err error) {
		if err != nil {
			t.Error(err)
		}
	}})
	c.ends("a")
	c.ends("b")
	if s := c.core.State().Sweeps["s-1"]; state.SweepWord(s.State) != "stopping" {
		t.Errorf("it is %s before what its forks saved is put together", state.SweepWord(s.State))
	}
	c.consolidates(c.trial().Slot.Node, "", false)
	c.stands("stopped at 80, done 80, goes on from 80")
}
