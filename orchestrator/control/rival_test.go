package control_test

import (
	"testing"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/control"
	"github.com/outbid-dev/outbid/orchestrator/policy/baseline"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Without this rule, two workers with the same name would evict each other every second, and no trial would make
// progress.
func TestTheFirstOfTwoWorkersOfOneNameKeepsIt(t *testing.T) {
	t.Parallel()
	core := control.NewCore(settings(), baseline.FIFO{}, state.New())
	now := time.Unix(1e9, 0)
	beat := func(boot string, leaving bool) (events int) {
		t.Helper()
		now = now.Add(500 * time.Millisecond)
		out, err := core.Step(now, control.Uplink{Message: &outbidv1.Uplink{
			Node: "w", Boot: boot, Leaving: leaving,
			Info: &outbidv1.NodeInfo{Name: "w", Boot: boot, Devices: []*outbidv1.Device{{Type: "cpu"}}},
		}})
		if err != nil {
			t.Fatal(err)
		}
		return len(out.Events)
	}
	has := func() string { return core.State().Nodes["w"].Info.GetBoot() }
	beat("first", false)
	for range 20 {
		if n := beat("second", false); n > 0 {
			t.Fatalf("the second one made %d events", n)
		}
		beat("first", false)
	}
	beat("second", true)
	if has() != "first" || !core.State().Nodes["w"].Up() {
		t.Fatalf("%s has the name, up: %v", has(), core.State().Nodes["w"].Up())
	}
	for range 4 { // the first worker is silent
		beat("second", false)
	}
	if has() != "first" {
		t.Error("a silence of a heartbeat or two cost the first one its name")
	}
	beat("second", false)
	if has() != "second" {
		t.Error("the second one does not get the name of one that is gone")
	}
}
