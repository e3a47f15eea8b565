package endtoend

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/outbid-dev/outbid/orchestrator/pluginhost"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
	"github.com/outbid-dev/outbid/worker"
)

// binary and labBinary are built once for all tests.
var (
	binary    = builtOnce("OUTBID_BIN", "../..")                 //nolint:gochecknoglobals // one build for all tests
	labBinary = builtOnce("OUTBID_LAB_BIN", "../lab/outbid-lab") //nolint:gochecknoglobals // one build for all tests
)

// builtOnce returns a function that returns the program that an environment variable names, or builds it.
func builtOnce(env, source string) func() (string, error) {
	return sync.OnceValues(func() (string, error) {
		_ = os.Getenv("OUTBID_TEST_PROGRAMS") // so that go test uses no cached result of another build
		if path := os.Getenv(env); path != "" {
			return filepath.Abs(path)
		}
		dir, err := os.MkdirTemp("", "outbid-e2e-")
		if err != nil {
			return "", err
		}
		path := filepath.Join(dir, "outbid")
		out, err := exec.Command("go", "build", "-o", path, source).CombinedOutput()
		if err != nil {
			return "", fmt.Errorf("building the binary: %w\n%s", err, out)
		}
		return path, nil
	})
}

// inLab is a test whose commands are run by outbid-lab.
type inLab struct{ testing.TB }

// withBinary is a test whose commands are run by another build of outbid.
type withBinary struct {
	testing.TB
	path string
}

// patience limits every wait. It is generous because test machines are busy.
const patience = 2 * time.Minute

// TestMain also acts as a training program and a tuner plugin, so that tests need only this binary.
func TestMain(m *testing.M) {
	if err := toAveragesCPUs(); err != nil {
		fmt.Fprintln(os.Stderr, err) // the benchmark then fails with it
		os.Exit(1)
	}
	if worker.AverageMain() {
		os.Exit(0)
	}
	if dir := os.Getenv(plainOf); dir != "" {
		fmt.Fprintln(os.Stderr, averagePlainly(dir))
		os.Exit(1)
	}
	if dir := os.Getenv(averagesOf); dir != "" {
		os.Exit(averageElsewhere(dir))
	}
	if mode := os.Getenv("CLIMB_MODE"); mode != "" {
		os.Exit(train(mode))
	}
	if seed, err := strconv.ParseUint(os.Getenv("HOSTILE"), 10, 64); err == nil {
		os.Exit(hostile(seed))
	}
	if os.Getenv("ATTACK") != "" {
		os.Exit(attack())
	}
	if mode := os.Getenv("STUB_MODE"); mode != "" {
		os.Exit(stub(mode))
	}
	if dir := os.Getenv("NATS_DIR"); dir != "" {
		os.Exit(runNATS(dir))
	}
	if takes := os.Getenv("POLICY_TAKES"); takes != "" {
		os.Exit(serveSlowPolicy(takes, os.Args[1]))
	}
	if handshake := pluginhost.Handshake(pluginhost.Tuner); os.Getenv(handshake.MagicCookieKey) == handshake.MagicCookieValue {
		servePlugin()
		os.Exit(0)
	}
	if handshake := pluginhost.Handshake(pluginhost.Bidder); os.Getenv(handshake.MagicCookieKey) == handshake.MagicCookieValue {
		serveSlowBidder(os.Args[1], os.Args[2:]...)
		os.Exit(0)
	}
	runMoreAtOnce()
	os.Exit(m.Run())
}

// runMoreAtOnce runs more tests in parallel than there are cores, unless -parallel was given, because they mostly wait
// for processes.
func runMoreAtOnce() {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		_ = flag.Set("test.parallel", strconv.Itoa(max(4, runtime.GOMAXPROCS(0))))
	}
}

// proc is a process under test.
type proc struct {
	t     testing.TB
	cmd   *exec.Cmd
	out   *output
	ended chan struct{}
	err   error
	// killed is set before the test itself kills the process.
	killed *atomic.Bool
}

// output collects a process's output and lets tests wait for it.
type output struct {
	mu      sync.Mutex
	buf     bytes.Buffer
	changed chan struct{}
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n, err := o.buf.Write(p)
	close(o.changed)
	o.changed = make(chan struct{})
	return n, err
}

func (o *output) text() (string, <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String(), o.changed
}

// start runs the binary in dir.
func start(t testing.TB, dir string, args ...string) *proc {
	t.Helper()
	program := binary
	switch with := t.(type) {
	case inLab:
		program = labBinary
	case withBinary:
		program = func() (string, error) { return with.path, nil }
	}
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	p := startCommand(t, dir, path, args...)
	p.minds(args)
	return p
}

// minds fails the test for unexpected errors in the process's log.
func (p *proc) minds(args []string) {
	p.t.Cleanup(func() { // runs before the cleanup that kills the process, so everything logged until then counts
		text, _ := p.out.text()
		for _, line := range troubles(p.t.Name(), text) {
			p.t.Errorf("outbid %s logged an unexpected error: %s", strings.Join(args, " "), line)
		}
	})
}

func startCommand(t testing.TB, dir, path string, args ...string) *proc {
	t.Helper()
	p := newProc(t, dir, path, args...)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.watch(args)
	return p
}

// newProc returns a process that has not started.
func newProc(t testing.TB, dir, path string, args ...string) *proc {
	p := &proc{t: t, cmd: exec.Command(path, args...), out: &output{changed: make(chan struct{})}, ended: make(chan struct{}), killed: new(atomic.Bool)}
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = dir, p.out, p.out
	p.cmd.WaitDelay = 5 * time.Second
	return p
}

// watch waits for the end of a started process, and ends it with the test.
func (p *proc) watch(args []string) {
	t := p.t
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		select {
		case <-p.ended:
			if t.Failed() && !p.killed.Load() { // the cause of its death may lie elsewhere
				t.Logf("outbid %s ended before the test did: %v", strings.Join(args, " "), p.cmd.ProcessState)
			}
		default:
			_ = p.cmd.Process.Signal(syscall.SIGCONT)
			p.kill()
		}
		if t.Failed() {
			text, _ := p.out.text()
			t.Logf("output of outbid %s:\n%s", strings.Join(args, " "), text)
		}
	})
}

// pause stops the process, and waits until it has stopped: the signal alone would let it answer for a moment.
func (p *proc) pause() {
	p.t.Helper()
	p.signal(syscall.SIGSTOP)
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(p.cmd.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
		p.t.Fatalf("it did not stop: %v, %v", status, err)
	}
}

// resume continues a process that is paused.
func (p *proc) resume() {
	p.t.Helper()
	p.signal(syscall.SIGCONT)
}

func (p *proc) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// kill sends SIGKILL and waits.
func (p *proc) kill() {
	p.killed.Store(true)
	_ = p.cmd.Process.Kill()
	<-p.ended
}

// stop interrupts the process like Ctrl-C, and waits.
func (p *proc) stop() {
	p.t.Helper()
	if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
		p.t.Fatal(err)
	}
	select {
	case <-p.ended:
	case <-time.After(patience):
		p.t.Fatal("it did not stop")
	}
}

// until waits for the process to print something.
func (p *proc) until(what string) {
	p.t.Helper()
	deadline := time.After(patience)
	for {
		text, changed := p.out.text()
		if strings.Contains(text, what) {
			return
		}
		select {
		case <-changed:
		case <-p.ended:
			if text, _ := p.out.text(); !strings.Contains(text, what) {
				p.t.Fatalf("it ended before it printed %q: %v\n%s", what, p.err, text)
			}
			return
		case <-deadline:
			p.t.Fatalf("it did not print %q:\n%s", what, text)
		}
	}
}

// server is a running `up` or `serve` with a client.
type server struct {
	*proc
	Info struct {
		API  string `json:"api"`
		NATS string `json:"nats"`
		PID  int    `json:"pid"`
		Keys string `json:"keys"`
	}
	outbidv1.OutbidServiceClient
}

// serve starts `outbid up` or `outbid serve` on free ports and waits until it is ready.
func serve(t testing.TB, dir string, args ...string) *server {
	t.Helper()
	ready := filepath.Join(t.TempDir(), "ready.json")
	args = append(args, "--data", filepath.Join(dir, "data"), "--ready-file", ready)
	if !strings.Contains(strings.Join(args, " "), "--api") {
		args = append(args, "--api", "127.0.0.1:0")
	}
	s := &server{proc: start(t, dir, args...)}
	waitFile(t, s.proc, ready)
	s.connect(ready)
	return s
}

// in returns the same server for a subtest.
func (s *server) in(t testing.TB) *server {
	p, c := *s.proc, *s
	p.t = t
	c.proc = &p
	return &c
}

// connect creates a client for the address in the ready file.
func (s *server) connect(ready string) {
	s.t.Helper()
	data, err := os.ReadFile(ready)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := json.Unmarshal(data, &s.Info); err != nil {
		s.t.Fatalf("%s: %v", data, err)
	}
	s.OutbidServiceClient = s.dial(strings.TrimPrefix(s.Info.API, "http://"))
}

// dial returns a client for a server's API.
func (p *proc) dial(address string, options ...grpc.DialOption) outbidv1.OutbidServiceClient {
	p.t.Helper()
	conn, err := grpc.NewClient(address, append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = conn.Close() })
	return outbidv1.NewOutbidServiceClient(conn)
}

// waitFile waits until a file exists: it is written when the server is ready.
func waitFile(t testing.TB, p *proc, path string) {
	t.Helper()
	poll(t, "the ready file", func() bool {
		select {
		case <-p.ended:
			text, _ := p.out.text()
			t.Fatalf("it ended before it was ready: %v\n%s", p.err, text)
		default:
		}
		_, err := os.Stat(path)
		return err == nil
	})
}

// poll checks a condition repeatedly, for conditions without an event to wait for.
func poll(t testing.TB, what string, done func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(patience)
	for !done() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("timed out waiting for %s", what)
		}
	}
}

// submit starts a sweep.
func (s *server) submit(spec *outbidv1.SweepSpec) string {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	r, err := s.SubmitSweep(ctx, &outbidv1.SubmitSweepRequest{Spec: spec})
	if err != nil {
		s.t.Fatal(err)
	}
	return r.GetSweep().GetId()
}

// sweep returns a sweep's current state, or nil if the server cannot be reached now.
func (s *server) sweep(id string) *outbidv1.Sweep {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	r, err := s.GetSweep(ctx, &outbidv1.GetSweepRequest{Sweep: id})
	if err != nil {
		return nil
	}
	return r.GetSweep()
}

// wait waits until the sweep has ended.
func (s *server) wait(id string) *outbidv1.Sweep {
	s.t.Helper()
	var last *outbidv1.Sweep
	poll(s.t, "the end of "+id, func() bool {
		if sw := s.sweep(id); sw != nil {
			last = sw
		}
		return last.GetState() >= outbidv1.SweepState_SWEEP_STATE_DONE
	})
	return last
}

// waitSteps waits until the sweep has trained the given number of steps.
func (s *server) waitSteps(id string, steps int64) {
	s.t.Helper()
	poll(s.t, fmt.Sprintf("%d steps of %s", steps, id), func() bool { return s.sweep(id).GetSteps() >= steps })
}

func (s *server) trials(id string) []*outbidv1.Trial {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	r, err := s.ListTrials(ctx, &outbidv1.ListTrialsRequest{Sweep: id, PageSize: 10000})
	if err != nil {
		s.t.Fatal(err)
	}
	return r.GetTrials()
}

// mustDone fails unless the sweep is done with every trial trained as far as its tuner wanted.
func (s *server) mustDone(id string) *outbidv1.Sweep {
	s.t.Helper()
	sw := s.wait(id)
	if sw.GetState() != outbidv1.SweepState_SWEEP_STATE_DONE || sw.GetCounts().GetFailed() > 0 {
		s.t.Fatalf("sweep %s is %s: %s; notes: %v", id, sw.GetState(), sw.GetReason(), sw.GetNotes())
	}
	return sw
}
