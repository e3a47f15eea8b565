package worker

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/outbid-dev/outbid/orchestrator/bus"
	"github.com/outbid-dev/outbid/orchestrator/identity"
	"github.com/outbid-dev/outbid/orchestrator/objects"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

const blobSum = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08" // of "test"

// site is a NATS server, an object store and a small orchestrator, with workers over real connections.
type site struct {
	server *bus.Server
	keys   *identity.Keys
	nc     *nats.Conn
	logs   *bus.Logs
	store  *objects.Dir
	orch   *orch
}

func newSite(t testing.TB) *site {
	t.Helper()
	keys, err := identity.MakeKeys(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	server, err := bus.StartServer(bus.ServerConfig{Dir: t.TempDir(), Keys: keys})
	if err != nil {
		t.Fatal(err)
	}
	s := &site{server: server, keys: keys}
	admin, err := keys.Orchestrator()
	if err != nil {
		t.Fatal(err)
	}
	if s.nc, err = bus.Connect(t.Context(), bus.ConnConfig{Server: server, User: admin}); err != nil {
		t.Fatal(err)
	}
	if s.logs, err = bus.OpenLogs(t.Context(), s.nc, bus.LogsConfig{}); err != nil {
		t.Fatal(err)
	}
	if err := s.logs.Reserve(t.Context(), "vision", 64<<20); err != nil {
		t.Fatal(err)
	}
	keepLogs(t, s.logs)
	if s.store, err = objects.OpenDir(t.TempDir()); err != nil {
		t.Fatal(err)
	}
	if err := s.store.Put(t.Context(), "blobs/"+blobSum, strings.NewReader("test"), 4); err != nil {
		t.Fatal(err)
	}
	s.orch = newOrch(func(o *outbidv1.Orders) {
		if err := bus.PublishOrders(s.nc, signFunctions(t, keys, o), keys.Orders()); err != nil {
			t.Log("orders:", err)
		}
	})
	sub, err := bus.SubscribeUplinks(s.nc, nil, s.orch.uplink)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, err := range []error{sub.Stop(), s.logs.Close()} {
			if err != nil {
				t.Error(err)
			}
		}
		s.nc.Close()
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// orders returns the public key of a test's server.
func orders(keys *identity.Keys) *identity.Verifier {
	by, err := identity.NewVerifier(keys.Orders().Public())
	if err != nil {
		panic(err)
	}
	return by
}

// link returns the bus of a worker that trusts only its server.
func link(who *identity.Credentials, nc *nats.Conn, logs *bus.Logs) Bus {
	by, err := identity.NewVerifier(who.OrdersKey)
	if err != nil {
		panic(err)
	}
	return NATS(Link{NC: nc, Logs: logs, Who: who, Check: by.Message})
}

// signFunctions signs the functions in orders, except those that a test has signed already.
func signFunctions(t testing.TB, keys *identity.Keys, o *outbidv1.Orders) *outbidv1.Orders {
	t.Helper()
	o = proto.CloneOf(o)
	for _, a := range o.GetAssignments() {
		fn := a.GetBody().GetWorkload().GetFunction()
		if fn == nil || fn.GetSignature() != nil {
			continue
		}
		fn.Signature = keys.Orders().SignFunction(fn.GetBlob())
	}
	return o
}

func testConfig(dir string, bus Bus, store objects.Store, keys *identity.Keys) Config {
	return Config{
		Node: "n1", Machine: machine(4), Bus: bus, Store: Direct(store), Server: orders(keys), Dir: dir,
		FunctionCommand: []string{os.Args[0]}, Logger: slog.New(slog.DiscardHandler),
	}
}

// work runs a worker until the test ends, or until the returned function is called.
func (s *site) work(t testing.TB, url string, change func(*Config)) (stop func()) {
	t.Helper()
	return s.workUntil(t, url, change, func(err error) {
		if err != nil {
			t.Error(err)
		}
	})
}

// workUntil is like work, and passes on the worker's error.
func (s *site) workUntil(t testing.TB, url string, change func(*Config), ended func(error)) (stop func()) {
	t.Helper()
	who, err := s.keys.Worker("n1", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	conn := bus.ConnConfig{URL: url, User: who}
	if url == "" {
		conn.Server = s.server
	}
	nc, err := bus.Connect(t.Context(), conn)
	if err != nil {
		t.Fatal(err)
	}
	logs, err := bus.AttachLogs(nc, nil)
	if err != nil {
		t.Fatal(err)
	}
	cfg := testConfig(t.TempDir(), link(who, nc, logs), s.store, s.keys)
	if change != nil {
		change(&cfg)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		ended(Run(ctx, cfg))
	}()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			<-done
			_ = logs.Close() // the connection may be cut
			nc.Close()
		})
	}
	t.Cleanup(stop)
	return stop
}

// function returns an assignment of a function; what selects its behaviour.
func function(leaseID uint64, what string, until int64, devices ...int32) *outbidv1.Assignment {
	a := assignment(leaseID, until, devices...)
	a.Body.ConfigJson = fmt.Sprintf("%q", what)
	a.Body.Workload = &outbidv1.WorkloadBody{Kind: &outbidv1.WorkloadBody_Function{Function: &outbidv1.FunctionBody{
		Blob: blobSum, Env: map[string]string{"WORD": "yes"},
	}}}
	return a
}

func script(leaseID uint64, text string, until int64, devices ...int32) *outbidv1.Assignment {
	a := assignment(leaseID, until, devices...)
	a.Body.Workload = &outbidv1.WorkloadBody{Kind: &outbidv1.WorkloadBody_Program{Program: &outbidv1.ProgramBody{
		Argv: []string{"sh", "-ec", text}, Grace: durationpb.New(5 * time.Second),
	}}}
	return a
}

// last returns the newest checkpoint of a fork.
func (o *orch) last(leaseID uint64) *outbidv1.Checkpoint {
	o.mu.Lock()
	defer o.mu.Unlock()
	var c *outbidv1.Checkpoint
	for _, m := range o.messages {
		if m.GetFork().GetLeaseId() == leaseID && m.GetSaved() != nil {
			c = m.GetSaved()
		}
	}
	return c
}

// metric returns a metric of a fork's first report.
func (o *orch) metric(leaseID uint64, name string) float64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, m := range o.messages {
		if m.GetFork().GetLeaseId() == leaseID && m.GetReport() != nil {
			return m.GetReport().GetMetrics()[name]
		}
	}
	return 0
}

func (s *site) awaitLog(t *testing.T, trial int32, text string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var all strings.Builder
	err := s.logs.Read(ctx, "vision", "s-1", &trial, 0, true, func(c *outbidv1.LogChunk) error {
		all.Write(c.GetData())
		if strings.Contains(all.String(), text) {
			return io.EOF
		}
		return nil
	})
	if !strings.Contains(all.String(), text) {
		t.Fatalf("log of trial %d is %q, want %q: %v", trial, all.String(), text, err)
	}
}

func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.work(t, "", nil)
	s.pauseAndResume(t)
}

func (s *site) pauseAndResume(t *testing.T) {
	t.Helper()
	o := s.orch
	o.assign(function(1, "train", 2, 0))
	o.awaitText(t, 1, "reached 2")
	o.change(1, pause, 2)
	o.awaitText(t, 1, "ended ORDERED at 2")
	o.equal(t, 1, "began 0\nreport 1\nreport 2\nsaved 2 checkpoints/s-1/1/000000000002-1.safetensors\nreached 2\nended ORDERED at 2\n")
	a := function(2, "train", 4, 0)
	a.Body.Start = o.last(1)
	o.with(func() { o.assignments = []*outbidv1.Assignment{a} })
	o.awaitText(t, 2, "reached 4")
	o.change(2, train, 5)
	o.awaitText(t, 2, "reached 5")
	o.equal(t, 2, "began 2\nreport 3\nreport 4\nsaved 4 checkpoints/s-1/2/000000000004-2.safetensors\nreached 4\n"+
		"report 5\nsaved 5 checkpoints/s-1/2/000000000005-2.safetensors\nreached 5\n")
	s.awaitLog(t, 2, "starts from weights of 2\n")
	if o.metric(1, "pid") != o.metric(2, "pid") {
		t.Error("the process was not reused")
	}
	o.drop(2)
	o.awaitText(t, 2, "ended ORDERED at 5")
}

func TestFailures(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.work(t, "", nil)
	o := s.orch
	damaged := function(6, "train", 3, 1)
	damaged.Body.Start = &outbidv1.Checkpoint{Key: "blobs/" + blobSum, Step: 2, Sha256: strings.Repeat("0", 64)}
	missing := function(7, "train", 3, 1)
	missing.Body.Start = &outbidv1.Checkpoint{Key: "checkpoints/none.safetensors", Step: 2}
	forged := function(8, "train", 3, 1)
	forged.Body.Workload.GetFunction().Signature = make([]byte, 64)
	noBlob := function(9, "train", 3, 1)
	noBlob.Body.Workload.GetFunction().Blob = strings.Repeat("0", 64)
	hangs := function(4, "hang", 3, 3)
	hangs.Body.HangTimeout = durationpb.New(2 * time.Second)
	for _, tc := range []struct {
		a    *outbidv1.Assignment
		want []string
	}{
		{function(1, "die", 3, 0), []string{"report 2", "ended FAILED at 2 SIGNAL: killed by signal 9: perhaps out of memory"}},
		{function(2, "error", 3, 1), []string{"ended FAILED at 0 ERROR: ValueError: bad configuration"}},
		{function(3, "nan", 3, 2), []string{"report 1", "ended FINISHED at 1"}},
		{hangs, []string{"report 2", "ended FAILED at 2 HANG: sent nothing for 2s"}},
		{script(5, `echo '{"loss": NaN}' >> $OUTBID_REPORT; echo oh dear >&2; exit 3`, 3, 0), []string{
			"report 1", "ended FAILED at 1 ERROR: exited with code 3: oh dear",
		}},
		{damaged, []string{"ended FAILED at 2 CHECKPOINT: the checkpoint of step 2", "is damaged: its 4 bytes have SHA-256 9f86d081884c, not 000000000000"}},
		{missing, []string{"ended FAILED at 2 CHECKPOINT: the checkpoint of step 2 (checkpoints/none.safetensors) is not in "}},
		{forged, []string{"ended FAILED at 0 START: the function is not signed by the server"}},
		{noBlob, []string{"ended FAILED at 0 START: the function cannot be fetched: blobs/000", "is not in"}},
		{script(10, "", 3), []string{"ended FINISHED at 0"}},
		{assignment(11, 3), []string{"ended FAILED at 0 START: this worker () does not know the kind of work"}},
	} {
		o.assign(tc.a)
		o.awaitText(t, tc.a.GetFork().GetLeaseId(), tc.want...)
		o.drop(tc.a.GetFork().GetLeaseId())
	}
	if v := o.metric(3, "loss"); !math.IsNaN(v) {
		t.Errorf("NaN became %v", v)
	}
}

func TestWithoutKeyNoFunctions(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.work(t, "", func(c *Config) { c.Server = nil })
	a := function(1, "train", 3, 1)
	s.orch.assign(a)
	s.orch.awaitText(t, 1, "START: this worker runs no functions")
}

// Training code sees only the variables that it needs or was given, not the rest of the worker's environment. This
// holds for functions, also in a warm process, and for programs.
func TestEnvironment(t *testing.T) {
	t.Setenv("OUTBID_SECRET_OF_TEST", "secret")
	t.Setenv("PLANTED_SECRET", "password of a store")
	t.Setenv("PASSED_WORD", "hello")
	s := newSite(t)
	s.work(t, "", func(c *Config) {
		c.PassEnv = []string{"PASSED_*", "*SECRET_OF_TEST"}
		for i, d := range c.Machine.Devices {
			d.Type, d.Uuid = "h200", fmt.Sprint("GPU-", i)
		}
	})
	const want = "CUDA_VISIBLE_DEVICES=GPU-1,GPU-3\nOMP_NUM_THREADS=2\nMKL_NUM_THREADS=2\nWORD=yes\nOUTBID_SECRET_OF_TEST=\n" +
		"PLANTED_SECRET=\nPASSED_WORD=hello\n"
	s.orch.assign(function(1, "environment", 0, 1, 3))
	s.orch.awaitText(t, 1, "ended FINISHED at 1")
	s.awaitLog(t, 1, want)
	s.orch.assign(function(2, "environment", 0, 1, 3))
	s.orch.awaitText(t, 2, "ended FINISHED at 1")
	s.awaitLog(t, 2, want)
	s.orch.assign(script(3, `echo "[$PLANTED_SECRET][$OUTBID_SECRET_OF_TEST][$PASSED_WORD][$HOME][$OPENBLAS_NUM_THREADS]"`, 0, 1))
	s.orch.awaitText(t, 3, "ended FINISHED")
	s.awaitLog(t, 3, "[][][hello]["+os.Getenv("HOME")+"][1]\n")
}

func TestProgramGoesOn(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.work(t, "", nil)
	s.programGoesOn(t)
}

func (s *site) programGoesOn(t *testing.T) {
	t.Helper()
	o := s.orch
	text := `step=$OUTBID_START_STEP; test -z "$OUTBID_CHECKPOINT_IN" || cat "$OUTBID_CHECKPOINT_IN"
while [ $step -lt $OUTBID_UNTIL_STEP ]; do step=$((step+1)); echo "{\"step\":$step,\"loss\":1}" >> $OUTBID_REPORT; done
echo "at $step" > $OUTBID_CHECKPOINT_OUT`
	o.assign(script(1, text, 2, 0))
	o.awaitText(t, 1, "reached 2")
	o.change(1, train, 3)
	o.awaitText(t, 1, "reached 3")
	o.change(1, pause, 3)
	o.awaitText(t, 1, "ended ORDERED at 3")
	o.equal(t, 1, "began 0\nreport 1\nreport 2\nsaved 2 checkpoints/s-1/1/000000000002-1.ckpt\nreached 2\n"+
		"report 3\nsaved 3 checkpoints/s-1/1/000000000003-1.ckpt\nreached 3\nended ORDERED at 3\n")
	s.awaitLog(t, 1, "at 2\n")
	a := script(2, text, 4, 0)
	a.Body.Start = o.last(1)
	o.with(func() { o.assignments = []*outbidv1.Assignment{a} })
	o.awaitText(t, 2, "began 3\nreport 4\nsaved 4 ", "reached 4")
	s.awaitLog(t, 2, "at 3\n")
}

// keepLogs stores the output of trials as the orchestrator does.
func keepLogs(t testing.TB, logs *bus.Logs) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- logs.Keep(ctx, func(*outbidv1.LogChunk) bool { return true }) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// refusing is a store that refuses reads.
type refusing struct{ objects.Access }

func (refusing) Get(context.Context, string) (io.ReadCloser, error) {
	return nil, fmt.Errorf("%w: the node holds no lease 1", objects.ErrRefused)
}

// A checkpoint that a node may not read, for example because the orchestrator is behind, is not treated as damaged:
// its trial would lose it and continue from the one before. The function's sweep is not to blame either.
func TestAStoreThatRefusesIsNotTheTrialsFault(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.work(t, "", func(c *Config) {
		real := c.Store
		c.Store = func(f *outbidv1.ForkRef) objects.Access { return refusing{real(f)} }
	})
	resumed := function(1, "train", 3, 1)
	resumed.Body.Start = &outbidv1.Checkpoint{Key: "checkpoints/s-1/1/000000000002-1.safetensors", Step: 2}
	for want, a := range map[string]*outbidv1.Assignment{
		"ended FAILED at 2 NODE: the checkpoint of step 2 cannot be read on node ": resumed,
		"ended FAILED at 0 NODE: the function cannot be read on node ":             function(2, "train", 3, 1),
	} {
		s.orch.assign(a)
		s.orch.awaitText(t, a.GetFork().GetLeaseId(), want)
		s.orch.drop(a.GetFork().GetLeaseId())
	}
}
