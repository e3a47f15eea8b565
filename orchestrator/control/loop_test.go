package control_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/outbid-dev/outbid/orchestrator/bus"
	"github.com/outbid-dev/outbid/orchestrator/control"
	"github.com/outbid-dev/outbid/orchestrator/ledger"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/policy/baseline"
	"github.com/outbid-dev/outbid/orchestrator/sim"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// reports is a history in memory.
type reports struct {
	mu   sync.Mutex
	seen []string
	last uint64
}

func (h *reports) ReadAfter(context.Context, string, int64, func(int32, *outbidv1.Report) error) error {
	return nil
}

func (h *reports) Append(seq uint64, events []*outbidv1.Event) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range events {
		if r := e.GetTrialReported(); r != nil && seq > h.last {
			h.seen = append(h.seen, fmt.Sprintf("%s/%d@%d", r.GetSweep(), r.GetTrial(), r.GetReport().GetStep()))
		}
	}
	h.last = max(h.last, seq)
	return nil
}

func (h *reports) Flush() error { return nil }

func (h *reports) Read(context.Context, string, *int32, func(int32, *outbidv1.Report) error) error {
	return nil
}

func startNATS(t *testing.T) *nats.Conn {
	t.Helper()
	server, err := bus.StartServer(bus.ServerConfig{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	nc, err := bus.Connect(t.Context(), bus.ConnConfig{Server: server, Name: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		nc.Close()
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	return nc
}

// running is a loop that can be ended.
type running struct {
	*control.Loop
	ended  chan error
	stop   context.CancelFunc
	orders chan *outbidv1.Orders
}

func startLoop(t *testing.T, nc *nats.Conn, h control.History) *running {
	t.Helper()
	return startLoopWith(t, nc, h, baseline.DRF{})
}

func startLoopWith(t *testing.T, nc *nats.Conn, h control.History, p policy.Policy) *running {
	t.Helper()
	l, err := ledger.OpenJetStream(t.Context(), nc, ledger.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return startLoopOn(t, l, h, p)
}

func startLoopOn(t *testing.T, l ledger.Ledger, h control.History, p policy.Policy) *running {
	t.Helper()
	var err error
	r := &running{ended: make(chan error, 1), orders: make(chan *outbidv1.Orders, 1000)}
	r.Loop, err = control.Open(t.Context(), control.Config{
		Settings: settings(), Policy: p, Ledger: l, History: h, Now: time.Now, Logger: slog.New(slog.DiscardHandler),
		Send:   func(o *outbidv1.Orders) error { r.orders <- o; return nil },
		Delete: func(context.Context, string) error { return nil }, SnapshotEvery: 40,
		Info: func() *outbidv1.GetServerInfoResponse { return &outbidv1.GetServerInfoResponse{} },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	r.stop = stop
	go func() { r.ended <- r.Run(ctx) }()
	t.Cleanup(stop)
	return r
}

func (r *running) end(t *testing.T) {
	t.Helper()
	r.stop()
	if err := <-r.ended; err != nil {
		t.Fatal(err)
	}
}

func TestAcknowledgedWorkSurvivesARestart(t *testing.T) {
	t.Parallel()
	nc := startNATS(t)
	h := &reports{}
	first := startLoop(t, nc, h)
	spec := sim.Sweep("s", "min", 4, sim.Tuner("random", map[string]int64{"max_steps": 50}))
	id, err := first.Submit(t.Context(), spec, "me", "key")
	if err != nil {
		t.Fatal(err)
	}
	info := &outbidv1.NodeInfo{Devices: []*outbidv1.Device{{Type: "gpu"}}}
	first.Uplink(&outbidv1.Uplink{Node: "n", Boot: "b", Info: info})
	o := <-first.orders
	for len(o.GetAssignments()) == 0 {
		first.Uplink(&outbidv1.Uplink{Node: "n", Boot: "b"})
		o = <-first.orders
	}
	fork := o.GetAssignments()[0].GetFork()
	for i := range uint64(45) {
		first.Uplink(&outbidv1.Uplink{
			Node: "n", Boot: "b", FirstSeq: i + 1, Messages: []*outbidv1.UplinkMessage{report(fork, i+1, int64(i+1))},
		})
	}
	for o.GetAckedSeq() < 45 {
		o = <-first.orders
	}
	first.end(t)

	second := startLoop(t, nc, h)
	trial, err := second.Trial(id, 0)
	if err != nil || trial.GetStep() != 45 || trial.GetState() != outbidv1.TrialState_TRIAL_STATE_RUNNING {
		t.Fatalf("after the restart the trial is %v, %v", trial, err)
	}
	if again, err := second.Submit(t.Context(), spec, "me", "key"); err != nil || again != id {
		t.Fatalf("the same key gave %q, %v", again, err)
	}
	if len(h.seen) != 45 {
		t.Fatalf("the history holds %d reports, want each of 45 once", len(h.seen))
	}
	second.Uplink(&outbidv1.Uplink{Node: "n", Boot: "b"})
	if o := <-second.orders; o.GetAckedSeq() != 45 || len(o.GetAssignments()) != 1 || o.GetAssignments()[0].GetBody() == nil {
		t.Fatalf("orders after the restart: %v", o)
	}
	second.end(t)
}

// times is a policy that sends the time of each decision to a channel.
type times struct {
	baseline.DRF
	decided chan time.Time
}

func (p times) Decide(v *policy.View) policy.Plan {
	select {
	case p.decided <- v.Now:
	default:
	}
	return p.DRF.Decide(v)
}

// A replay has only the wall times of the ledger: a decision that depended on the monotonic clock would differ.
func TestDecisionsFollowFromTimesThatTheLedgerKeeps(t *testing.T) {
	t.Parallel()
	p := times{decided: make(chan time.Time, 1)}
	l := startLoopWith(t, startNATS(t), &reports{}, p)
	if _, err := l.Submit(t.Context(), sim.Sweep("s", "min", 1, sim.Tuner("random", nil)), "me", ""); err != nil {
		t.Fatal(err)
	}
	if at := <-p.decided; strings.Contains(at.String(), " m=") {
		t.Errorf("a decision was made at %s, which has a monotonic reading", at)
	}
	l.end(t)
}

// stalled is a ledger that stops answering.
type stalled struct {
	ledger.Ledger
	stall   chan struct{}
	waiting chan struct{}
}

func (s *stalled) Append(ctx context.Context, at time.Time, events []*outbidv1.Event) (*outbidv1.Batch, error) {
	select {
	case <-s.stall:
		close(s.waiting)
		<-ctx.Done()
		return nil, ctx.Err()
	default:
		return s.Ledger.Append(ctx, at, events)
	}
}

// A server that no longer leads gives up its append. Otherwise readers, and the server's end, would wait for it.
func TestADeposedLeaderGivesUpItsAppend(t *testing.T) {
	t.Parallel()
	nc := startNATS(t)
	real, err := ledger.OpenJetStream(t.Context(), nc, ledger.Config{})
	if err != nil {
		t.Fatal(err)
	}
	s := &stalled{Ledger: real, stall: make(chan struct{}), waiting: make(chan struct{})}
	l := startLoopOn(t, s, &reports{}, baseline.DRF{})
	close(s.stall)
	submitted := make(chan error, 1)
	go func() {
		_, err := l.Submit(t.Context(), sim.Sweep("s", "min", 1, sim.Tuner("random", nil)), "me", "")
		submitted <- err
	}()
	<-s.waiting
	read := make(chan int, 1)
	go func() { read <- len(l.Sweeps()) }()
	l.Abandon()
	<-read
	if err := <-submitted; err == nil {
		t.Error("a sweep that is not in the ledger was answered")
	}
	if err := <-l.ended; !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
}

func TestADeposedOrchestratorCannotWrite(t *testing.T) {
	t.Parallel()
	nc := startNATS(t)
	old := startLoop(t, nc, &reports{})
	spec := sim.Sweep("s", "min", 4, sim.Tuner("random", nil))
	if _, err := old.Submit(t.Context(), spec, "me", ""); err != nil {
		t.Fatal(err)
	}
	fresh := startLoop(t, nc, &reports{})
	if _, err := fresh.Submit(t.Context(), spec, "me", ""); err != nil {
		t.Fatal(err)
	}
	if id, err := old.Submit(t.Context(), spec, "me", ""); err == nil {
		t.Fatalf("the deposed orchestrator submitted %s", id)
	}
	if err := <-old.ended; !errors.Is(err, ledger.ErrConflict) {
		t.Fatalf("it ended with %v", err)
	}
	if got := len(fresh.Sweeps()); got != 2 {
		t.Fatalf("%d sweeps, want the two that were answered", got)
	}
	fresh.end(t)
}

func TestChangesWakeReaders(t *testing.T) {
	t.Parallel()
	l := startLoop(t, startNATS(t), &reports{})
	id, err := l.Submit(t.Context(), sim.Sweep("s", "min", 1, sim.Tuner("random", nil)), "me", "")
	if err != nil {
		t.Fatal(err)
	}
	_, version, next, err := l.Changes(id, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Command(t.Context(), id, outbidv1.SweepCommand_SWEEP_COMMAND_STOP, "me"); err != nil {
		t.Fatal(err)
	}
	<-next
	if _, after, _, err := l.Changes(id, version); err != nil || after <= version {
		t.Fatalf("version %d after %d, %v", after, version, err)
	}
	if _, _, _, err := l.Changes("none-1", 0); !errors.Is(err, state.ErrNotFound) {
		t.Fatalf("changes of a sweep that is not there: %v", err)
	}
	l.end(t)
}
