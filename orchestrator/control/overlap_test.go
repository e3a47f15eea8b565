package control_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/control"
	"github.com/outbid-dev/outbid/orchestrator/ledger"
	"github.com/outbid-dev/outbid/orchestrator/policy/baseline"
	"github.com/outbid-dev/outbid/orchestrator/sim"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// An earlier leader may still give orders to nodes that only it reaches. Until it stops, a new leader does not give their
// devices away. Nodes that have contacted the new leader get no extra time.
func TestNodesOfAnEarlierLeaderAreGivenMoreTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		record := natsClock{ledger.NewMemory(), new(time.Time)}
		first, end := lead(t, record, 0)
		for _, node := range []string{"far", "near"} {
			first.Uplink(&outbidv1.Uplink{Node: node, Boot: "b", Info: &outbidv1.NodeInfo{Devices: []*outbidv1.Device{{Type: "gpu"}}}})
		}
		pass(time.Second)
		end()
		set := settings()
		set.Overlap = time.Minute
		second, end := leadWith(t, set, record, time.Now)
		defer end()
		second.Uplink(&outbidv1.Uplink{Node: "near", Boot: "b"})
		lost := func(node string) bool {
			for _, n := range second.Nodes() {
				if n.GetInfo().GetName() == node {
					return n.GetState() == outbidv1.NodeState_NODE_STATE_LOST
				}
			}
			return false
		}
		silence := set.Lease + 2*time.Second // control's margin
		if pass(silence + 2*time.Second); lost("far") || !lost("near") {
			t.Errorf("after a lease: far is lost: %t, near is lost: %t", lost("far"), lost("near"))
		}
		if pass(set.Overlap - 4*time.Second); lost("far") {
			t.Error("the far node was given up too soon")
		}
		if pass(5 * time.Second); !lost("far") {
			t.Error("the far node is not lost")
		}
	})
}

// A leader that may have been replaced must not answer from its own state: a command that changes nothing waits as well.
func TestCommandsThatChangeNothingWaitForTheLead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		leads := make(chan error, 1)
		l, err := control.Open(t.Context(), control.Config{
			Settings: settings(), Policy: baseline.DRF{}, Ledger: ledger.NewMemory(), History: &reports{}, Now: time.Now,
			Logger: slog.New(slog.DiscardHandler), Send: func(*outbidv1.Orders) error { return nil },
			Delete: func(context.Context, string) error { return nil },
			Info:   func() *outbidv1.GetServerInfoResponse { return &outbidv1.GetServerInfoResponse{} },
			Confirm: func(ctx context.Context) error {
				select {
				case err := <-leads:
					return err
				case <-ctx.Done():
					return ctx.Err()
				}
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- l.Run(t.Context()) }()
		id, err := l.Submit(t.Context(), sim.Sweep("s", "min", 2, sim.Tuner("random", nil)), "me", "key")
		if err != nil {
			t.Fatal(err)
		}
		again := make(chan string, 1)
		go func() {
			got, _ := l.Submit(t.Context(), sim.Sweep("s", "min", 2, sim.Tuner("random", nil)), "me", "key")
			again <- got
		}()
		pass(30 * time.Second)
		select {
		case got := <-again:
			t.Errorf("it answered %q although it may not lead", got)
		default:
		}
		leads <- nil
		if got := <-again; got != id {
			t.Errorf("the second submit returned %q, want %q", got, id)
		}
		deposed := errors.New("another server leads")
		leads <- deposed
		if err := l.Command(t.Context(), "none", outbidv1.SweepCommand_SWEEP_COMMAND_STOP, "me"); err == nil {
			t.Error("a command was answered by a server that no longer leads")
		}
		if err := <-ended; !errors.Is(err, deposed) {
			t.Errorf("the loop ended with %v", err)
		}
	})
}
