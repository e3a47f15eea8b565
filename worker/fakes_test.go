package worker

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/outbid-dev/outbid/orchestrator/bus"
	"github.com/outbid-dev/outbid/orchestrator/objects"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
	"github.com/outbid-dev/outbid/worker/inventory"
)

// fakeBus is a bus in memory.
type fakeBus struct {
	orch *orch

	mu      sync.Mutex
	handler func(*outbidv1.Orders)
	cut     bool
	ups     chan *outbidv1.Uplink
	again   func()
	logs    []string
	// most is how many bytes an uplink may have; 0 means 1 MiB. refuses reports whether an uplink cannot be sent; nil
	// refuses none.
	most    int
	refuses func(up *outbidv1.Uplink) bool
	refused int
}

func newFakeBus(t *testing.T) *fakeBus {
	b := &fakeBus{ups: make(chan *outbidv1.Uplink, 1000)}
	b.orch = newOrch(func(o *outbidv1.Orders) {
		b.mu.Lock()
		handler, cut := b.handler, b.cut
		b.mu.Unlock()
		if handler != nil && !cut {
			handler(o)
		}
	})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for up := range b.ups {
			b.orch.uplink(up)
		}
	}()
	t.Cleanup(func() {
		close(b.ups)
		<-done
	})
	return b
}

func (b *fakeBus) setCut(cut bool) {
	b.mu.Lock()
	b.cut = cut
	again := b.again
	b.mu.Unlock()
	if !cut && again != nil {
		again()
	}
}

func (b *fakeBus) Publish(up *outbidv1.Uplink) error {
	most := b.MaxUplink()
	b.mu.Lock()
	cut := b.cut
	data, err := proto.Marshal(up)
	if err != nil || len(data) > most || b.refuses != nil && b.refuses(up) {
		b.refused++
		err = fmt.Errorf("%w: %d bytes, of %d at most: %w", bus.ErrRefused, len(data), most, err)
	}
	b.mu.Unlock()
	switch {
	case cut:
		return bus.ErrNotConnected
	case err != nil:
		return err
	}
	b.ups <- up
	return nil
}

func (b *fakeBus) MaxUplink() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.most > 0 {
		return b.most
	}
	return 1 << 20
}

// with changes something under the lock.
func (b *fakeBus) with(change func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change()
}

func (b *fakeBus) Subscribe(_ string, f func(*outbidv1.Orders)) (func() error, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.handler = f
	return func() error {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.handler = nil
		return nil
	}, nil
}

func (b *fakeBus) Reconnected(f func()) func() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.again = f
	return func() {}
}

func (b *fakeBus) Log(c *outbidv1.LogChunk) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.logs = append(b.logs, fmt.Sprintf("%d %s", c.GetFork().GetLeaseId(), c.GetData()))
	return nil
}

// stuckStore fails with the error that a test sets.
type stuckStore struct {
	objects.Store
	mu  sync.Mutex
	err error
}

func (s *stuckStore) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

func (s *stuckStore) Put(ctx context.Context, key string, r io.Reader, size int64) error {
	s.mu.Lock()
	err := s.err
	s.mu.Unlock()
	if err != nil {
		return err
	}
	return s.Store.Put(ctx, key, r, size)
}

func (s *stuckStore) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	s.mu.Lock()
	err := s.err
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return s.Store.Get(ctx, key)
}

func (s *stuckStore) GetRange(ctx context.Context, key string, from, n int64) (io.ReadCloser, error) {
	s.mu.Lock()
	err := s.err
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return s.Store.GetRange(ctx, key, from, n)
}

// fakeTraining is training code that a test controls.
type fakeTraining struct {
	fork   *fork
	orders chan string
	saves  chan string
	killed chan struct{}
	once   sync.Once
	// stays is set if the code cannot be detached; over is the function to call after it was detached.
	stays bool
	over  chan func()
}

func (x *fakeTraining) Detach(over func()) bool {
	if x.stays {
		return false
	}
	x.over <- over
	return true
}

func (x *fakeTraining) Direct(v outbidv1.Verdict, until int64, _ string) {
	x.orders <- fmt.Sprintf("%s %d", strings.TrimPrefix(v.String(), "VERDICT_"), until)
}

func (x *fakeTraining) Acked(seq uint64) { x.orders <- fmt.Sprintf("acked %d", seq) }

func (x *fakeTraining) ShardDone(done *outbidv1.SaveDone) {
	x.saves <- fmt.Sprintf("shard %d %d %s", done.GetShard().GetRank(), done.GetStep(), done.GetError())
}

func (x *fakeTraining) SaveDone(step int64, fail string) { x.saves <- fmt.Sprintf("%d %s", step, fail) }

func (x *fakeTraining) Kill() {
	x.once.Do(func() {
		close(x.killed)
		go x.fork.Ended(&outbidv1.ForkEnded{Outcome: outbidv1.ForkOutcome_FORK_OUTCOME_FAILED, Detail: "killed"})
	})
}

func (x *fakeTraining) report(seq uint64) { x.fork.Reports([]*outbidv1.Report{report(seq)}) }

func (x *fakeTraining) save(t *testing.T, step int64) {
	t.Helper()
	if err := os.MkdirAll(x.fork.files.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(x.fork.files.dir, fmt.Sprint("save-", step))
	if err := os.WriteFile(path, []byte("weights"), 0o600); err != nil {
		t.Fatal(err)
	}
	metric := 0.5
	x.fork.Saved(&outbidv1.ProcessSaved{Fork: x.fork.ref, Path: path, Step: step, Metric: &metric})
}

func (x *fakeTraining) end(o outbidv1.ForkOutcome) { x.fork.Ended(&outbidv1.ForkEnded{Outcome: o}) }

// rig is a worker with a fake environment.
type rig struct {
	bus    *fakeBus
	store  *stuckStore
	starts chan *fakeTraining
	fail   error
	block  bool
	hold   chan struct{} // the starter waits for it once the training code runs
	loop   *workerLoop
	stop   context.CancelFunc
	done   chan struct{}
}

func newRig(t *testing.T) *rig {
	t.Helper()
	return newRigOf(t, func(err error) {
		if err != nil {
			t.Error(err)
		}
	})
}

// newRigOf returns a rig that passes the worker's error to ended.
func newRigOf(t *testing.T, ended func(error)) *rig {
	t.Helper()
	return newRigLogging(t, slog.DiscardHandler, ended)
}

// record collects log lines.
type record struct {
	mu   sync.Mutex
	text strings.Builder
}

func (r *record) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(p)
}

// count returns how many log lines contain a text.
func (r *record) count(what string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Count(r.text.String(), what)
}

// newRigLogging returns a rig whose worker logs to a handler. Each function in set may change the worker before it
// serves.
func newRigLogging(t *testing.T, to slog.Handler, ended func(error), set ...func(*workerLoop)) *rig {
	t.Helper()
	dir, err := objects.OpenDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{
		bus: newFakeBus(t), store: &stuckStore{Store: dir}, starts: make(chan *fakeTraining, 100), done: make(chan struct{}),
	}
	cfg := Config{
		Node: "n1", Boot: "b", Bus: r.bus, Store: Direct(r.store), Dir: t.TempDir(),
		Logger: slog.New(to), Machine: machine(4),
	}
	if err := cfg.check(); err != nil {
		t.Fatal(err)
	}
	r.loop = newWorkerLoop(cfg)
	r.loop.train = r.train
	for _, change := range set {
		change(r.loop)
	}
	ctx, stop := context.WithCancel(t.Context())
	r.stop = stop
	go func() {
		defer close(r.done)
		ended(r.loop.serve(ctx))
	}()
	t.Cleanup(func() {
		stop()
		<-r.done
	})
	return r
}

func (r *rig) train(ctx context.Context, f *fork) (training, error) {
	if r.block {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if r.fail != nil {
		return nil, r.fail
	}
	f.orders.target()
	x := &fakeTraining{
		fork: f, orders: make(chan string, 100), saves: make(chan string, 100), killed: make(chan struct{}), over: make(chan func(), 1),
	}
	r.starts <- x
	if r.hold != nil {
		<-r.hold
	}
	return x, nil
}

func machine(n int) inventory.Machine {
	m := inventory.Machine{CPUs: n, MemoryBytes: 1 << 30}
	for i := range n {
		m.Devices = append(m.Devices, &outbidv1.Device{Index: int32(i), Type: "cpu"})
	}
	return m
}

func assignment(leaseID uint64, until int64, devices ...int32) *outbidv1.Assignment {
	return &outbidv1.Assignment{
		Fork: &outbidv1.ForkRef{Sweep: "s-1", Trial: int32(leaseID), LeaseId: leaseID}, Version: 1,
		Verdict: outbidv1.Verdict_VERDICT_TRAIN, UntilStep: until,
		Body: &outbidv1.AssignmentBody{ConfigJson: `{}`, Devices: devices, Metric: "loss", Mode: "min", Tenant: "vision"},
	}
}
