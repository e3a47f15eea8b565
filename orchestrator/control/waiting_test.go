package control_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/control"
	"github.com/outbid-dev/outbid/orchestrator/ledger"
	"github.com/outbid-dev/outbid/orchestrator/policy/baseline"
	"github.com/outbid-dev/outbid/orchestrator/sim"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// A fault lasts for a time of the ledger, which need not be that of this machine's clock.
func TestTheReasonToWaitFollowsTheTimeOfTheLedger(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	orders := make(chan *outbidv1.Orders, 100)
	l, err := control.Open(ctx, control.Config{
		Settings: settings(), Policy: baseline.FIFO{}, Ledger: ledger.NewMemory(), History: &reports{}, Logger: slog.New(slog.DiscardHandler),
		Send:   func(o *outbidv1.Orders) error { orders <- o; return nil },
		Delete: func(context.Context, string) error { return nil },
		Now:    func() time.Time { return time.Now().Add(-1000 * time.Hour) },
		Info:   func() *outbidv1.GetServerInfoResponse { return &outbidv1.GetServerInfoResponse{} },
	})
	if err != nil {
		t.Fatal(err)
	}
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- l.Run(run) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	l.Uplink(&outbidv1.Uplink{Node: "n1", Boot: "b1", Info: &outbidv1.NodeInfo{
		Name: "n1", Boot: "b1", Devices: []*outbidv1.Device{{Type: "cpu"}},
	}})
	id, err := l.Submit(ctx, sim.Sweep("s", "min", 1, sim.Tuner("random", nil)), "", "")
	if err != nil {
		t.Fatal(err)
	}
	l.Uplink(&outbidv1.Uplink{Node: "n1", Boot: "b1", FirstSeq: 1, Messages: []*outbidv1.UplinkMessage{{
		Fork: firstFork(ctx, t, orders), Kind: &outbidv1.UplinkMessage_Ended{Ended: &outbidv1.ForkEnded{
			Outcome: outbidv1.ForkOutcome_FORK_OUTCOME_FAILED, Failure: outbidv1.FailureKind_FAILURE_KIND_NODE, Detail: "the disk is full",
		}},
	}}})
	for why := ""; !strings.HasPrefix(why, "waits for a node that can start its trials; n1"); {
		_, _, next, err := l.Changes(id, 0)
		if err != nil {
			t.Fatal(err)
		}
		s, err := l.Sweep(id)
		if err != nil {
			t.Fatal(err)
		}
		if why = s.GetWaiting(); strings.Contains(why, "can start") {
			continue
		}
		select {
		case <-next:
		case <-ctx.Done():
			t.Fatalf("it waits because %q", why)
		}
	}
}

// firstFork returns the first fork that is ordered.
func firstFork(ctx context.Context, t *testing.T, orders <-chan *outbidv1.Orders) *outbidv1.ForkRef {
	t.Helper()
	for {
		select {
		case o := <-orders:
			if len(o.GetAssignments()) > 0 {
				return o.GetAssignments()[0].GetFork()
			}
		case <-ctx.Done():
			t.Fatal("no fork was ordered")
		}
	}
}
