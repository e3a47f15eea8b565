package control_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/control"
	"github.com/outbid-dev/outbid/orchestrator/ledger"
	"github.com/outbid-dev/outbid/orchestrator/policy/baseline"
	"github.com/outbid-dev/outbid/orchestrator/sim"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// fullDisk is a ledger that accepts nothing once it is full, and retries until its context ends.
type fullDisk struct {
	ledger.Ledger
	full atomic.Bool
}

func (f *fullDisk) Append(ctx context.Context, at time.Time, events []*outbidv1.Event) (*outbidv1.Batch, error) {
	if f.full.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return f.Ledger.Append(ctx, at, events)
}

func TestALedgerThatTakesNothingEndsTheLoop(t *testing.T) {
	t.Parallel()
	disk := &fullDisk{Ledger: ledger.NewMemory()}
	l, err := control.Open(t.Context(), control.Config{
		Settings: settings(), Policy: baseline.DRF{}, Ledger: disk, History: &reports{}, Now: time.Now,
		Logger: slog.New(slog.DiscardHandler), Send: func(*outbidv1.Orders) error { return nil },
		Delete:         func(context.Context, string) error { return nil },
		Info:           func() *outbidv1.GetServerInfoResponse { return &outbidv1.GetServerInfoResponse{} },
		AppendPatience: 50 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	disk.full.Store(true)
	ended := make(chan error, 1)
	go func() { ended <- l.Run(context.WithoutCancel(t.Context())) }()
	spec := sim.Sweep("s", "min", 2, sim.Tuner("random", map[string]int64{"max_steps": 5}))
	if id, err := l.Submit(t.Context(), spec, "me", ""); err == nil {
		t.Errorf("it acknowledged %s, which is in no ledger", id)
	}
	err = <-ended
	if err == nil || !strings.Contains(err.Error(), "make room") || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("it ended with %v", err)
	}
}
