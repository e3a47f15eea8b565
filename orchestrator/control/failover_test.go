package control_test

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/control"
	"github.com/outbid-dev/outbid/orchestrator/ledger"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/policy/baseline"
	"github.com/outbid-dev/outbid/orchestrator/sim"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// natsClock is a ledger in a NATS server whose clock is correct.
type natsClock struct {
	*ledger.Memory
	last *time.Time
}

func (n natsClock) Append(ctx context.Context, at time.Time, events []*outbidv1.Event) (*outbidv1.Batch, error) {
	*n.last = time.Now()
	return n.Memory.Append(ctx, at, events)
}

func (n natsClock) SinceLast(context.Context) (time.Duration, error) { return time.Since(*n.last), nil }

// lead runs a loop on a machine whose clock is off, until end is called.
func lead(t *testing.T, record ledger.Ledger, off time.Duration) (l *control.Loop, end func()) {
	t.Helper()
	return leadWith(t, settings(), record, func() time.Time { return time.Now().Add(off) })
}

// leadWith runs a loop until end is called.
func leadWith(t *testing.T, set control.Settings, record ledger.Ledger, now func() time.Time) (l *control.Loop, end func()) {
	t.Helper()
	return leadBy(t, baseline.DRF{}, set, record, now)
}

// leadBy runs a loop with a policy until end is called.
func leadBy(t *testing.T, p policy.Policy, set control.Settings, record ledger.Ledger, now func() time.Time) (l *control.Loop, end func()) {
	t.Helper()
	l, err := control.Open(t.Context(), control.Config{
		Settings: set, Policy: p, Ledger: record, History: &reports{}, Now: now, Logger: slog.New(slog.DiscardHandler),
		Send:   func(*outbidv1.Orders) error { return nil },
		Delete: func(context.Context, string) error { return nil },
		Info:   func() *outbidv1.GetServerInfoResponse { return &outbidv1.GetServerInfoResponse{} },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- l.Run(ctx) }()
	return l, func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// After a failover to a machine whose clock is off, timers continue unaffected.
func TestAClockThatIsOffDisturbsNoTimers(t *testing.T) {
	t.Parallel()
	for name, off := range map[string]time.Duration{
		"five minutes behind": -5 * time.Minute, "three hours ahead": 3 * time.Hour, "right": 0,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				record := natsClock{ledger.NewMemory(), new(time.Time)}
				first, end := lead(t, record, 0)
				first.Uplink(&outbidv1.Uplink{Node: "n", Boot: "b", Info: &outbidv1.NodeInfo{
					Devices: []*outbidv1.Device{{Type: "gpu"}},
				}})
				spec := sim.Sweep("s", "min", 2, sim.Tuner("random", nil))
				spec.Limits.WallTime = "1h"
				id, err := first.Submit(t.Context(), spec, "me", "")
				if err != nil {
					t.Fatal(err)
				}
				pass(10 * time.Minute)
				first.Uplink(&outbidv1.Uplink{Node: "n", Boot: "b"})
				pass(time.Second)
				end()

				second, end := lead(t, record, off)
				defer end()
				ended := func() bool {
					sweep, err := second.Sweep(id)
					return err != nil || sweep.GetState() != outbidv1.SweepState_SWEEP_STATE_RUNNING
				}
				lost := func() bool { return second.Nodes()[0].GetState() == outbidv1.NodeState_NODE_STATE_LOST }
				silence := settings().Lease + 2*time.Second // control's margin
				if pass(silence - time.Second); lost() {
					t.Errorf("the node was given up too soon")
				}
				if pass(3 * time.Second); !lost() {
					t.Errorf("the node has been silent for %s and is not lost", silence+2*time.Second)
				}
				if pass(48 * time.Minute); ended() {
					t.Errorf("the sweep has ended, after 58 minutes of an hour")
				}
				if pass(5 * time.Minute); !ended() {
					t.Errorf("the sweep has not ended after an hour")
				}
			})
		})
	}
}

// pass lets virtual time pass.
func pass(d time.Duration) { time.Sleep(d) } //nolint:forbidigo // in a synctest bubble, where it takes no time
