package api_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/outbid-dev/outbid/orchestrator/api"
	"github.com/outbid-dev/outbid/orchestrator/control"
	"github.com/outbid-dev/outbid/orchestrator/ledger"
	"github.com/outbid-dev/outbid/orchestrator/objects"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/policy/baseline"
	"github.com/outbid-dev/outbid/orchestrator/sim"
	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/registry"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// nothing is an empty history and an empty source of logs.
type nothing struct{}

func (nothing) Append(uint64, []*outbidv1.Event) error { return nil }
func (nothing) Flush() error                           { return nil }

type noReports struct{ nothing }

func (noReports) Read(context.Context, string, *int32, func(int32, *outbidv1.Report) error) error {
	return nil
}

func (noReports) ReadAfter(context.Context, string, int64, func(int32, *outbidv1.Report) error) error {
	return nil
}

type noLogs struct{}

func (noLogs) Reserve(context.Context, string, int64) error { return nil }

func (noLogs) Read(context.Context, string, string, *int32, uint64, bool, func(*outbidv1.LogChunk) error) error {
	return nil
}

func (noLogs) Tail(context.Context, string, string, *int32, int) ([]*outbidv1.LogChunk, uint64, error) {
	return nil, 0, nil
}

// lines collects log lines.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lines) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// serveLoop serves a real control loop with the given fairness function.
func serveLoop(t *testing.T, log *slog.Logger, fairness func(*policy.App) *outbidv1.Fairness) outbidv1.OutbidServiceClient {
	t.Helper()
	client, _, _ := serveLoopOf(t, log, baseline.DRF{}, fairness)
	return client
}

// serveLoopOf serves a real control loop with a policy. It returns a client, the API's address, and the loop.
func serveLoopOf(
	t *testing.T, log *slog.Logger, p policy.Policy, fairness func(*policy.App) *outbidv1.Fairness,
) (outbidv1.OutbidServiceClient, string, *control.Loop) {
	t.Helper()
	loop, err := control.Open(t.Context(), control.Config{
		Settings: control.Settings{
			Lease:    15 * time.Second,
			NewTuner: func(s tuner.Settings, _ []byte) (tuner.Tuner, error) { return registry.New(s) },
			Fairness: func(_ *policy.View, a *policy.App, _ bool) *outbidv1.Fairness { return fairness(a) },
		},
		Policy: p, Ledger: ledger.NewMemory(), History: noReports{}, Now: time.Now, Logger: log,
		Send:   func(*outbidv1.Orders) error { return nil },
		Delete: func(context.Context, string) error { return nil },
		Info:   func() *outbidv1.GetServerInfoResponse { return &outbidv1.GetServerInfoResponse{} },
	})
	if err != nil {
		t.Fatal(err)
	}
	store, err := objects.OpenDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	server, err := api.New(api.Config{
		Control: loop, Store: store, Logs: noLogs{}, Logger: log, Registry: prometheus.NewRegistry(), Addr: "127.0.0.1:0",
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return loop.Run(ctx) })
	group.Go(func() error { return server.Serve(ctx) })
	conn, err := grpc.NewClient(server.Addr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		stop()
		if err := group.Wait(); err != nil {
			t.Error(err)
		}
	})
	return outbidv1.NewOutbidServiceClient(conn), server.Addr(), loop
}

// TestASweepThatCannotBeShownWholeHidesNoOther checks that a part of a sweep that cannot be computed is omitted and
// logged once, while this sweep and all others remain visible.
func TestASweepThatCannotBeShownWholeHidesNoOther(t *testing.T) {
	t.Parallel()
	log := &lines{}
	client := serveLoop(t, slog.New(slog.NewTextHandler(log, nil)), func(a *policy.App) *outbidv1.Fairness {
		if strings.HasPrefix(a.ID, "bad") {
			panic("it cannot be computed")
		}
		return &outbidv1.Fairness{Rho: 1}
	})
	for _, name := range []string{"good", "bad", "fine"} {
		stopping := sim.Tuner("asha-stop", map[string]int64{"max_steps": 9, "eta": 3})
		_, err := client.SubmitSweep(t.Context(), &outbidv1.SubmitSweepRequest{Spec: sim.Sweep(name, "min", 4, stopping)})
		if err != nil {
			t.Fatal(err)
		}
	}
	var readers errgroup.Group
	for range 8 { // in parallel, as real readers: the race detector checks it
		readers.Go(func() error {
			r, err := client.ListSweeps(t.Context(), &outbidv1.ListSweepsRequest{})
			if err != nil {
				return err
			}
			for _, s := range r.GetSweeps() {
				if bad := strings.HasPrefix(s.GetId(), "bad"); bad != (s.GetFairness() == nil) || s.GetOutlook() == nil || s.GetCounts() == nil {
					t.Errorf("listed as %v", s)
				}
			}
			if len(r.GetSweeps()) != 3 {
				t.Errorf("%d sweeps are listed, want 3", len(r.GetSweeps()))
			}
			_, err = client.GetSweep(t.Context(), &outbidv1.GetSweepRequest{Sweep: "bad-1"})
			return err
		})
	}
	if err := readers.Wait(); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(log.text(), "level=ERROR"); n != 1 || !strings.Contains(log.text(), "part=fairness") {
		t.Errorf("%d errors are logged, want one:\n%s", n, log.text())
	}
}
