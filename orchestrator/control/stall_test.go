package control_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/control"
	"github.com/outbid-dev/outbid/orchestrator/ledger"
	"github.com/outbid-dev/outbid/orchestrator/sim"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// beat sends a node's heartbeats, one a second, for as long.
func beat(l *control.Loop, node string, seconds int) {
	for range seconds {
		l.Uplink(&outbidv1.Uplink{Node: node, Boot: "b", Info: &outbidv1.NodeInfo{
			Name: node, Boot: "b", Devices: []*outbidv1.Device{{Type: "cpu"}},
		}})
		pass(time.Second)
	}
}

func stateOf(t *testing.T, l *control.Loop, node string) outbidv1.NodeState {
	t.Helper()
	for _, n := range l.Nodes() {
		if n.GetInfo().GetName() == node {
			return n.GetState()
		}
	}
	t.Fatalf("there is no node %s", node)
	return 0
}

// While the ledger takes nothing for half a minute, twice a worker's lease, workers go on sending. None of them is lost by
// that; one that fell silent just before is lost as long after as if nothing had been.
func TestAStalledLedgerLosesNobody(t *testing.T) {
	t.Parallel()
	for range 8 { // what comes first after a stall is a matter of chance
		synctest.Test(t, func(t *testing.T) {
			disk := &slowDisk{Ledger: ledger.NewMemory()}
			l, end := lead(t, disk, 0)
			defer end()
			beat(l, "dead", 1)
			beat(l, "alive", 2)
			release := disk.hold()
			go func() {
				_, _ = l.Submit(t.Context(), sim.Sweep("s", "min", 1, sim.Tuner("random", nil)), "me", "")
			}()
			<-disk.held
			beat(l, "alive", 30)
			release()
			for second := range 10 {
				for _, node := range []string{"alive", "dead"} {
					if got := stateOf(t, l, node); got != outbidv1.NodeState_NODE_STATE_UP {
						t.Fatalf("%d s after the stall %s is %s", second, node, got)
					}
				}
				beat(l, "alive", 1)
			}
			beat(l, "alive", 7)
			if got := stateOf(t, l, "dead"); got != outbidv1.NodeState_NODE_STATE_LOST {
				t.Errorf("a node that has been silent for a lease's time beside the stall is %s", got)
			}
			if got := stateOf(t, l, "alive"); got != outbidv1.NodeState_NODE_STATE_UP {
				t.Errorf("a node that was heard all the time is %s", got)
			}
		})
	}
}

// A worker that says more than can be taken in while the loop stands still is heard all the same, and keeps nobody waiting.
func TestAFullQueueKeepsNobodyWaiting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		disk := &slowDisk{Ledger: ledger.NewMemory()}
		l, end := lead(t, disk, 0)
		defer end()
		beat(l, "n", 1)
		release := disk.hold()
		go func() {
			_, _ = l.Submit(t.Context(), sim.Sweep("s", "min", 1, sim.Tuner("random", nil)), "me", "")
		}()
		<-disk.held
		for range 20 {
			for range 1000 { // blocks for ever if it waits: nothing else moves in this bubble
				l.Uplink(&outbidv1.Uplink{Node: "n", Boot: "b"})
			}
			pass(time.Second)
		}
		release()
		pass(time.Second)
		if got := stateOf(t, l, "n"); got != outbidv1.NodeState_NODE_STATE_UP {
			t.Errorf("it is %s", got)
		}
	})
}
