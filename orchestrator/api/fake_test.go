package api

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	"github.com/outbid-dev/outbid/orchestrator/objects"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// fakeControl is a Control in memory.
type fakeControl struct {
	mu      sync.Mutex
	sweeps  map[string]*fakeSweep
	order   []string
	nodes   []*outbidv1.Node
	prices  *outbidv1.DevicePrices
	batches []*outbidv1.Batch
	standby bool
	// fail, if set, is the error of every command.
	fail error
	// actors lists the actors of submissions and commands, in order.
	actors   []string
	commands []string // of nodes
	keys     map[string]string
	// looks counts the calls of Changes.
	looks int
	// deleted lists the deleted sweeps. A stop ends a sweep at once.
	deleted map[string]state.Deleted
	tenants map[string]*outbidv1.Tenant
}

type fakeSweep struct {
	view    *outbidv1.Sweep
	trials  []*outbidv1.Trial
	changed []uint64
	version uint64
	next    chan struct{}
	reports []*outbidv1.TrialReport
}

func newFakeControl() *fakeControl {
	return &fakeControl{sweeps: map[string]*fakeSweep{}, keys: map[string]string{}, deleted: map[string]state.Deleted{}}
}

func (c *fakeControl) Blobs() map[string][]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	used := map[string][]string{}
	for _, s := range c.sweeps {
		if sha := s.view.GetSpec().GetFunction().GetBlob(); sha != "" {
			used[sha] = append(used[sha], tenantOf(s.view.GetSpec()))
		}
	}
	return used
}

func (c *fakeControl) Round(context.Context, uint64) (*outbidv1.Round, error) {
	return &outbidv1.Round{Round: 7}, nil
}

// Prices returns the price of one type.
func (c *fakeControl) Prices() *outbidv1.Prices {
	return &outbidv1.Prices{Slots: 3, Prices: []*outbidv1.SlotPrice{{Type: "v100", Device: 2.5, Devices: 8}}}
}

func (c *fakeControl) Rounds(context.Context, uint64, string, int) ([]*outbidv1.Round, error) {
	return []*outbidv1.Round{{Round: 7}}, nil
}

// add adds a running sweep with n trials.
func (c *fakeControl) add(id, tenant string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := &fakeSweep{next: make(chan struct{}), version: 1}
	s.view = &outbidv1.Sweep{
		Id: id, State: outbidv1.SweepState_SWEEP_STATE_RUNNING, Counts: &outbidv1.TrialCounts{Total: int32(n)},
		Spec: &outbidv1.SweepSpec{Name: id, Tenant: tenant, Metric: "accuracy", Mode: "max"},
	}
	for i := range n {
		s.trials = append(s.trials, &outbidv1.Trial{
			Sweep: id, Number: int32(i), State: outbidv1.TrialState_TRIAL_STATE_RUNNING,
			ConfigJson: `{"lr":0.1}`, Best: proto.Float64(float64(i * 7919 % 10007)),
		})
		s.changed = append(s.changed, 1)
	}
	c.sweeps[id] = s
	c.order = append(c.order, id)
}

// change applies f to a sweep and announces the change; trials lists those that f changed.
func (c *fakeControl) change(id string, f func(*fakeSweep), trials ...int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.sweeps[id]
	s.view = proto.CloneOf(s.view)
	for _, i := range trials {
		s.trials[i] = proto.CloneOf(s.trials[i])
	}
	f(s)
	s.version++
	for _, i := range trials {
		s.changed[i] = s.version
	}
	close(s.next)
	s.next = make(chan struct{})
}

func (c *fakeControl) end(id string) {
	c.change(id, func(s *fakeSweep) { s.view.State = outbidv1.SweepState_SWEEP_STATE_DONE })
}

func (c *fakeControl) find(id string) (*fakeSweep, error) {
	s := c.sweeps[id]
	if d, ok := c.deleted[id]; ok {
		return nil, &state.DeletedError{Deleted: d}
	}
	if s == nil {
		return nil, fmt.Errorf("%w: there is no sweep %q", state.ErrNotFound, id)
	}
	return s, nil
}

func (c *fakeControl) Submit(_ context.Context, spec *outbidv1.SweepSpec, actor, key string) (string, error) {
	c.mu.Lock()
	if c.fail != nil {
		defer c.mu.Unlock()
		return "", c.fail
	}
	if id, ok := c.keys[key]; ok && key != "" {
		defer c.mu.Unlock()
		return id, nil
	}
	id := fmt.Sprintf("%s-%d", spec.GetName(), len(c.order)+1)
	c.actors = append(c.actors, actor)
	c.keys[key] = id
	c.mu.Unlock()
	c.add(id, spec.GetTenant(), 0)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sweeps[id].view.Spec = spec
	c.sweeps[id].view.Actor = actor
	return id, nil
}

// Impossible assumes a cluster with four devices.
func (c *fakeControl) Impossible(s *outbidv1.SweepSpec) string {
	if n := s.GetResources().GetDevices().GetMin(); n > 4 {
		return fmt.Sprintf("no node has %d devices; the most is 4", n)
	}
	return ""
}

// CheckBidder accepts one bidder, patient.
func (c *fakeControl) CheckBidder(s *outbidv1.SweepSpec) error {
	if name := s.GetAgent().GetPlugin(); name != "" && name != "patient" {
		return fmt.Errorf("%w: agent.plugin: there is no %s", state.ErrInvalid, name)
	}
	return nil
}

func (c *fakeControl) Command(_ context.Context, id string, _ outbidv1.SweepCommand, actor string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fail != nil {
		return c.fail
	}
	c.actors = append(c.actors, actor)
	_, err := c.find(id)
	return err
}

func (c *fakeControl) Delete(_ context.Context, id, actor string) (state.Deleted, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, err := c.find(id)
	if gone, ok := errors.AsType[*state.DeletedError](err); ok {
		return gone.Deleted, nil
	}
	switch {
	case err != nil:
		return state.Deleted{}, err
	case !sweepEnded(s.view.GetState()):
		return state.Deleted{}, fmt.Errorf("%w: sweep %s is running", state.ErrConflict, id)
	}
	delete(c.sweeps, id)
	c.order = slices.DeleteFunc(c.order, func(o string) bool { return o == id })
	d := state.Deleted{ID: id, Tenant: tenantOf(s.view.GetSpec()), Actor: actor, At: time.Unix(1e9, 0)}
	c.deleted[id] = d
	return d, nil
}

func (c *fakeControl) Extend(_ context.Context, req *outbidv1.ExtendSweepRequest, actor string) ([]*outbidv1.TrainedAgain, error) {
	return nil, c.Command(context.Background(), req.GetSweep(), 0, actor)
}

func (c *fakeControl) Ask(_ context.Context, id, _ string) (*outbidv1.AskTrialResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, err := c.find(id)
	if err != nil {
		return nil, err
	}
	if len(s.trials) == 0 {
		return &outbidv1.AskTrialResponse{Exhausted: true}, nil
	}
	return &outbidv1.AskTrialResponse{Trial: s.trials[0], LeaseId: 1}, nil
}

func (c *fakeControl) Tell(_ context.Context, req *outbidv1.TellTrialRequest) (*outbidv1.TellTrialResponse, error) {
	trial, err := c.Trial(req.GetSweep(), req.GetTrial())
	return &outbidv1.TellTrialResponse{Trial: trial, GoOn: !req.GetFinished() && req.GetLeaseId() == 1}, err
}

func (c *fakeControl) Sweeps() []*outbidv1.Sweep {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []*outbidv1.Sweep
	for _, id := range slices.Backward(c.order) {
		all = append(all, c.sweeps[id].view)
	}
	return all
}

func (c *fakeControl) Sweep(id string) (*outbidv1.Sweep, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, err := c.find(id)
	if err != nil {
		return nil, err
	}
	return s.view, nil
}

func (c *fakeControl) Trials(id string, from int32, n int) ([]*outbidv1.Trial, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, err := c.find(id)
	if err != nil {
		return nil, err
	}
	return page(s.trials, int(from), n), nil
}

func (c *fakeControl) BestTrials(id string, n, offset int) ([]*outbidv1.Trial, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, err := c.find(id)
	if err != nil {
		return nil, err
	}
	sorted := slices.SortedFunc(slices.Values(s.trials), func(a, b *outbidv1.Trial) int {
		return cmp.Or(cmp.Compare(b.GetBest(), a.GetBest()), cmp.Compare(a.GetNumber(), b.GetNumber()))
	})
	return page(sorted, offset, n), nil
}

func page(trials []*outbidv1.Trial, from, n int) []*outbidv1.Trial {
	from = min(from, len(trials))
	return trials[from:min(from+n, len(trials))]
}

func (c *fakeControl) Trial(id string, n int32) (*outbidv1.Trial, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, err := c.find(id)
	if err != nil {
		return nil, err
	}
	if int(n) >= len(s.trials) {
		return nil, fmt.Errorf("%w: there is no trial \"%s/%d\"", state.ErrNotFound, id, n)
	}
	return s.trials[n], nil
}

func (c *fakeControl) Superseded(string) (func(int32, *outbidv1.Report) bool, error) {
	return func(_ int32, r *outbidv1.Report) bool { return r.GetLeaseId() == 13 }, nil
}

func (c *fakeControl) Changes(id string, since uint64) ([]*outbidv1.Trial, uint64, <-chan struct{}, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.looks++
	s, err := c.find(id)
	if err != nil {
		return nil, 0, nil, err
	}
	var changed []*outbidv1.Trial
	for i, t := range s.trials {
		if s.changed[i] > since && since != JustVersion {
			changed = append(changed, t)
		}
	}
	return changed, s.version, s.next, nil
}

func (c *fakeControl) EachChange(id string, since uint64, f func(*outbidv1.Trial)) (uint64, <-chan struct{}, error) {
	trials, version, next, err := c.Changes(id, since)
	for _, t := range trials {
		f(t)
	}
	return version, next, err
}

func (c *fakeControl) Reports(
	_ context.Context, id string, trial *int32, f func(int32, *outbidv1.Report) error,
) error {
	c.mu.Lock()
	s, err := c.find(id)
	c.mu.Unlock()
	if err != nil {
		return err
	}
	for _, r := range s.reports {
		if trial == nil || *trial == r.GetTrial() {
			if err := f(r.GetTrial(), r.GetReport()); err != nil {
				return err
			}
		}
	}
	return nil
}

// report appends a batch with one report to the ledger.
func (c *fakeControl) report(t testing.TB, id string, trial int32, step int64) {
	t.Helper()
	events, err := proto.Marshal(&outbidv1.Events{Events: []*outbidv1.Event{{
		Kind: &outbidv1.Event_TrialReported{TrialReported: &outbidv1.TrialReported{
			Sweep: id, Trial: trial, Report: &outbidv1.Report{Step: step},
		}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.batches = append(c.batches, &outbidv1.Batch{Seq: uint64(len(c.batches) + 1), Events: events})
}

func (c *fakeControl) ReportsAfter(
	ctx context.Context, id string, n int64, f func(int32, *outbidv1.Report) error,
) error {
	return c.Ledger(ctx, 1, func(b *outbidv1.Batch) error {
		events := new(outbidv1.Events)
		if err := proto.Unmarshal(b.GetEvents(), events); err != nil {
			return err
		}
		for _, e := range events.GetEvents() {
			t := e.GetTrialReported()
			if t.GetSweep() != id {
				continue
			}
			if n--; n < 0 {
				if err := f(t.GetTrial(), t.GetReport()); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

func (c *fakeControl) Ledger(_ context.Context, from uint64, f func(*outbidv1.Batch) error) error {
	c.mu.Lock()
	batches := slices.Clone(c.batches)
	c.mu.Unlock()
	for _, b := range batches {
		if b.GetSeq() >= from {
			if err := f(b); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *fakeControl) Info() *outbidv1.GetServerInfoResponse {
	c.mu.Lock()
	defer c.mu.Unlock()
	return &outbidv1.GetServerInfoResponse{Version: "v0", Leader: !c.standby}
}

// fakeStore is a store in memory.
type fakeStore struct {
	mu   sync.Mutex
	data map[string][]byte
	fail error
	puts int
}

func (s *fakeStore) Put(_ context.Context, key string, r io.Reader, size int64) error {
	b, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail != nil {
		return s.fail
	}
	if int64(len(b)) != size {
		return fmt.Errorf("%d bytes instead of %d", len(b), size)
	}
	s.data[key] = b
	s.puts++
	return nil
}

func (s *fakeStore) Get(_ context.Context, key string) (io.ReadCloser, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, ok := s.data[key]
	if !ok {
		return nil, objects.ErrNotFound
	}
	return io.NopCloser(bytes.NewReader(b)), nil
}

func (s *fakeStore) GetRange(ctx context.Context, key string, _, _ int64) (io.ReadCloser, error) {
	return s.Get(ctx, key)
}

func (s *fakeStore) Stat(_ context.Context, key string) (objects.Info, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, ok := s.data[key]
	if !ok {
		return objects.Info{}, objects.ErrNotFound
	}
	return objects.Info{Key: key, Size: int64(len(b))}, nil
}

func (s *fakeStore) List(context.Context, string, func(objects.Info) bool) error { return nil }
func (s *fakeStore) Delete(_ context.Context, key string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.data, key)
	return nil
}
func (s *fakeStore) Check(context.Context) error { return nil }
func (s *fakeStore) String() string              { return "memory:" }

// fakeLogs is a list of chunks; a follower waits for more.
type fakeLogs struct {
	mu     sync.Mutex
	chunks []*outbidv1.LogChunk
	more   chan struct{}
}

func (l *fakeLogs) print(trial int32, text string) { l.printUnder(trial, 0, text) }

// printUnder adds a chunk under a lease.
func (l *fakeLogs) printUnder(trial int32, lease uint64, text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.chunks = append(l.chunks, &outbidv1.LogChunk{
		Fork: &outbidv1.ForkRef{Sweep: "digits-1", Trial: trial, LeaseId: lease}, Node: "n1", Stream: "stdout", Data: []byte(text),
	})
	close(l.more)
	l.more = make(chan struct{})
}

func (l *fakeLogs) Reserve(context.Context, string, int64) error { return nil }

// Tail returns more lines than requested, like the real one.
func (l *fakeLogs) Tail(_ context.Context, _, _ string, trial *int32, _ int) ([]*outbidv1.LogChunk, uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var found []*outbidv1.LogChunk
	for _, c := range l.chunks {
		if trial == nil || c.GetFork().GetTrial() == *trial {
			found = append(found, c)
		}
	}
	return found, uint64(len(l.chunks)), nil
}

func (l *fakeLogs) Read(
	ctx context.Context, _, _ string, trial *int32, from uint64, follow bool, f func(*outbidv1.LogChunk) error,
) error {
	for i := int(from); ; {
		l.mu.Lock()
		chunks, more := l.chunks[i:], l.more
		i = len(l.chunks)
		l.mu.Unlock()
		for _, c := range chunks {
			if trial == nil || c.GetFork().GetTrial() == *trial {
				if err := f(c); err != nil {
					return err
				}
			}
		}
		if !follow {
			return nil
		}
		select {
		case <-more:
		case <-ctx.Done():
			return fmt.Errorf("read logs: %w", ctx.Err())
		}
	}
}

// testServer is a server with its fakes and clients.
type testServer struct {
	*Server
	control *fakeControl
	store   *fakeStore
	logs    *fakeLogs
	// stop ends Serve, whose result is sent on done.
	stop context.CancelFunc
	done chan error
}

// serve starts a server on a free loopback port; set may change its configuration.
func serve(t *testing.T, set func(*Config)) *testServer {
	t.Helper()
	h := &testServer{
		control: newFakeControl(), store: &fakeStore{data: map[string][]byte{}},
		logs: &fakeLogs{more: make(chan struct{})}, done: make(chan error, 1),
	}
	cfg := Config{
		Control: h.control, Store: h.store, Logs: h.logs, Registry: prometheus.NewRegistry(), Addr: "127.0.0.1:0",
	}
	if set != nil {
		set(&cfg)
	}
	var err error
	if h.Server, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	h.stop = cancel
	go func() { h.done <- h.Serve(ctx); close(h.done) }()
	t.Cleanup(func() {
		cancel()
		if err := <-h.done; err != nil {
			t.Error(err)
		}
	})
	return h
}

// dial returns a gRPC client that sends token unless it is empty.
func (h *testServer) dial(t *testing.T, token string) outbidv1.OutbidServiceClient {
	t.Helper()
	opts := []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
	if token != "" {
		opts = append(opts, grpc.WithPerRPCCredentials(bearer(token)))
	}
	conn, err := grpc.NewClient(h.Addr(), opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return outbidv1.NewOutbidServiceClient(conn)
}

type bearer string

func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(b)}, nil
}

func (b bearer) RequireTransportSecurity() bool { return false }

// awaitActor waits for a command of an actor.
func (c *fakeControl) awaitActor(t *testing.T, actor string) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		c.mu.Lock()
		found := slices.Contains(c.actors, actor)
		c.mu.Unlock()
		if found {
			return
		}
		select {
		case <-tick.C:
		case <-time.After(time.Minute):
			t.Fatalf("no command of %s", actor)
		}
	}
}
