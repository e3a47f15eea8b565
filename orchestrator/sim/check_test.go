package sim_test

import (
	"testing"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/sim"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// gangState returns a state with a trial that holds a device of each of two nodes.
func gangState(t *testing.T) *state.State {
	t.Helper()
	st := state.New()
	device := []*outbidv1.Device{{Type: "gpu"}}
	for _, e := range []*outbidv1.Event{
		{Kind: &outbidv1.Event_NodeJoined{NodeJoined: &outbidv1.NodeJoined{Node: &outbidv1.NodeInfo{Name: "a", Devices: device}}}},
		{Kind: &outbidv1.Event_NodeJoined{NodeJoined: &outbidv1.NodeJoined{Node: &outbidv1.NodeInfo{Name: "b", Devices: device}}}},
		{Kind: &outbidv1.Event_SweepSubmitted{SweepSubmitted: &outbidv1.SweepSubmitted{
			Sweep: "s-1", Spec: &outbidv1.SweepSpec{Name: "s"},
		}}},
		{Kind: &outbidv1.Event_TrialCreated{TrialCreated: &outbidv1.TrialCreated{Sweep: "s-1", ConfigJson: "{}"}}},
		{Kind: &outbidv1.Event_LeaseGranted{LeaseGranted: &outbidv1.LeaseGranted{
			Sweep: "s-1", LeaseId: 1, Places: []*outbidv1.LeasePlace{{Node: "a", Devices: []int32{0}}, {Node: "b", Devices: []int32{0}}},
		}}},
	} {
		apply(t, st, e)
	}
	return st
}

func apply(t *testing.T, st *state.State, e *outbidv1.Event) {
	t.Helper()
	if err := st.Apply(time.Unix(1, 0), e); err != nil {
		t.Fatal(err)
	}
}

func TestCheckKnowsGangsOverNodes(t *testing.T) {
	t.Parallel()
	st := gangState(t)
	if err := sim.Check(st); err != nil {
		t.Errorf("a whole gang: %v", err)
	}
	apply(t, st, &outbidv1.Event{Kind: &outbidv1.Event_PlaceEnded{PlaceEnded: &outbidv1.PlaceEnded{Sweep: "s-1", LeaseId: 1, Node: "a"}}})
	if err := sim.Check(st); err != nil {
		t.Errorf("a gang of which one place has ended: %v", err)
	}
	apply(t, st, &outbidv1.Event{Kind: &outbidv1.Event_LeaseEnded{LeaseEnded: &outbidv1.LeaseEnded{Sweep: "s-1", LeaseId: 1}}})
	if err := sim.Check(st); err != nil {
		t.Errorf("its lease has ended: %v", err)
	}
	for what, spoil := range map[string]func(*state.State){
		"a gang that is not whole":   func(st *state.State) { st.Nodes["b"].Holders[0] = nil },
		"a device of an ended place": func(st *state.State) { st.Sweeps["s-1"].Trials[0].Lead().Places[0].Ended = true },
		"a device that is held by another lease": func(st *state.State) {
			st.Nodes["a"].Holders[0] = &state.Lease{ID: 2, Places: []state.Place{{Node: "b"}}}
		},
		"a lease that its trial does not have": func(st *state.State) { st.Sweeps["s-1"].Trials[0].Leases = nil },
		"a count that is off":                  func(st *state.State) { st.Sweeps["s-1"].Running = nil },
	} {
		st := gangState(t)
		if spoil(st); sim.Check(st) == nil {
			t.Errorf("%s is let through", what)
		}
	}
}
