package themis

import (
	"testing"

	"github.com/outbid-dev/outbid/orchestrator/bidder"
	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/policy/stagetest"
)

// A trial that holds a gang like the one that was won keeps it: of the same size and type, on at most as many nodes,
// and on the node or rack that the gang names.
func TestAGangAsItWasWon(t *testing.T) {
	t.Parallel()
	v := &policy.View{Nodes: stagetest.Nodes("gpu", 2, 4, 4)}
	v.Nodes[0].Rack, v.Nodes[1].Rack = "r1", "r2"
	both := cluster.Gang{{Node: 0, Devices: []int{0}}, {Node: 1, Devices: []int{0}}}
	name := v.Nodes[0].Name
	for _, tc := range []struct {
		what string
		held cluster.Gang
		won  bidder.Gangs
		want bool
	}{
		{"as it is", gang(0, 1), bidder.Gangs{Type: "gpu", Devices: 2, Machines: 1, Count: 1}, true},
		{"on one machine where two would do", gang(0, 1), bidder.Gangs{Type: "gpu", Devices: 1, Machines: 2, Count: 1}, true},
		{"on two where one was won", both, bidder.Gangs{Type: "gpu", Devices: 2, Machines: 1, Count: 1}, false},
		{"of another size", gang(0), bidder.Gangs{Type: "gpu", Devices: 2, Machines: 1, Count: 1}, false},
		{"of another type", gang(0, 1), bidder.Gangs{Type: "tpu", Devices: 2, Machines: 1, Count: 1}, false},
		{"on the node that it names", gang(0, 1), bidder.Gangs{Type: "gpu", Devices: 2, Machines: 1, Count: 1, Node: name}, true},
		{"on another node", gang(0, 1), bidder.Gangs{Type: "gpu", Devices: 2, Machines: 1, Count: 1, Node: "elsewhere"}, false},
		{"in the rack that it names", gang(0, 1), bidder.Gangs{Type: "gpu", Devices: 2, Machines: 1, Count: 1, Rack: "r1"}, true},
		{"in another rack", gang(0, 1), bidder.Gangs{Type: "gpu", Devices: 2, Machines: 1, Count: 1, Rack: "r2"}, false},
		{"half in another rack", both, bidder.Gangs{Type: "gpu", Devices: 1, Machines: 2, Count: 1, Rack: "r1"}, false},
	} {
		if got := matches(v, tc.held, tc.won); got != tc.want {
			t.Errorf("%s: %t", tc.what, got)
		}
	}
}
