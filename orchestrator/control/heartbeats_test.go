package control_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/control"
	"github.com/outbid-dev/outbid/orchestrator/sim"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// The orders of a large cluster ask for fewer heartbeats, at most as few as a fifth of the lease allows, and a worker
// keeps its name for three of them.
func TestALargeClusterAsksForFewerHeartbeats(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1, sim.Sweep("s", "min", 1, sim.Tuner("random", nil)))
	nodes := 0
	grow := func(to int) {
		var joins []control.Input
		for ; nodes < to; nodes++ {
			name := fmt.Sprintf("large-%d", nodes)
			info := &outbidv1.NodeInfo{Name: name, Boot: "b1", Devices: []*outbidv1.Device{{Type: "gpu"}}}
			joins = append(joins, control.Uplink{Message: &outbidv1.Uplink{Node: name, Boot: "b1", Info: info}})
		}
		b.step(append(joins, control.Tick{})...)
	}
	for _, c := range []struct {
		nodes int
		want  time.Duration
	}{{0, 0}, {1000, 0}, {4999, 2 * time.Second}, {12_500, 3 * time.Second}} {
		grow(c.nodes)
		b.step(control.Uplink{Message: &outbidv1.Uplink{Node: "n1", Boot: "b1"}})
		if len(b.out.Orders) != 1 || b.out.Orders[0].GetBeat().AsDuration() != c.want {
			t.Errorf("%d nodes: orders %v, want a heartbeat each %s", c.nodes, b.out.Orders, c.want)
		}
	}
	another := control.Uplink{Message: &outbidv1.Uplink{Node: "large-0", Boot: "b2", Info: &outbidv1.NodeInfo{Devices: []*outbidv1.Device{{Type: "gpu"}}}}}
	b.step(control.Uplink{Message: &outbidv1.Uplink{Node: "large-0", Boot: "b1"}})
	b.now = b.now.Add(8 * time.Second)
	if b.step(another); len(b.out.Orders) != 0 {
		t.Errorf("another worker gets the name after 8 s of silence: %v", b.out.Orders)
	}
	b.now = b.now.Add(2 * time.Second)
	if b.step(another); len(b.out.Orders) != 1 || b.out.Orders[0].GetBoot() != "b2" {
		t.Errorf("another worker does not get the name after 10 s of silence: %v", b.out.Orders)
	}
}
