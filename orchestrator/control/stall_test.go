package control_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/control"
	"github.com/outbid-dev/outbid/orchestrator/control/nodes"
	"github.com/outbid-dev/outbid/orchestrator/ledger"
	"github.com/outbid-dev/outbid/orchestrator/policy/baseline"
	"github.com/outbid-dev/outbid/orchestrator/sim"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// beat sends a node's heartbeats, one per second.
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

// The ledger blocks for half a minute, twice a worker's lease, while workers continue to send. None of them is lost
// because of that. A worker that fell silent just before is lost after its usual time plus the stall.
func TestAStalledLedgerLosesNoNode(t *testing.T) {
	t.Parallel()
	for range 8 { // which input comes first after a stall is random
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

// A worker that sends more than the queue holds while the loop is stalled is still seen, and blocks nothing.
func TestAFullQueueDoesNotBlock(t *testing.T) {
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
			for range 1000 { // blocks forever if it waits: nothing else moves in this bubble
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

// While a step takes forty seconds, nodes that are seen get their orders again in time for their leases, and silent
// nodes do not. Later orders have a higher generation than all of these. A renewal that was begun when the step ended may
// come after them; workers ignore it, and so does this test.
func TestLeasesAreRenewedWhileAStepTakesLong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		disk := &slowDisk{Ledger: ledger.NewMemory()}
		var mu sync.Mutex
		newest, came := map[string]uint64{}, map[string]time.Time{}
		longest := map[string]time.Duration{}
		l, err := control.Open(t.Context(), control.Config{
			Settings: settings(), Policy: baseline.DRF{}, Ledger: disk, History: &reports{}, Now: time.Now,
			Logger: slog.New(slog.DiscardHandler),
			Send: func(o *outbidv1.Orders) error {
				mu.Lock()
				defer mu.Unlock()
				if o.GetGeneration() <= newest[o.GetNode()] {
					if o.GetGeneration()%nodes.Renewals == 0 {
						t.Errorf("orders %d of %s after %d", o.GetGeneration(), o.GetNode(), newest[o.GetNode()])
					}
					return nil
				}
				if last, ok := came[o.GetNode()]; ok {
					longest[o.GetNode()] = max(longest[o.GetNode()], time.Since(last))
				}
				newest[o.GetNode()], came[o.GetNode()] = o.GetGeneration(), time.Now()
				return nil
			},
			Delete: func(context.Context, string) error { return nil },
			Info:   func() *outbidv1.GetServerInfoResponse { return &outbidv1.GetServerInfoResponse{} },
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- l.Run(ctx) }()
		beat(l, "silent", 1)
		beat(l, "alive", 3)
		release := disk.hold()
		go func() {
			_, _ = l.Submit(t.Context(), sim.Sweep("s", "min", 1, sim.Tuner("random", nil)), "me", "")
		}()
		<-disk.held
		beat(l, "alive", 40)
		mu.Lock()
		if silent := time.Since(came["silent"]); silent < 39*time.Second {
			t.Errorf("a silent node got orders %s ago", silent)
		}
		mu.Unlock()
		release()
		beat(l, "alive", 3)
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if longest["alive"] > 5*time.Second {
			t.Errorf("a node that was heard had no orders for %s", longest["alive"])
		}
	})
}
