package server_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/outbid-dev/outbid/orchestrator/server"
	"github.com/outbid-dev/outbid/orchestrator/spec"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// patience limits every wait.
const patience = time.Minute

// config returns a server's configuration with free ports on this machine.
func config(t *testing.T) server.Config {
	t.Helper()
	return server.Config{Data: t.TempDir(), API: "127.0.0.1:0", Version: "test"}
}

// running is a running server, and how to stop it.
type running struct {
	*server.Server
	outbidv1.OutbidServiceClient
	stop func() error
}

// run opens a server and runs it until stop is called, or until the test ends.
func run(t *testing.T, cfg server.Config) *running {
	t.Helper()
	s, err := server.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- s.Run(ctx, func() { close(ready) }) }()
	stopped := false
	r := &running{Server: s, stop: func() error {
		if stopped {
			return nil
		}
		stopped = true
		cancel()
		return errors.Join(<-ended, s.Close())
	}}
	t.Cleanup(func() {
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	})
	select {
	case <-ready:
	case err := <-ended:
		ended <- err
		t.Fatalf("it ended before it was ready: %v", err)
	case <-time.After(patience):
		t.Fatal("it was not ready in time")
	}
	conn, err := grpc.NewClient("passthrough:///"+strings.TrimPrefix(s.URL(), "http://"),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	r.OutbidServiceClient = outbidv1.NewOutbidServiceClient(conn)
	return r
}

// shell is a sweep of two trials that runs on any machine with a shell.
func shell(t *testing.T) *outbidv1.SweepSpec {
	t.Helper()
	sweep, err := spec.Parse([]byte(`
name: tiny
space: {x: {float: {low: 0, high: 1}}}
metric: loss
mode: min
tuner: {random: {max_steps: 1}}
limits: {trials: 2}
program: {shell: 'echo "{{\"step\": 1, \"loss\": {x}}}" >> "$OUTBID_REPORT"'}
`))
	if err != nil {
		t.Fatal(err)
	}
	return sweep
}

// end waits for a sweep's end.
func (r *running) end(t *testing.T, id string) *outbidv1.Sweep {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	stream, err := r.WatchSweep(ctx, &outbidv1.WatchSweepRequest{Sweep: id})
	for err == nil {
		var up *outbidv1.WatchSweepResponse
		if up, err = stream.Recv(); err == nil && up.GetSweep().GetState() == outbidv1.SweepState_SWEEP_STATE_DONE {
			return up.GetSweep()
		}
	}
	t.Fatalf("%s did not end: %v", id, err)
	return nil
}

// TestAServerIsOpenedRunAndClosed checks that a program can embed a server without the command line: open it, run it,
// close it, and open it again.
func TestAServerIsOpenedRunAndClosed(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	cfg.Workers = []server.WorkerConfig{{Name: "here", Devices: "cpu:1"}}
	s := run(t, cfg)
	got, err := s.SubmitSweep(t.Context(), &outbidv1.SubmitSweepRequest{Spec: shell(t)})
	if err != nil {
		t.Fatal(err)
	}
	if sweep := s.end(t, got.GetSweep().GetId()); sweep.GetCounts().GetCompleted() != 2 || sweep.GetSteps() != 2 {
		t.Errorf("it ended as %v", sweep)
	}
	file, alive, err := server.ReadFile(cfg.Data)
	if err != nil || !alive || file.API != s.URL() || file.NATS != s.NATSURL() || file.PID != os.Getpid() {
		t.Errorf("its file says %+v, %v: %v", file, alive, err)
	}
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(server.FilePath(cfg.Data)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its file is still there: %v", err)
	}
	again := run(t, cfg)
	list, err := again.ListSweeps(t.Context(), &outbidv1.ListSweepsRequest{})
	if err != nil || len(list.GetSweeps()) != 1 || list.GetSweeps()[0].GetState() != outbidv1.SweepState_SWEEP_STATE_DONE {
		t.Errorf("after another start there are %v: %v", list.GetSweeps(), err)
	}
}

// TestALoneWorkerIsOpenedRunAndClosed checks that a worker in a separate process finds a server by its keys.
func TestALoneWorkerIsOpenedRunAndClosed(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	s := run(t, cfg)
	w, err := server.OpenWorker(t.Context(), server.LoneWorkerConfig{
		Worker: server.WorkerConfig{Name: "far", Devices: "v100:2", Dir: t.TempDir()},
		NATS:   server.NATSConfig{URL: s.NATSURL(), Keys: server.KeysDir(cfg.Data)},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	got, err := s.SubmitSweep(t.Context(), &outbidv1.SubmitSweepRequest{Spec: shell(t)})
	if err != nil {
		t.Fatal(err)
	}
	s.end(t, got.GetSweep().GetId())
	cancel()
	if err := errors.Join(<-ended, w.Close()); err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestWhatCannotBeUsedIsNamedByItsField(t *testing.T) {
	t.Parallel()
	none := filepath.Join(t.TempDir(), "none")
	for field, change := range map[string]func(*server.Config){
		"Data":            func(c *server.Config) { c.Data = "" },
		"Lease":           func(c *server.Config) { c.Lease = time.Second },
		"Standby":         func(c *server.Config) { c.Standby = true },
		"TLSKey":          func(c *server.Config) { c.TLSCert = none },
		"TLSCert":         func(c *server.Config) { c.TLSKey = none },
		"Tokens":          func(c *server.Config) { c.Tokens = none },
		"Limits":          func(c *server.Config) { c.Limits = none },
		"API":             func(c *server.Config) { c.API = "0.0.0.0:0" },
		"Store":           func(c *server.Config) { c.Store = "s4://bucket" },
		"Policy":          func(c *server.Config) { c.Policy = "lottery" },
		"Bidders":         func(c *server.Config) { c.Bidders = map[string][]string{"mine": nil} },
		"BidderTimeout":   func(c *server.Config) { c.BidderTimeout = time.Millisecond },
		"NATS.Listen":     func(c *server.Config) { c.NATS.Listen = "0.0.0.0:0" },
		"Workers.Name":    func(c *server.Config) { c.Workers = make([]server.WorkerConfig, 1) },
		"Workers.Devices": func(c *server.Config) { c.Workers = []server.WorkerConfig{{Name: "a", Devices: "v100"}} },
		"Trials.PassEnv": func(c *server.Config) {
			c.Workers = []server.WorkerConfig{{Name: "a", Trials: server.TrialConfig{PassEnv: []string{"A=B"}}}}
		},
		"Trials.CheckpointBytes": func(c *server.Config) {
			c.Workers = []server.WorkerConfig{{Name: "a", Trials: server.TrialConfig{CheckpointBytes: -1}}}
		},
		"Labels": func(c *server.Config) {
			c.Workers = []server.WorkerConfig{{Name: "a", Labels: map[string]string{"rack": "\xff"}}}
		},
	} {
		cfg := config(t)
		change(&cfg)
		s, err := server.Open(t.Context(), cfg)
		bad, ok := errors.AsType[*server.FieldError](err)
		if !ok || bad.Field != field || !strings.HasPrefix(bad.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
		if s != nil {
			t.Errorf("%s: a server was returned beside an error", field)
		}
	}
}

// TestAServerThatNeverRanIsClosed checks that Close releases what Open opened even if the server never ran.
func TestAServerThatNeverRanIsClosed(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	for range 2 {
		s, err := server.Open(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		cfg.API = strings.TrimPrefix(s.URL(), "http://") // use the same port the second time
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestATakenPortMayBeReplaced(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	cfg := config(t)
	cfg.API, cfg.AnyPort = taken.Addr().String(), true
	var notes []string
	cfg.Note = func(line string) { notes = append(notes, line) }
	s, err := server.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if len(notes) != 1 || !strings.Contains(notes[0], s.URL()) {
		t.Errorf("notes: %q", notes)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
