package state_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

func submittedAs(id, key string) *outbidv1.Event {
	sp := spec(1)
	sp.Tenant = "vision"
	return &outbidv1.Event{Kind: &outbidv1.Event_SweepSubmitted{SweepSubmitted: &outbidv1.SweepSubmitted{
		Sweep: id, Spec: sp, IdempotencyKey: key,
	}}}
}

func changed(id string, to outbidv1.SweepState) *outbidv1.Event {
	return &outbidv1.Event{Kind: &outbidv1.Event_SweepChanged{SweepChanged: &outbidv1.SweepChanged{Sweep: id, State: to}}}
}

func deleted(id string) *outbidv1.Event {
	return &outbidv1.Event{Kind: &outbidv1.Event_SweepDeleted{SweepDeleted: &outbidv1.SweepDeleted{Sweep: id, Actor: "ann"}}}
}

func TestADeletedSweepIsForgotten(t *testing.T) {
	t.Parallel()
	st := state.New()
	apply(t, st, joined(2), submittedAs("s-1", "key"), created(0), granted(0, 1, 0))
	if err := st.Apply(at(), deleted("s-1")); !errors.Is(err, state.ErrBroken) {
		t.Fatalf("one that runs was deleted: %v", err)
	}
	apply(t, st, submittedAs("s-2", ""), changed("s-1", outbidv1.SweepState_SWEEP_STATE_STOPPING))
	apply(t, st, &outbidv1.Event{Kind: &outbidv1.Event_TrialEnded{TrialEnded: &outbidv1.TrialEnded{
		Sweep: "s-1", Trial: 0, State: outbidv1.TrialState_TRIAL_STATE_CANCELLED,
	}}}, changed("s-1", outbidv1.SweepState_SWEEP_STATE_STOPPED))
	var ending *state.EndingError
	if err := st.Sweeps["s-1"].CanDelete(); !errors.As(err, &ending) || !errors.Is(err, state.ErrConflict) {
		t.Fatalf("one whose process goes on can be deleted: %v", err)
	}
	apply(t, st, leaseEnded(0, 1), deleted("s-1"))
	restored := restore(t, st)
	for name, st := range map[string]*state.State{"live": st, "from a snapshot": restored} {
		_, err := st.Sweep("s-1")
		var gone *state.DeletedError
		if !errors.As(err, &gone) || !errors.Is(err, state.ErrNotFound) || gone.Tenant != "vision" || gone.Actor != "ann" {
			t.Errorf("%s: %v", name, err)
		}
		if st.ByKey("key") != "" || len(st.SweepIDs) != 1 || len(st.Deleted()) != 1 {
			t.Errorf("%s: its key gives %q; sweeps %v, deleted %v", name, st.ByKey("key"), st.SweepIDs, st.Deleted())
		}
		if id := st.NextID("s"); id != "s-3" {
			t.Errorf("%s: the next sweep is %s: an id was given twice", name, id)
		}
		apply(t, st, submittedAs("s-3", "key"))
		if a, b := st.Sweeps["s-2"].Order, st.Sweeps["s-3"].Order; a != 1 || b != 2 {
			t.Errorf("%s: orders %d and %d, want 1 and 2 as before the deletion", name, a, b)
		}
		if err := st.Apply(at(), deleted("s-1")); !errors.Is(err, state.ErrBroken) {
			t.Errorf("%s: deleted twice: %v", name, err)
		}
	}
	if !proto.Equal(st.Snapshot(), restored.Snapshot()) {
		t.Error("the snapshots differ")
	}
}

func restore(t *testing.T, st *state.State) *state.State {
	t.Helper()
	restored, err := state.Restore(st.Snapshot())
	if err != nil {
		t.Fatal(err)
	}
	return restored
}

func TestNewerLedgersAreRefused(t *testing.T) {
	t.Parallel()
	started := func(format uint32) *outbidv1.Event {
		return &outbidv1.Event{Kind: &outbidv1.Event_OrchestratorStarted{OrchestratorStarted: &outbidv1.OrchestratorStarted{
			Version: "v9.1", Format: format,
		}}}
	}
	st := state.New()
	apply(t, st, started(state.Format))
	if err := st.Apply(at(), started(3)); !errors.Is(err, state.ErrUnreleased) || !strings.Contains(err.Error(), "by version v9.1: its format is 3") {
		t.Errorf("a start before the first release: %v", err)
	}
	err := st.Apply(at(), started(state.Format+1))
	if want := fmt.Sprintf("by version v9.1: its format is %d, and this version reads formats up to %d", state.Format+1,
		state.Format); !errors.Is(err, state.ErrNewer) || !strings.Contains(err.Error(), want) {
		t.Errorf("a newer start: %v", err)
	}
	unknown := new(outbidv1.Event)
	if err := proto.Unmarshal([]byte{0xfa, 0x3f, 1, 0}, unknown); err != nil { // field 1023
		t.Fatal(err)
	}
	if err := st.Apply(at(), unknown); !errors.Is(err, state.ErrNewer) || !strings.Contains(err.Error(), "of a kind") {
		t.Errorf("an event of a newer version: %v", err)
	}
	snap := st.Snapshot()
	snap.Format++
	if _, err := state.Restore(snap); !errors.Is(err, state.ErrNewer) {
		t.Errorf("a newer snapshot: %v", err)
	}
	snap.Format = 0
	if _, err := state.Restore(snap); !errors.Is(err, state.ErrUnreleased) {
		t.Errorf("a snapshot before the first release: %v", err)
	}
}
