package state_test

import (
	"errors"
	"fmt"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// shown returns everything that readers can see of a published state.
func shown(p *state.Published) string {
	text := fmt.Sprintf("%v, %d deleted, %d held, %v", p.SweepIDs, len(p.Deleted()), p.Held(), *p.Inventory)
	see := func(m proto.Message) { text += fmt.Sprint("\n", m) }
	for _, id := range p.SweepIDs {
		s, err := p.Sweep(id)
		if err != nil {
			return err.Error()
		}
		see(s.View(at()))
		for n := range int32(s.Len()) {
			see(s.TrialView(at(), s.At(n)))
		}
		for _, tr := range s.Best() {
			text += fmt.Sprint(" ", tr.Number)
		}
	}
	p.Nodes(func(name string, n *state.PublishedNode) {
		text += fmt.Sprint("\n", name, n.Up)
		see(n.View)
	})
	return text
}

// The state that is published after some events equals the whole state, and earlier published states do not change.
func TestPublishedStates(t *testing.T) {
	t.Parallel()
	st := state.New()
	now := st.Publish()
	for i, e := range []*outbidv1.Event{
		machine("a", "r1", "v100", 2), machine("b", "r1", "v100", 2), submittedAs("s-1", ""), submittedAs("s-2", ""), created(0), created(1),
		grant(0, 1, place("a", 0), place("b", 0, 1)), begins(0, 0), says(0, 1, .5),
		{Kind: &outbidv1.Event_LeaseRenewed{LeaseRenewed: &outbidv1.LeaseRenewed{Sweep: "s-1", LeaseId: 1, TermEnd: timestamppb.New(at())}}},
		placeEnded(0, 1, "b"), grant(1, 2, place("b", 1)),
		{Kind: &outbidv1.Event_Note{Note: &outbidv1.Note{Sweep: "s-1", Text: "note"}}},
		{Kind: &outbidv1.Event_Note{Note: &outbidv1.Note{Node: "a", Text: "note"}}},
		nodeChanged("a", outbidv1.NodeState_NODE_STATE_DRAINING), nodeChanged("a", outbidv1.NodeState_NODE_STATE_LOST),
		leaseEnded(0, 1), ended(0, outbidv1.TrialState_TRIAL_STATE_FAILED), ended(1, outbidv1.TrialState_TRIAL_STATE_COMPLETED), leaseEnded(1, 2),
		changed("s-1", outbidv1.SweepState_SWEEP_STATE_DONE), deleted("s-1"), submittedAs("s-3", ""),
	} {
		change, err := st.Fold(at(), e)
		if err != nil {
			t.Fatalf("event %d: %v", i, err)
		}
		was := shown(now)
		before, _ := now.Sweep("s-1")
		other, _ := now.Sweep("s-2")
		next, tell := now.After(st, []state.Change{change})
		if got, want := shown(next), shown(st.Publish()); got != want {
			t.Fatalf("event %d: readers see\n%s\nand the state is\n%s", i, got, want)
		}
		if got := shown(now); got != was {
			t.Fatalf("event %d: what readers had changed to\n%s\nfrom\n%s", i, got, was)
		}
		tell()
		if before != nil {
			if again, _ := next.Sweep("s-1"); (again != before) != isClosed(before.Changed()) {
				t.Errorf("event %d: who waits for a change of the sweep was told: %t", i, isClosed(before.Changed()))
			}
		}
		if other != nil && isClosed(other.Changed()) {
			t.Errorf("event %d: who waits for a change of another sweep was told", i)
		}
		now = next
	}
	var gone *state.DeletedError
	if _, err := now.Sweep("s-1"); !errors.As(err, &gone) {
		t.Errorf("the deleted sweep: %v", err)
	}
	if _, err := now.Sweep("s-9"); !errors.Is(err, state.ErrNotFound) || errors.As(err, &gone) {
		t.Errorf("a sweep that never was: %v", err)
	}
}

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

func TestTrialsOfAPublishedSweep(t *testing.T) {
	t.Parallel()
	st, s := running(t, spec(1), 2)
	seen := s.Version
	apply(t, st, says(1, 1, .5))
	p, err := st.Publish().Sweep("s-1")
	if err != nil {
		t.Fatal(err)
	}
	for n, found := range map[int32]bool{-1: false, 0: true, 1: true, 2: false} {
		tr, err := p.Trial(n)
		if found != (err == nil) || found && tr.Number != n || !found && !errors.Is(err, state.ErrNotFound) {
			t.Errorf("trial %d: %v, %v", n, tr, err)
		}
	}
	if got := p.ChangedSince(seen); len(got) != 1 || got[0] != 1 {
		t.Errorf("%v changed, want trial 1", got)
	}
}

// A Change describes an event to components that do not know the kinds of events.
func TestChanges(t *testing.T) {
	t.Parallel()
	const done, paused = outbidv1.SweepState_SWEEP_STATE_DONE, outbidv1.TrialState_TRIAL_STATE_PAUSED
	type did struct {
		SweepBegan, SweepGone, SweepEnded, TrialBegan, TrialEnded, LeaseBegan, LeaseEnded bool
		Sweep                                                                             string
		Trial                                                                             string
		Node                                                                              string
	}
	st := state.New()
	stop := changed("s-1", outbidv1.SweepState_SWEEP_STATE_STOPPING)
	stop.GetSweepChanged().Actor = "ann"
	for i, step := range []struct {
		event *outbidv1.Event
		want  did
		actor string
	}{
		{joined(2), did{Node: "up"}, ""},
		{submitted(spec(1)), did{SweepBegan: true, Sweep: "running"}, ""},
		{created(0), did{TrialBegan: true, Trial: "queued"}, ""},
		{granted(0, 1, 0), did{LeaseBegan: true, Trial: "running"}, ""},
		{says(0, 1, .5), did{}, ""},
		{saved(0, "a", 1, .5), did{}, ""},
		{nodeChanged("n", outbidv1.NodeState_NODE_STATE_DRAINING), did{Node: "draining"}, ""},
		{&outbidv1.Event{Kind: &outbidv1.Event_UplinkSeen{UplinkSeen: &outbidv1.UplinkSeen{Node: "n", Boot: "b", Seq: 1}}}, did{}, ""},
		{stop, did{Sweep: "stopping"}, "ann"},
		{ended(0, outbidv1.TrialState_TRIAL_STATE_COMPLETED), did{TrialEnded: true, Trial: "completed"}, ""},
		{leaseEnded(0, 1), did{LeaseEnded: true, Trial: "completed"}, ""},
		{changed("s-1", done), did{SweepEnded: true, Sweep: "done"}, ""},
		{extended("s-1"), did{Sweep: "running"}, ""},
		{targeted(0, 9), did{Trial: "queued"}, ""},
		{&outbidv1.Event{Kind: &outbidv1.Event_TrialPaused{TrialPaused: &outbidv1.TrialPaused{Sweep: "s-1"}}}, did{Trial: state.TrialWord(paused)}, ""},
		{changed("s-1", done), did{SweepEnded: true, Sweep: "done"}, ""},
		{deleted("s-1"), did{SweepGone: true}, "ann"},
	} {
		c, err := st.Fold(at(), step.event)
		if err != nil {
			t.Fatal(err)
		}
		word := func(w string) string {
			if w == "unspecified" {
				return ""
			}
			return w
		}
		got := did{
			c.SweepBegan(), c.SweepGone(), c.SweepEnded(), c.TrialBegan(), c.TrialEnded(), c.LeaseBegan(), c.LeaseEnded(),
			word(state.SweepWord(c.SweepTo())), word(state.TrialWord(c.TrialTo())), word(state.NodeWord(c.NodeTo())),
		}
		if got != step.want || c.Actor() != step.actor {
			t.Errorf("event %d, %s: %+v by %q, want %+v by %q", i, c.Kind.Name, got, c.Actor(), step.want, step.actor)
		}
		n, says := c.Step()
		if tells := c.Kind.Name == "TrialReported" || c.Kind.Name == "CheckpointSaved"; says != tells || says && n != 1 {
			t.Errorf("event %d, %s: step %d, %t", i, c.Kind.Name, n, says)
		}
	}
}
