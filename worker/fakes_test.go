package worker

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/outbid-dev/outbid/orchestrator/objects"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
	"github.com/outbid-dev/outbid/worker/inventory"
)

// orch is a small orchestrator: it takes in uplinks as the protocol says, writes down what happened, and sends the
// orders that a test sets.
type orch struct {
	send func(*outbidv1.Orders)

	mu          sync.Mutex
	boot        string
	boots       int
	knows       bool
	seen        uint64
	generation  uint64
	term        uint64
	lease       time.Duration
	mute        bool // says nothing
	deaf        bool // hears nothing
	assignments []*outbidv1.Assignment
	taken       map[uint64]uint64
	forks       []*outbidv1.ForkStatus
	info        *outbidv1.NodeInfo
	proof       []byte
	leaving     bool
	uplinks     int
	messages    []*outbidv1.UplinkMessage
	repeated    int
	changed     chan struct{}
}

func newOrch(send func(*outbidv1.Orders)) *orch {
	return &orch{send: send, lease: 10 * time.Second, term: 1, taken: map[uint64]uint64{}, changed: make(chan struct{})}
}

func (o *orch) uplink(up *outbidv1.Uplink) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.deaf {
		return
	}
	o.uplinks++
	if up.GetBoot() != o.boot {
		if up.GetInfo() == nil {
			o.generation++
			o.send(&outbidv1.Orders{Node: up.GetNode(), Boot: up.GetBoot(), Generation: o.generation, Term: o.term, Hello: true})
			return
		}
		o.boot, o.seen, o.info, o.proof = up.GetBoot(), 0, up.GetInfo(), up.GetProof()
		o.boots++
	}
	o.forks, o.leaving = up.GetForks(), up.GetLeaving()
	o.taken = map[uint64]uint64{}
	for _, f := range up.GetForks() {
		o.taken[f.GetFork().GetEpoch()] = f.GetVersion()
	}
	for i, m := range up.GetMessages() {
		switch seq := up.GetFirstSeq() + uint64(i); {
		case seq <= o.seen:
			o.repeated++
		case seq == o.seen+1:
			o.seen = seq
			o.messages = append(o.messages, m)
		}
	}
	o.order()
	close(o.changed)
	o.changed = make(chan struct{})
}

// order sends orders; the caller holds the lock.
func (o *orch) order() {
	if o.mute || o.boot == "" {
		return
	}
	o.generation++
	orders := &outbidv1.Orders{
		Node: "n1", Boot: o.boot, Generation: o.generation, Term: o.term, AckedSeq: o.seen, Lease: durationpb.New(o.lease),
	}
	for _, a := range o.assignments {
		short := &outbidv1.Assignment{
			Fork: a.GetFork(), Version: a.GetVersion(), Verdict: a.GetVerdict(), UntilStep: a.GetUntilStep(), Reason: a.GetReason(),
		}
		if o.taken[a.GetFork().GetEpoch()] == 0 {
			short.Body = a.GetBody()
		}
		orders.Assignments = append(orders.Assignments, short)
	}
	o.send(orders)
}

// with changes something under the lock and sends orders.
func (o *orch) with(change func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	change()
	o.order()
}

// assign adds an assignment.
func (o *orch) assign(a *outbidv1.Assignment) {
	o.with(func() { o.assignments = append(o.assignments, a) })
}

// change directs a fork.
func (o *orch) change(epoch uint64, verdict outbidv1.Verdict, until int64) {
	o.with(func() {
		for _, a := range o.assignments {
			if a.GetFork().GetEpoch() == epoch {
				a.Version++
				a.Verdict, a.UntilStep = verdict, until
			}
		}
	})
}

// drop takes a fork off the orders.
func (o *orch) drop(epoch uint64) {
	o.with(func() {
		o.assignments = slices.DeleteFunc(o.assignments, func(a *outbidv1.Assignment) bool { return a.GetFork().GetEpoch() == epoch })
	})
}

// text writes down the messages of a fork, reports summed up.
func (o *orch) text(epoch uint64) string {
	var b strings.Builder
	for _, m := range o.messages {
		if m.GetFork().GetEpoch() == epoch {
			fmt.Fprintf(&b, "%s\n", describe(m))
		}
	}
	return b.String()
}

func describe(m *outbidv1.UplinkMessage) string {
	switch k := m.GetKind().(type) {
	case *outbidv1.UplinkMessage_Began:
		return fmt.Sprintf("began %d", k.Began.GetFromStep())
	case *outbidv1.UplinkMessage_Report:
		return fmt.Sprintf("report %d", k.Report.GetStep())
	case *outbidv1.UplinkMessage_Reached:
		return fmt.Sprintf("reached %d", k.Reached.GetStep())
	case *outbidv1.UplinkMessage_Saved:
		return fmt.Sprintf("saved %d %s", k.Saved.GetStep(), k.Saved.GetKey())
	case *outbidv1.UplinkMessage_Ended:
		e := k.Ended
		text := fmt.Sprintf("ended %s at %d", strings.TrimPrefix(e.GetOutcome().String(), "FORK_OUTCOME_"), e.GetStep())
		if e.GetFailure() != 0 {
			text += " " + strings.TrimPrefix(e.GetFailure().String(), "FAILURE_KIND_")
		}
		if e.GetDetail() != "" {
			text += ": " + e.GetDetail()
		}
		return text
	case *outbidv1.UplinkMessage_Note:
		return "note " + k.Note.GetText()
	}
	return "?"
}

// await waits until cond holds.
func (o *orch) await(t *testing.T, what string, cond func() bool) {
	t.Helper()
	deadline := time.After(patience)
	for {
		o.mu.Lock()
		ok, changed := cond(), o.changed
		o.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			o.mu.Lock()
			defer o.mu.Unlock()
			var all []string
			for _, m := range o.messages {
				if m.GetReport() == nil {
					all = append(all, fmt.Sprintf("%d: %s", m.GetFork().GetEpoch(), describe(m)))
				}
			}
			t.Fatalf("never: %s; heard %d messages:\n%s\nforks %v", what, len(o.messages), strings.Join(all, "\n"), o.forks)
		}
	}
}

// awaitText waits until the messages of a fork contain each of the texts.
func (o *orch) awaitText(t *testing.T, epoch uint64, texts ...string) {
	t.Helper()
	for _, text := range texts {
		o.await(t, fmt.Sprintf("%q of fork %d", text, epoch), func() bool { return strings.Contains(o.text(epoch), text) })
	}
}

// heard returns what a fork said.
func (o *orch) heard(epoch uint64) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text(epoch)
}

// fakeBus is a bus in memory.
type fakeBus struct {
	orch *orch

	mu      sync.Mutex
	handler func(*outbidv1.Orders)
	cut     bool
	ups     chan *outbidv1.Uplink
	again   func()
	logs    []string
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
	b.mu.Lock()
	cut := b.cut
	b.mu.Unlock()
	if cut {
		return io.ErrClosedPipe
	}
	b.ups <- up
	return nil
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
	b.logs = append(b.logs, fmt.Sprintf("%d %s", c.GetFork().GetEpoch(), c.GetData()))
	return nil
}

// stuckStore fails as told.
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

// fakeTraining is training code that a test moves.
type fakeTraining struct {
	fork   *fork
	start  error
	orders chan string
	saves  chan string
	killed chan struct{}
	once   sync.Once
}

func (x *fakeTraining) Direct(v outbidv1.Verdict, until int64, _ string) {
	x.orders <- fmt.Sprintf("%s %d", strings.TrimPrefix(v.String(), "VERDICT_"), until)
}

func (x *fakeTraining) Acked(seq uint64) { x.orders <- fmt.Sprintf("acked %d", seq) }

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
	if err := os.MkdirAll(x.fork.scratch(), 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(x.fork.scratch(), fmt.Sprint("save-", step))
	if err := os.WriteFile(path, []byte("weights"), 0o600); err != nil {
		t.Fatal(err)
	}
	metric := 0.5
	x.fork.Saved(&outbidv1.ProcessSaved{Fork: x.fork.ref, Path: path, Step: step, Metric: &metric})
}

func (x *fakeTraining) end(o outbidv1.ForkOutcome) { x.fork.Ended(&outbidv1.ForkEnded{Outcome: o}) }

// rig is a worker with everything around it faked.
type rig struct {
	bus    *fakeBus
	store  *stuckStore
	starts chan *fakeTraining
	fail   error
	block  bool
	agent  *agent
	stop   context.CancelFunc
	done   chan struct{}
}

func newRig(t *testing.T) *rig {
	t.Helper()
	dir, err := objects.OpenDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{
		bus: newFakeBus(t), store: &stuckStore{Store: dir}, starts: make(chan *fakeTraining, 100), done: make(chan struct{}),
	}
	cfg := Config{
		Node: "n1", Boot: "b", Bus: r.bus, Store: r.store, ClusterKey: []byte("key"), Dir: t.TempDir(),
		Logger: slog.New(slog.DiscardHandler), Machine: machine(4),
	}
	if err := cfg.check(); err != nil {
		t.Fatal(err)
	}
	r.agent = newAgent(cfg)
	r.agent.train = r.train
	ctx, stop := context.WithCancel(t.Context())
	r.stop = stop
	go func() {
		defer close(r.done)
		if err := r.agent.serve(ctx); err != nil {
			t.Error(err)
		}
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
	f.target()
	x := &fakeTraining{
		fork: f, orders: make(chan string, 100), saves: make(chan string, 100), killed: make(chan struct{}),
	}
	r.starts <- x
	return x, nil
}

func machine(n int) inventory.Machine {
	m := inventory.Machine{CPUs: n, MemoryBytes: 1 << 30}
	for i := range n {
		m.Devices = append(m.Devices, &outbidv1.Device{Index: int32(i), Type: "cpu"})
	}
	return m
}

func assignment(epoch uint64, until int64, devices ...int32) *outbidv1.Assignment {
	return &outbidv1.Assignment{
		Fork: &outbidv1.ForkRef{Sweep: "s-1", Trial: int32(epoch), Epoch: epoch}, Version: 1,
		Verdict: outbidv1.Verdict_VERDICT_TRAIN, UntilStep: until,
		Body: &outbidv1.AssignmentBody{ConfigJson: `{}`, Devices: devices, Metric: "loss", Mode: "min"},
	}
}
