package labcli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/cli"
	labcli "github.com/outbid-dev/outbid/orchestrator/lab/cli"
	"github.com/outbid-dev/outbid/orchestrator/sim/experiment"
)

// lab runs outbid-lab in this process.
func lab(ctx context.Context, args ...string) (code int, out, errs string) {
	var stdout, stderr bytes.Buffer
	code = labTo(ctx, &stdout, &stderr, args...)
	return code, stdout.String(), stderr.String()
}

func labTo(ctx context.Context, stdout, stderr io.Writer, args ...string) int {
	return cli.Main(ctx, labcli.Edition(experiment.Simulate), args, strings.NewReader(""), stdout, stderr, func(string) string { return "" }, "test")
}

// watched is output that is watched for a text.
type watched struct {
	bytes.Buffer
	text  string
	found chan struct{}
	once  sync.Once
}

// Write implements io.Writer.
func (w *watched) Write(p []byte) (int, error) {
	n, err := w.Buffer.Write(p)
	if strings.Contains(w.String(), w.text) {
		w.once.Do(func() { close(w.found) })
	}
	return n, err
}

// serve runs a server until the test ends, and returns its addresses.
func serve(t *testing.T) (file struct{ API, NATS, Keys string }) {
	t.Helper()
	dir := t.TempDir()
	ready := filepath.Join(dir, "ready.json")
	ctx, stop := context.WithCancel(context.Background())
	var over sync.WaitGroup
	ended := make(chan struct{})
	over.Go(func() {
		defer close(ended)
		code, out, errs := lab(ctx, "serve", "--data", filepath.Join(dir, "data"), "--api", "127.0.0.1:0", "--nats-listen", "127.0.0.1:0",
			"--ready-file", ready)
		if ctx.Err() == nil {
			t.Errorf("the server ended with %d:\n%s%s", code, out, errs)
		}
	})
	t.Cleanup(func() { stop(); over.Wait() })
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(time.Minute); ; {
		if data, err := os.ReadFile(ready); err == nil && json.Unmarshal(data, &file) == nil {
			return file
		}
		select {
		case <-tick.C:
		case <-ended:
			t.FailNow()
		case <-deadline:
			t.Fatal("the server was not ready in time")
		}
	}
}

// A few simulated workers run a sweep of a real server to its end.
func TestLoadRunsSweepsOfARealServer(t *testing.T) {
	t.Parallel()
	server := serve(t)
	sweep := writeFile(t, "sweep.yaml", `name: stub
space: {x: {float: {low: 0, high: 1}}}
metric: loss
mode: min
tuner: {asha: {max_steps: 9}}
limits: {trials: 12}
program: {command: ["true"]}
`)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	said := &watched{text: "3 connected, 3 leased", found: make(chan struct{})}
	var complaints bytes.Buffer
	ended := make(chan int, 1)
	go func() {
		ended <- labTo(ctx, said, &complaints, "load", "--nats", server.NATS, "--keys", server.Keys, "--workers", "3", "--devices", "7",
			"--reports-per-second", "500", "--every", "50ms", "--verify", "--server-pid", strconv.Itoa(os.Getpid()))
	}()
	select {
	case <-said.found:
	case code := <-ended:
		t.Fatalf("load ended with %d:\n%s%s", code, said.String(), complaints.String())
	}
	code, out, errs := lab(t.Context(), "run", sweep, "--server", server.API)
	if code != 0 || !strings.Contains(out+errs, "12 completed") && !strings.Contains(out+errs, "done") {
		t.Errorf("run ended with %d:\n%s%s", code, out, errs)
	}
	stop()
	if code := <-ended; code != 0 {
		t.Errorf("load ended with %d:\n%s%s", code, said.String(), complaints.String())
	}
	for _, want := range []string{
		`3 connected, 3 leased, \d+ trials`, `summary of .*: 3 workers, 7 devices, .* reports [1-9]\d*/s decided in p50 \S+s, p99 \S+s, at most`,
	} {
		if !regexp.MustCompile(want).MatchString(said.String()) {
			t.Errorf("no %q in\n%s", want, said.String())
		}
	}
}

func TestLoadRejectsBadSettings(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"":                                       "--keys: missing: want the directory of the cluster's keys",
		"--keys k --workers 0":                   "--workers: must be at least 1, got 0",
		"--keys k --workers 8 --devices 7":       "--devices: must be at least 1 for each of 8 workers, got 7",
		"--keys k --workers 1 --devices 4097":    "--devices: must be at most 4096 for each of 1 workers, got 4097",
		"--keys k --reports-per-second -1":       "--reports-per-second: must be at least 0, got -1",
		"--keys k --steps -1":                    "--steps: must be at least 0, got -1",
		"--keys k --every 0s":                    "--every: must be more than 0, got 0s",
		"--keys k --for -1s":                     "--for: must be at least 0, got -1s",
		"--keys k --name a.b":                    `--name "a.b": want 1 to 128 letters`,
		"--keys k --server-pid -1":               "--server-pid: process -1",
		"--keys k --ca /nowhere/ca.pem":          "--ca: open /nowhere/ca.pem",
		"--keys /nowhere --workers 1":            "keys /nowhere",
		"--keys k --workers 1 --devices 1 extra": `unknown command "extra"`,
	} {
		code, _, errs := lab(t.Context(), append([]string{"load"}, strings.Fields(args)...)...)
		if code == 0 || !strings.Contains(errs, want) || strings.Count(errs, "\n") > 2 {
			t.Errorf("%s: exit code %d, %q; want %q", args, code, errs, want)
		}
	}
}
