package cli

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/bus"
	"github.com/outbid-dev/outbid/orchestrator/identity"
	"github.com/outbid-dev/outbid/orchestrator/server"
)

// realSweep is a sweep that runs on any machine with a shell.
const realSweep = `
name: real
space: {x: {float: {low: 0, high: 1}}}
metric: loss
mode: min
tuner: {hyperband: {max_steps: 3}, seed: 1}
checkpoints: {last: true}
program:
  shell: |
    step=$OUTBID_START_STEP
    while [ "$step" -lt "$OUTBID_UNTIL_STEP" ]; do
      step=$((step + 1))
      echo "{{\"step\": $step, \"loss\": {x}}}" >> "$OUTBID_REPORT"
      echo "at step $step"
    done
    echo "{x}" > "$OUTBID_CHECKPOINT_OUT"
`

// upApp is a server that runs in the test's process.
type upApp struct {
	*testApp
	done <-chan int
	file server.File
}

// startServer runs up or serve and waits until it is ready.
func startServer(t *testing.T, args ...string) *upApp {
	t.Helper()
	ready := filepath.Join(t.TempDir(), "ready.json")
	app := newTestApp(nil, nil)
	app.now = time.Now
	ctx, cancel := context.WithCancel(context.Background())
	u := &upApp{testApp: app, done: app.start(ctx, append(args, "--ready-file", ready)...)}
	t.Cleanup(func() {
		cancel()
		u.stop(t)
	})
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(patience)
	for {
		select {
		case code := <-u.done:
			t.Fatalf("it ended with %d before it was ready:\n%s%s", code, app.out, app.err)
		case <-deadline:
			t.Fatalf("it was not ready in time:\n%s%s", app.out, app.err)
		case <-tick.C:
		}
		if data, err := os.ReadFile(ready); err == nil && json.Unmarshal(data, &u.file) == nil {
			return u
		}
	}
}

// stop stops the server like Ctrl-C, and waits for its end.
func (u *upApp) stop(t *testing.T) {
	t.Helper()
	if u.done == nil {
		return
	}
	u.signals <- os.Interrupt
	wantExit(t, u.testApp, u.done, exitOK)
	u.done = nil
}

// command runs a client command against the server and returns its output.
func (u *upApp) command(t *testing.T, want int, args ...string) string {
	t.Helper()
	app := newTestApp(strings.NewReader(realSweep), nil)
	app.now = time.Now
	wantExit(t, app, app.start(t.Context(), append(args, "--server", u.file.API)...), want)
	return app.out.String() + app.err.String()
}

func TestUpRunsASweepAndGoesOnAfterARestart(t *testing.T) {
	t.Parallel()
	data, out := t.TempDir(), t.TempDir()
	args := []string{"up", "--data", data, "--api", "127.0.0.1:0", "--workers", "2", "--devices", "cpu:1"}
	u := startServer(t, args...)
	if got := u.command(t, exitOK, "run", "-"); !strings.Contains(got, "real-1 done") {
		t.Fatalf("run printed:\n%s", got)
	}
	if got := u.command(t, exitOK, "nodes"); !strings.Contains(got, "local-1") || !strings.Contains(got, "local-2") {
		t.Errorf("nodes printed:\n%s", got)
	}
	if got := u.command(t, exitOK, "logs", "real"); !strings.Contains(got, "at step 3") {
		t.Errorf("logs printed:\n%s", got)
	}
	u.command(t, exitOK, "best", "real", "--checkpoint", filepath.Join(out, "best.ckpt"))
	u.command(t, exitOK, "export", "real", "--trials", filepath.Join(out, "t.csv"), "--reports", filepath.Join(out, "r.parquet"))
	for _, row := range readCSV(t, filepath.Join(out, "t.csv")) {
		if row["metric.loss"] == "" || row["config.x"] == "" {
			t.Errorf("exported %v", row)
		}
	}
	before := u.command(t, exitOK, "show", "real", "-o", "json")
	checkLocked(t, data)
	large := writeFile(t, "large.yaml", realSweep+"resources:\n  devices: {min: 8}\n")
	for _, command := range []string{"run", "submit"} {
		got := u.command(t, exitUsage, command, large)
		if !strings.Contains(got, "line 17, column 1: resources: no node has 8 devices; the most is 1; ask for what there is") {
			t.Errorf("%s printed %s", command, got)
		}
	}
	u.stop(t)
	if _, err := os.Stat(server.FilePath(data)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("server.json is still there: %v", err)
	}

	u = startServer(t, args...)
	if got := u.command(t, exitOK, "show", "real", "-o", "json"); got != before {
		t.Errorf("after the restart:\n%s\nbefore:\n%s", got, before)
	}
	if rows, _ := readParquet(t, filepath.Join(out, "r.parquet")); len(rows) != 11 {
		t.Errorf("%d reports were exported", len(rows))
	}
	if got := u.command(t, exitOK, "submit", "-"); !strings.Contains(got, "real-2") {
		t.Errorf("submit printed %q", got)
	}
	u.command(t, exitOK, "watch", "real-2")
}

// checkLocked checks that the server of a directory counts as running, and that a copy of its file does not: the copy
// names a live process, but that process does not hold a lock on the copy.
func checkLocked(t *testing.T, data string) {
	t.Helper()
	text, err := os.ReadFile(server.FilePath(data))
	copied := t.TempDir()
	if err = errors.Join(err, os.WriteFile(server.FilePath(copied), text, 0o600)); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]bool{data: true, copied: false} {
		if _, running, err := server.ReadFile(dir); err != nil || running != want {
			t.Errorf("the server of %s runs: %v, want %v: %v", dir, running, want, err)
		}
	}
}

func TestTwoServersDoNotShareData(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	u := startServer(t, "up", "--data", data, "--api", "127.0.0.1:0", "--workers", "0")
	other := newTestApp(nil, nil)
	wantExit(t, other, other.start(t.Context(), "up", "--data", data, "--api", "127.0.0.1:0"), exitUsage)
	if want := u.file.API; !strings.Contains(other.err.String(), "process ") || !strings.Contains(other.err.String(), want) {
		t.Errorf("the error does not name the process and %s:\n%s", want, other.err)
	}
}

func TestTakenPorts(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	app := newTestApp(nil, nil)
	wantExit(t, app, app.start(t.Context(), "up", "--data", t.TempDir(), "--api", taken.Addr().String()), exitUsage)
	if !strings.Contains(app.err.String(), "the port is taken") {
		t.Errorf("stderr: %s", app.err)
	}
}

func TestServeAndWorkerAreSeparate(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	s := startServer(t, "serve", "--lease", "10m", "--data", data, "--api", "127.0.0.1:0", "--nats-listen", "127.0.0.1:0")
	w := newTestApp(nil, nil)
	done := w.start(t.Context(), "worker", "--nats", s.file.NATS, "--keys", s.file.Keys, "--name", "far",
		"--devices", "v100:2", "--dir", filepath.Join(t.TempDir(), "w"), "--label", "rack=7")
	if got := s.command(t, exitOK, "run", "-"); !strings.Contains(got, "real-1 done") {
		t.Fatalf("run printed:\n%s", got)
	}
	if got := s.command(t, exitOK, "nodes", "-o", "json"); !strings.Contains(got, `"rack":"7"`) ||
		!strings.Contains(got, `"trusted":true`) {
		t.Errorf("nodes printed:\n%s", got)
	}
	w.signals <- os.Interrupt
	wantExit(t, w, done, exitOK)
	// The server learns that the worker has left long before its lease would end.
	for deadline := time.Now().Add(2 * time.Minute); ; <-time.After(20 * time.Millisecond) {
		got := s.command(t, exitOK, "nodes")
		if strings.Contains(got, "no nodes") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the worker said goodbye, but nodes printed:\n%s", got)
		}
	}
}

func TestStandbyTakesOver(t *testing.T) {
	t.Parallel()
	keys, err := identity.MakeKeys(filepath.Join(t.TempDir(), "keys"))
	if err != nil {
		t.Fatal(err)
	}
	ns, err := bus.StartServer(bus.ServerConfig{Dir: t.TempDir(), Keys: keys})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ns.Close() })
	args := []string{"serve", "--nats", ns.URL(), "--keys", keys.Dir(), "--api", "127.0.0.1:0", "--store", t.TempDir(), "--standby"}
	first := startServer(t, append(args, "--data", t.TempDir(), "--name", "a")...)
	id := strings.Fields(first.command(t, exitOK, "submit", "-"))[0]

	impatient := newTestApp(nil, nil)
	impatient.opts.logLevel, impatient.opts.logFormat = "info", "auto"
	err = (&serverCommands{process: impatient.process, edition: impatient.edition}).runServer(t.Context(), server.Config{
		Data: t.TempDir(), API: "127.0.0.1:0", Name: "b", LeadWait: 10 * time.Millisecond,
		NATS: server.NATSConfig{URL: ns.URL(), Keys: keys.Dir()},
	}, func(server.Config, *server.Server) {})
	if err == nil || !strings.Contains(err.Error(), "server a (process ") || !strings.Contains(err.Error(), "start this one as a standby to take over") {
		t.Errorf("error %v", err)
	}

	app := newTestApp(nil, nil)
	app.now = time.Now
	ready := filepath.Join(t.TempDir(), "ready.json")
	done := app.start(t.Context(), append(args, "--data", t.TempDir(), "--name", "c", "--ready-file", ready)...)
	app.err.waitFor(t, "standing by")
	first.stop(t)
	app.out.waitFor(t, "next:")
	data, err := os.ReadFile(ready)
	if err != nil {
		t.Fatal(err)
	}
	u := &upApp{testApp: app, done: done}
	if err := json.Unmarshal(data, &u.file); err != nil {
		t.Fatal(err)
	}
	if got := u.command(t, exitOK, "ls"); !strings.Contains(got, id) {
		t.Errorf("the next leader does not know %s:\n%s", id, got)
	}
	u.stop(t)
}

func TestTLSAndTokensEverywhere(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tool := func(want int, args ...string) string {
		t.Helper()
		app := newTestApp(strings.NewReader(realSweep), nil)
		app.now = time.Now
		wantExit(t, app, app.start(t.Context(), args...), want)
		return app.out.String() + app.err.String()
	}
	certs, tokens := filepath.Join(dir, "tls"), filepath.Join(dir, "tokens")
	tool(exitOK, "tls", "new", "--dir", certs, "--host", "127.0.0.1")
	token := strings.Fields(tool(exitOK, "token", "new", "--file", tokens, "--name", "ada"))[0]
	tool(exitUsage, "token", "new", "--file", tokens, "--name", "ada")
	ca := filepath.Join(certs, "ca.pem")
	s := startServer(t, "serve", "--data", filepath.Join(dir, "data"), "--api", "127.0.0.1:0", "--nats-listen", "127.0.0.1:0",
		"--tls-cert", filepath.Join(certs, "cert.pem"), "--tls-key", filepath.Join(certs, "key.pem"), "--tokens", tokens)
	if !strings.HasPrefix(s.file.API, "https://") || !strings.HasPrefix(s.file.NATS, "tls://") {
		t.Fatalf("it serves at %+v", s.file)
	}
	w := newTestApp(nil, nil)
	done := w.start(t.Context(), "worker", "--nats", s.file.NATS, "--keys", s.file.Keys, "--ca", ca, "--name", "w",
		"--devices", "cpu:2", "--dir", filepath.Join(dir, "w"))
	server := []string{"--server", s.file.API, "--ca", ca}
	if got := tool(exitOK, append(server, "--token", token, "run", "-")...); !strings.Contains(got, "real-1 done") {
		t.Errorf("run printed:\n%s", got)
	}
	if got := tool(exitFailed, append(server, "ls")...); !strings.Contains(got, "OUTBID_TOKEN") {
		t.Errorf("without a token ls printed:\n%s", got)
	}
	if got := tool(exitUnreachable, "--server", s.file.API, "--token", token, "ls"); !strings.Contains(got, "--ca FILE") {
		t.Errorf("without the authority ls printed:\n%s", got)
	}
	w.signals <- os.Interrupt
	wantExit(t, w, done, exitOK)
}

func TestServerRefusesBadOptions(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	file := writeFile(t, "not-a-token", "xyz")
	for _, tc := range []struct {
		want string
		args []string
	}{
		{"--lease 1s", []string{"up", "--lease", "1s"}},
		{"--workers -1", []string{"up", "--workers", "-1"}},
		{`--average-rate "1KiB": want 1MiB or more`, []string{"up", "--average-rate", "1KiB"}},
		{"both claim its devices", []string{"up", "--workers", "2"}},
		{"both claim its devices", []string{"up", "--workers", "2", "--devices", "gpu"}},
		{"workers local-1 and local-2 on one machine would both claim its devices", []string{"up", "--workers", "2", "--devices", "cpu", "--devices", "auto"}},
		{"2 times for 3 workers", []string{"up", "--workers", "3", "--devices", "cpu:1", "--devices", "cpu:2"}},
		{"--devices", []string{"up", "--devices", "v100"}},
		{"--nats-port 70000", []string{"up", "--nats-port", "70000"}},
		{"there is no policy", []string{"up", "--policy", "lottery"}},
		{"policy option depth=3: this policy has no options", []string{"up", "--policy", "fifo", "--policy-option", "depth=3"}},
		{"--policy-option: policy option \"depth\": want name=value", []string{"serve", "--policy-option", "depth"}},
		{`--bidder Mine: want a name of lower-case letters`, []string{"up", "--bidder", "Mine=a"}},
		{`--bidder mine: has no command`, []string{"serve", "--bidder", "mine="}},
		{"--bidder mine is given twice", []string{"serve", "--bidder", "mine=a b", "--bidder", "mine=c"}},
		{"--bidder-timeout 1ms: want 10ms or more", []string{"up", "--bidder-timeout", "1ms"}},
		// The names of these flags in 1.0.0-rc.1.
		{"warning: --agent is deprecated; write --bidder", []string{"up", "--agent", "mine="}},
		{"--bidder mine is given twice", []string{"serve", "--agent", "mine=a b", "--bidder", "mine=c"}},
		{"--bidder-timeout 1ms: want 10ms or more", []string{"up", "--agent-timeout", "1ms"}},
		{"--bidder: bidder mine: exec: \"no-such-program\"", []string{"up", "--bidder", "mine=no-such-program x"}},
		{"--log-level", []string{"up", "--log-level", "loud"}},
		{"--log-format", []string{"up", "--log-format", "xml"}},
		{"belong together", []string{"serve", "--tls-cert", "cert.pem", "--nats-listen", "127.0.0.1:0"}},
		{"beyond loopback NATS needs a certificate", []string{"serve", "--nats-listen", "0.0.0.0:0"}},
		{"want HOST:PORT", []string{"serve", "--nats-listen", "4222"}},
		{
			"'outbid token new --file tokens --name NAME' and 'outbid tls new --dir tls --host NAME'",
			[]string{"serve", "--api", "0.0.0.0:0", "--nats-listen", "127.0.0.1:0"},
		},
		{"'outbid tls new --dir tls --host tuner.example'", []string{"up", "--api", "tuner.example:7700"}},
		{"only one of them", []string{"serve", "--nats", "nats://127.0.0.1:1", "--nats-listen", "127.0.0.1:0"}},
		{"--standby requires --nats", []string{"serve", "--standby"}},
		{"--tokens names the tokens", []string{"serve", "--token-file", file, "--nats-listen", "127.0.0.1:0"}},
		{"--keys: keys of the cluster: ", []string{"serve", "--keys", damagedKeys(t), "--nats-listen", "127.0.0.1:0"}},
		{"does not exist; create it with", []string{"serve", "--tokens", filepath.Join(data, "none"), "--nats-listen", "127.0.0.1:0"}},
		{"s3", []string{"up", "--store", "s4://bucket"}},
	} {
		app := newTestApp(nil, nil)
		args := tc.args
		if !strings.Contains(strings.Join(args, " "), "--api") {
			args = append(args, "--api", "127.0.0.1:0")
		}
		code := app.run(t.Context(), append(args, "--data", filepath.Join(data, "d")))
		if code == exitOK || code == exitInterrupted || !strings.Contains(app.err.String(), tc.want) {
			t.Errorf("%v: exit %d, stderr does not hold %q:\n%s", tc.args, code, tc.want, app.err)
		}
	}
}

func TestWorkerRefusesBadOptions(t *testing.T) {
	t.Parallel()
	s := startServer(t, "serve", "--data", t.TempDir(), "--api", "127.0.0.1:0", "--nats-listen", "127.0.0.1:0")
	other, err := identity.MakeKeys(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	old := writeFile(t, "token", strings.Repeat("ab", 32))
	for _, tc := range []struct {
		want string
		code int
		args []string
	}{
		{"--credentials: missing", exitUsage, []string{"--nats", "nats://127.0.0.1:1"}},
		{"'outbid worker join'", exitUsage, []string{"--nats", s.file.NATS, "--token-file", old}},
		{"no such file", exitUsage, []string{"--nats", s.file.NATS, "--credentials", "nowhere"}},
		{"does not contain a cluster's keys", exitUsage, []string{"--nats", s.file.NATS, "--keys", "nowhere"}},
		{"only one of them", exitUsage, []string{"--credentials", "nowhere", "--keys", s.file.Keys}},
		{"connect to NATS", exitUnreachable, []string{"--nats", "nats://127.0.0.1:1", "--keys", s.file.Keys}},
		{"check the credentials", exitUnreachable, []string{"--nats", s.file.NATS, "--keys", other.Dir()}},
		{"--name", exitUsage, []string{"--nats", s.file.NATS, "--keys", s.file.Keys, "--name", "a.b"}},
		{"--ca: nowhere", exitUsage, []string{"--nats", s.file.NATS, "--keys", s.file.Keys, "--ca", "nowhere"}},
		{"--devices", exitUsage, []string{"--nats", s.file.NATS, "--keys", s.file.Keys, "--devices", "v100"}},
		{`--average-rate "fast": want 1MiB or more`, exitUsage, []string{"--nats", s.file.NATS, "--keys", s.file.Keys, "--average-rate", "fast"}},
	} {
		app := newTestApp(nil, map[string]string{"HOME": t.TempDir()})
		code := app.run(t.Context(), append([]string{"worker", "--dir", t.TempDir()}, tc.args...))
		if code != tc.code || !strings.Contains(app.err.String(), tc.want) {
			t.Errorf("%v: exit %d, want %d and %q:\n%s", tc.args, code, tc.code, tc.want, app.err)
		}
	}
}

// damagedKeys returns a keys directory with one damaged key.
func damagedKeys(t *testing.T) string {
	t.Helper()
	keys, err := identity.MakeKeys(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(keys.Dir(), "orders.nk"), []byte("xyz\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return keys.Dir()
}
