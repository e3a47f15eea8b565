package control_test

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/outbid-dev/outbid/orchestrator/control"
	"github.com/outbid-dev/outbid/orchestrator/ledger"
	"github.com/outbid-dev/outbid/orchestrator/policy/baseline"
	"github.com/outbid-dev/outbid/orchestrator/sim"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// readLedger counts how often it is read.
type readLedger struct {
	*ledger.Memory
	reads atomic.Int64
}

func (l *readLedger) Read(ctx context.Context, from uint64, f func(*outbidv1.Batch) error) error {
	l.reads.Add(1)
	return l.Memory.Read(ctx, from, f)
}

func TestTheNewestRoundsAreShownWithoutReadingTheLedger(t *testing.T) {
	t.Parallel()
	record := &readLedger{Memory: ledger.NewMemory()}
	open := func() (*control.Loop, func()) {
		l, err := control.Open(t.Context(), control.Config{
			Settings: settings(), Policy: baseline.DRF{}, Ledger: record, History: &reports{}, Now: time.Now,
			Logger: slog.New(slog.DiscardHandler), Send: func(*outbidv1.Orders) error { return nil },
			Delete: func(context.Context, string) error { return nil },
			Info:   func() *outbidv1.GetServerInfoResponse { return &outbidv1.GetServerInfoResponse{} },
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
		ended := make(chan error, 1)
		go func() { ended <- l.Run(ctx) }()
		return l, func() {
			stop()
			if err := <-ended; err != nil {
				t.Fatal(err)
			}
		}
	}
	list := func(l *control.Loop) []*outbidv1.Round {
		rounds, err := l.Rounds(t.Context(), 0, "", 100)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range rounds {
			one, err := l.Round(t.Context(), r.GetRound())
			if diff := cmp.Diff(r, one, protocmp.Transform()); err != nil || diff != "" {
				t.Errorf("round %d by itself: %v\n%s", r.GetRound(), err, diff)
			}
		}
		return rounds
	}
	l, end := open()
	devices := []*outbidv1.Device{{Index: 0, Type: "gpu"}, {Index: 1, Type: "gpu"}, {Index: 2, Type: "gpu"}}
	l.Uplink(&outbidv1.Uplink{Node: "n", Boot: "b", Info: &outbidv1.NodeInfo{Devices: devices}})
	for range 3 {
		if _, err := l.Submit(t.Context(), sim.Sweep("s", "min", 1, sim.Tuner("random", nil)), "me", ""); err != nil {
			t.Fatal(err)
		}
	}
	// The reply to another command comes after the rounds before it.
	if _, err := l.Submit(t.Context(), sim.Sweep("s", "min", 1, sim.Tuner("random", nil)), "me", ""); err != nil {
		t.Fatal(err)
	}
	before := record.reads.Load()
	rounds := list(l)
	if record.reads.Load() != before || len(rounds) == 0 {
		t.Errorf("%d rounds were shown after %d reads of the ledger", len(rounds), record.reads.Load()-before)
	}
	end()
	again, end := open() // from its last snapshot: it has no rounds in memory
	if diff := cmp.Diff(rounds, list(again), protocmp.Transform()); diff != "" {
		t.Errorf("after a restart (-want +got):\n%s", diff)
	}
	if _, err := again.Round(t.Context(), 1000); err == nil {
		t.Error("there is no round 1000")
	}
	end()
}
