package control_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/outbid-dev/outbid/orchestrator/bus"
	"github.com/outbid-dev/outbid/orchestrator/control"
	"github.com/outbid-dev/outbid/orchestrator/ledger"
	"github.com/outbid-dev/outbid/orchestrator/limits"
	"github.com/outbid-dev/outbid/orchestrator/policy/baseline"
	"github.com/outbid-dev/outbid/orchestrator/sim"
	"github.com/outbid-dev/outbid/orchestrator/spec"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// gate is a ledger whose appends can be blocked.
type gate struct {
	*ledger.JetStream
	sync.RWMutex
}

func (g *gate) Append(ctx context.Context, at time.Time, events []*outbidv1.Event) (*outbidv1.Batch, error) {
	g.RLock()
	defer g.RUnlock()
	return g.JetStream.Append(ctx, at, events)
}

// sized is a server on a real ledger with simulated workers, for inputs of every size.
type sized struct {
	t      *testing.T
	nc     *nats.Conn
	stream string
	rng    *rand.Rand

	*control.Loop
	disk  *gate
	ended chan error
	stop  context.CancelFunc
	calls sync.WaitGroup

	mu sync.Mutex
	// orders are the newest orders of each node. forks are those that run there, said the numbers of their reports,
	// and seq the number of messages of each node.
	orders map[string]*outbidv1.Orders
	forks  map[string]map[uint64]*outbidv1.ForkRef
	said   map[uint64]uint64
	seq    map[string]uint64
	nodes  []string
	sizes  map[string]int
}

func (s *sized) open() {
	s.t.Helper()
	l, err := ledger.OpenJetStream(s.t.Context(), s.nc, ledger.Config{Stream: s.stream})
	if err != nil {
		s.t.Fatal(err)
	}
	set := settings()
	set.MaxPayload = func() int { return int(s.nc.MaxPayload()) }
	s.disk = &gate{JetStream: l}
	s.Loop, err = control.Open(s.t.Context(), control.Config{
		Settings: set, Policy: baseline.DRF{}, Ledger: s.disk, History: &reports{}, Now: time.Now, Logger: slog.New(slog.DiscardHandler),
		Send: s.order, Delete: func(context.Context, string) error { return nil }, SnapshotEvery: 200,
		Info: func() *outbidv1.GetServerInfoResponse { return &outbidv1.GetServerInfoResponse{} },
	})
	if err != nil {
		s.t.Fatalf("it does not start again: %v", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	s.stop, s.ended = stop, make(chan error, 1)
	go func(l *control.Loop, ended chan error) { ended <- l.Run(ctx) }(s.Loop, s.ended)
}

// close stops the server. On a busy machine an append may take longer than the time that it then has.
func (s *sized) close() {
	s.t.Helper()
	s.calls.Wait()
	s.stop()
	if err := <-s.ended; err != nil && !errors.Is(err, context.Canceled) {
		s.t.Fatalf("it ended: %v", err)
	}
}

func (s *sized) order(o *outbidv1.Orders) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.orders[o.GetNode()] = o
	forks, size := map[uint64]*outbidv1.ForkRef{}, 0
	for _, a := range o.GetAssignments() {
		known := s.forks[o.GetNode()][a.GetFork().GetLeaseId()] != nil
		if a.GetBody() != nil || known {
			forks[a.GetFork().GetLeaseId()] = a.GetFork()
		}
		size += proto.Size(a)
	}
	s.forks[o.GetNode()] = forks
	s.sizes[o.GetNode()] = max(s.sizes[o.GetNode()], size)
	return nil
}

// join adds a node with many devices.
func (s *sized) join() {
	name := fmt.Sprint("n", len(s.nodes))
	info := &outbidv1.NodeInfo{Hostname: strings.Repeat("h", s.rng.IntN(2000)), Labels: map[string]string{}}
	for i := range 1 + s.rng.IntN(250) {
		info.Devices = append(info.Devices, &outbidv1.Device{Index: int32(i), Type: "cpu", Name: strings.Repeat("d", s.rng.IntN(300))})
	}
	for i := range s.rng.IntN(100) {
		info.Labels[fmt.Sprint(i)] = strings.Repeat("l", s.rng.IntN(2000))
	}
	s.nodes, s.seq[name] = append(s.nodes, name), 1
	s.Uplink(&outbidv1.Uplink{Node: name, Boot: "b", Info: info})
}

// beat sends a heartbeat of every node with its forks, and perhaps a report of each fork, of up to size bytes.
func (s *sized) beat(report bool, size int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, node := range s.nodes {
		up := &outbidv1.Uplink{Node: node, Boot: "b", FirstSeq: s.seq[node]}
		for id, f := range s.forks[node] {
			up.Forks = append(up.Forks, &outbidv1.ForkStatus{Fork: f, Version: 1})
			if !report || s.rng.IntN(4) > 0 || len(up.GetMessages()) > 8 {
				continue
			}
			s.said[id]++
			r := &outbidv1.Report{
				Seq: s.said[id], Step: int64(s.said[id]), Metrics: map[string]float64{"loss": s.rng.Float64()},
				Attributes: map[string]string{"a": strings.Repeat("x", s.rng.IntN(size))},
			}
			up.Messages = append(up.Messages, &outbidv1.UplinkMessage{Fork: f, Kind: &outbidv1.UplinkMessage_Report{Report: r}},
				&outbidv1.UplinkMessage{Fork: f, Kind: &outbidv1.UplinkMessage_Note{Note: &outbidv1.Note{Text: strings.Repeat("n", s.rng.IntN(size))}}})
		}
		s.seq[node] += uint64(len(up.GetMessages()))
		s.Uplink(up)
	}
}

// submit submits a sweep of any size that the check accepts.
func (s *sized) submit(n int) {
	text := func() *structpb.Value {
		return structpb.NewStringValue(strings.Repeat("v", []int{1, 1000, 30_000, 60_000, 62_000, 2_500_000}[s.rng.IntN(6)]))
	}
	sp := sim.Sweep(fmt.Sprint("s", n), "min", int32(1+s.rng.IntN(60)), sim.Tuner("random", map[string]int64{"max_steps": int64(1 + s.rng.IntN(4))}))
	sp.GetSpace()["v"] = &outbidv1.Parameter{Kind: &outbidv1.Parameter_Choice{Choice: &outbidv1.Choice{Values: []*structpb.Value{text(), text()}}}}
	sp.Labels = map[string]string{}
	for i := range s.rng.IntN(20) {
		sp.Labels[fmt.Sprint("l", i)] = strings.Repeat("x", s.rng.IntN(1100))
	}
	spec.Default(sp)
	if spec.Check(sp) != nil || spec.CheckSize(sp, limits.Spec(int(s.nc.MaxPayload()))) != nil {
		return
	}
	s.call(func() error {
		_, err := s.Submit(context.WithoutCancel(s.t.Context()), sp, strings.Repeat("a", 200), "")
		return err
	})
}

// call runs f, which may wait for the ledger.
func (s *sized) call(f func() error) {
	s.calls.Go(func() {
		if err := f(); err != nil {
			s.t.Errorf("what was accepted was not done: %v", err)
		}
	})
}

func (s *sized) act(n int) {
	switch s.rng.IntN(12) {
	case 0, 1, 2:
		s.submit(n)
	case 3, 4:
		s.join()
	case 5:
		s.disk.Lock()
		for range 1 + s.rng.IntN(4) {
			s.submit(n)
			s.beat(true, 60_000)
		}
		s.disk.Unlock()
	case 6:
		s.calls.Wait()
		if all := s.Sweeps(); len(all) > 0 {
			// A sweep that has ended meanwhile cannot be stopped, which is an error.
			_ = s.Command(s.t.Context(), all[s.rng.IntN(len(all))].GetId(), outbidv1.SweepCommand(1+s.rng.IntN(3)), "me")
		}
	case 7:
		before := s.shown()
		s.close()
		s.open()
		if after := s.shown(); !slices.Equal(before, after) {
			s.t.Fatalf("there was %v, and after a restart %v", before, after)
		}
	default:
		s.beat(true, 70_000)
	}
}

// shown waits for the calls in progress and returns the IDs of the sweeps.
func (s *sized) shown() (ids []string) {
	s.calls.Wait()
	for _, sweep := range s.Sweeps() {
		ids = append(ids, sweep.GetId())
	}
	return ids
}

// TestInputsOfEverySize sends a server sweeps, configurations, reports, notes and nodes of every accepted size, and
// some that are refused, in any order, with stalls of the ledger and restarts, on NATS servers with message limits of
// 64 KiB to 8 MiB. All accepted inputs are appended and restored.
func TestInputsOfEverySize(t *testing.T) {
	t.Parallel()
	seeds := uint64(2)
	if raceEnabled {
		seeds = 1 // make test also runs both without the race detector
	}
	for _, payload := range []int32{64 << 10, 100_000, 1 << 20, bus.MaxPayload} {
		t.Run(fmt.Sprint(payload), func(t *testing.T) {
			t.Parallel()
			server, err := bus.StartServer(bus.ServerConfig{Dir: t.TempDir(), MaxPayload: payload})
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
			for seed := range seeds {
				s := &sized{
					t: t, nc: nc, stream: fmt.Sprint("S", seed), rng: rand.New(rand.NewPCG(seed, uint64(payload))),
					orders: map[string]*outbidv1.Orders{}, forks: map[string]map[uint64]*outbidv1.ForkRef{},
					said: map[uint64]uint64{}, seq: map[string]uint64{}, sizes: map[string]int{},
				}
				s.open()
				s.join()
				if _, err := s.Submit(t.Context(), sim.Sweep("first", "min", 9, sim.Tuner("random", nil)), "me", ""); err != nil {
					t.Fatal(err)
				}
				for n := range 40 {
					s.act(n)
				}
				before := s.shown()
				s.close()
				s.open()
				if after := s.shown(); !slices.Equal(before, after) {
					t.Fatalf("seed %d: there was %v, and at the end %v", seed, before, after)
				}
				s.close()
				for node, size := range s.sizes {
					if size > 1<<20 {
						t.Errorf("seed %d: orders of %d bytes for node %s", seed, size, node)
					}
				}
			}
		})
	}
}

// TestALedgerWithAnOversizedSpec starts on a ledger of a version that accepted a choice of 2.5 MB. The sweep fails
// with the reason, and others run.
func TestALedgerWithAnOversizedSpec(t *testing.T) {
	t.Parallel()
	nc := startNATS(t)
	l, err := ledger.OpenJetStream(t.Context(), nc, ledger.Config{})
	if err != nil {
		t.Fatal(err)
	}
	big := sim.Sweep("big", "min", 40, sim.Tuner("random", map[string]int64{"max_steps": 4}))
	big.GetSpace()["v"] = &outbidv1.Parameter{Kind: &outbidv1.Parameter_Constant{Constant: structpb.NewStringValue(strings.Repeat("v", 2_500_000))}}
	events := []*outbidv1.Event{
		{Kind: &outbidv1.Event_OrchestratorStarted{OrchestratorStarted: &outbidv1.OrchestratorStarted{Term: 1, Format: 4}}},
		{Kind: &outbidv1.Event_SweepSubmitted{SweepSubmitted: &outbidv1.SweepSubmitted{Sweep: "big-1", Spec: big, Actor: "me"}}},
	}
	if _, err := l.Append(t.Context(), time.Now(), events); err != nil {
		t.Fatal(err)
	}
	loop := startLoop(t, nc, &reports{})
	info := &outbidv1.NodeInfo{Devices: []*outbidv1.Device{{Type: "cpu"}, {Index: 1, Type: "cpu"}}}
	loop.Uplink(&outbidv1.Uplink{Node: "n", Boot: "b", Info: info})
	small, err := loop.Submit(t.Context(), sim.Sweep("small", "min", 4, sim.Tuner("random", nil)), "me", "")
	if err != nil {
		t.Fatal(err)
	}
	for o := <-loop.orders; len(o.GetAssignments()) < 2; o = <-loop.orders {
		loop.Uplink(&outbidv1.Uplink{Node: "n", Boot: "b"})
	}
	failed, err := loop.Sweep("big-1")
	if err != nil || failed.GetState() != outbidv1.SweepState_SWEEP_STATE_FAILED ||
		!strings.Contains(failed.GetReason(), "2500") || !strings.Contains(failed.GetReason(), "at most 61440") {
		t.Errorf("%s: %s, %v", failed.GetState(), failed.GetReason(), err)
	}
	if runs, err := loop.Sweep(small); err != nil || runs.GetCounts().GetRunning() != 2 {
		t.Errorf("%v, %v", runs.GetCounts(), err)
	}
	loop.end(t)
}
