package state_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// A gang has left one of its nodes but not the other, and another trial holds the free devices: a server that crashes
// at that moment can restart from its snapshot.
func TestAGangThatLeavesIsRestored(t *testing.T) {
	t.Parallel()
	st := state.New()
	node := func(name string, devices int) *outbidv1.Event {
		info := &outbidv1.NodeInfo{Name: name}
		for range devices {
			info.Devices = append(info.Devices, &outbidv1.Device{Type: "gpu"})
		}
		return &outbidv1.Event{Kind: &outbidv1.Event_NodeJoined{NodeJoined: &outbidv1.NodeJoined{Node: info}}}
	}
	grant := func(trial int32, leaseID uint64, nodes ...string) *outbidv1.Event {
		var places []*outbidv1.LeasePlace
		for _, node := range nodes {
			places = append(places, &outbidv1.LeasePlace{Node: node, Devices: []int32{0}})
		}
		return &outbidv1.Event{Kind: &outbidv1.Event_LeaseGranted{LeaseGranted: &outbidv1.LeaseGranted{
			Sweep: "s-1", Trial: trial, LeaseId: leaseID, Places: places,
		}}}
	}
	for _, e := range []*outbidv1.Event{
		node("a", 1), node("b", 1), node("c", 1),
		{Kind: &outbidv1.Event_SweepSubmitted{SweepSubmitted: &outbidv1.SweepSubmitted{Sweep: "s-1", Spec: &outbidv1.SweepSpec{Name: "s"}}}},
		{Kind: &outbidv1.Event_TrialCreated{TrialCreated: &outbidv1.TrialCreated{Sweep: "s-1", Trial: 0, ConfigJson: "{}"}}},
		{Kind: &outbidv1.Event_TrialCreated{TrialCreated: &outbidv1.TrialCreated{Sweep: "s-1", Trial: 1, ConfigJson: "{}"}}},
		grant(0, 1, "a", "b", "c"),
		{Kind: &outbidv1.Event_PlaceEnded{PlaceEnded: &outbidv1.PlaceEnded{Sweep: "s-1", LeaseId: 1, Node: "a"}}},
		{Kind: &outbidv1.Event_PlaceEnded{PlaceEnded: &outbidv1.PlaceEnded{Sweep: "s-1", LeaseId: 1, Node: "b"}}},
		grant(1, 2, "b"), node("a", 0),
		{Kind: &outbidv1.Event_OrchestratorStarted{OrchestratorStarted: &outbidv1.OrchestratorStarted{
			Format: state.Format, Policy: &outbidv1.PolicySettings{Name: "themis", Options: map[string]string{"lease": "5m0s"}},
		}}},
	} {
		if err := st.Apply(time.Unix(1, 0).UTC(), e); err != nil {
			t.Fatal(err)
		}
	}
	again, err := state.Restore(st.Snapshot())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(st.Snapshot(), again.Snapshot(), protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
	if again.Decider.GetOptions()["lease"] != "5m0s" {
		t.Errorf("%v decides", again.Decider)
	}
	if l := again.Nodes["b"].Holders[0]; l == nil || l.ID != 2 || len(again.Nodes["b"].Leases) != 1 {
		t.Errorf("device b/0 is held by %+v", l)
	}
	if l := again.Nodes["c"].Holders[0]; l == nil || l.ID != 1 {
		t.Errorf("device c/0 is held by %+v", l)
	}
}
