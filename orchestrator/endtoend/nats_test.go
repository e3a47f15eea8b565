package endtoend

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outbid-dev/outbid/orchestrator/bus"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

func TestAnOrchestratorThatStandsBySaysSo(t *testing.T) {
	t.Parallel()
	dir, nats := t.TempDir(), startNATS(t)
	serveData(t, dir, "one", "serve", "--nats", nats, "--data", filepath.Join(dir, "one"))
	address := freeAddress(t)
	// The last --api counts, so start this server without the helper that adds another one.
	start(t, dir, "serve", "--nats", nats, "--standby", "--data", filepath.Join(dir, "two"), "--keys",
		filepath.Join(dir, "one", "keys"), "--api", address).until("standing by")
	for path, want := range map[string]int{
		"/healthz": http.StatusOK, "/readyz": http.StatusServiceUnavailable, "/v1/sweeps": http.StatusServiceUnavailable,
	} {
		client := http.Client{Timeout: patience}
		resp, err := client.Get("http://" + address + path)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		if resp.Body.Close() != nil || resp.StatusCode != want {
			t.Errorf("%s: %s %s", path, resp.Status, body)
		}
	}
}

// freeAddress returns an address that is free now.
func freeAddress(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return l.Addr().String()
}

// natsAt starts a NATS server in this process at a given port.
func natsAt(t *testing.T, dir string, port int) *bus.Server {
	t.Helper()
	var nats *bus.Server
	poll(t, "NATS", func() bool {
		var err error
		nats, err = bus.StartServer(bus.ServerConfig{Dir: dir, Port: port})
		return err == nil
	})
	return nats
}

// repeats waits until the process has printed something n times.
func (p *proc) repeats(what string, n int) {
	p.t.Helper()
	poll(p.t, fmt.Sprintf("%q, for the %d. time", what, n), func() bool {
		text, _ := p.out.text()
		return strings.Count(text, what) >= n
	})
}

// TestAnOrchestratorWaitsForNATS starts a server before its NATS, and stops NATS while it leads. It waits both times, logs
// that, and continues.
func TestAnOrchestratorWaitsForNATS(t *testing.T) {
	t.Parallel()
	dir, locks, port := t.TempDir(), t.TempDir(), freePorts(t, 1)[0]
	url := fmt.Sprintf("nats://127.0.0.1:%d", port)
	p := startServer(t, dir, "one", "serve", "--lease", "4s", "--nats", url, "--data", filepath.Join(dir, "one"))
	p.repeats("waiting for NATS", 1)
	nats := natsAt(t, filepath.Join(dir, "nats"), port)
	p.ready()
	s := p.server
	start(t, dir, "worker", "--nats", url, "--keys", s.Info.Keys, "--name", "w", "--devices", "cpu:2", "--dir", filepath.Join(dir, "w"))
	id := s.submit(job{name: "busy", mode: "well", tuner: random(60), trials: 2, env: map[string]string{"PACE": "100ms"}}.spec(t, locks))
	s.waitSteps(id, 4) // something must be in flight when NATS goes
	if err := nats.Close(); err != nil {
		t.Fatal(err)
	}
	s.repeats("waiting for NATS", 2)
	s.repeats("NATS at "+url+" does not answer", 1)
	poll(t, "a refusal to answer", func() bool { // its lease has expired, so another server may lead
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, err := s.GetSweep(ctx, &outbidv1.GetSweepRequest{Sweep: id})
		return status.Code(err) == codes.Unavailable && strings.Contains(err.Error(), "waits for NATS")
	})
	resp, err := http.Get(s.Info.API + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	if body, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(string(body), "waiting for NATS") {
		t.Errorf("/readyz without NATS: %s %s", resp.Status, body)
	}
	if err := resp.Body.Close(); err != nil {
		t.Error(err)
	}
	nats = natsAt(t, filepath.Join(dir, "nats"), port)
	t.Cleanup(func() { _ = nats.Close() })
	s.repeats("NATS is back", 2)
	s.mustDone(id)
	noTwoOwners(t, locks)
	s.stop()
}

// TestAServerThatWaitsForNATSStops checks that an interrupt ends it soon.
func TestAServerThatWaitsForNATSStops(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	nats, err := bus.StartServer(bus.ServerConfig{Dir: filepath.Join(dir, "nats")})
	if err != nil {
		t.Fatal(err)
	}
	s := serveData(t, dir, "one", "serve", "--lease", "4s", "--nats", nats.URL(), "--data", filepath.Join(dir, "one"))
	if err := nats.Close(); err != nil {
		t.Fatal(err)
	}
	s.repeats("waiting for NATS", 1)
	s.stop()
	early := start(t, dir, "serve", "--nats", nats.URL(), "--data", filepath.Join(dir, "two"), "--api", "127.0.0.1:0")
	early.repeats("waiting for NATS", 1)
	early.stop()
}

// runNATS is a NATS server in a separate process, so that it can have a separate disk.
func runNATS(dir string) int {
	s, err := bus.StartServer(bus.ServerConfig{Dir: dir})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("nats is at", s.URL())
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, os.Interrupt)
	<-stop
	_ = s.Close()
	return 0
}

func TestAFullDiskOfNATSIsNamed(t *testing.T) {
	t.Parallel()
	const disk = 24 << 20
	dir := t.TempDir()
	natsDir := filepath.Join(dir, "nats")
	if err := os.Mkdir(natsDir, 0o700); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	wrapper := smallDisk(t, natsDir, disk)
	n := startCommand(t, dir, "/usr/bin/env", append(append([]string{"NATS_DIR=" + natsDir}, wrapper...), self)...)
	n.until("nats is at ")
	text, _ := n.out.text()
	_, url, _ := strings.Cut(text, "nats is at ")
	url, _, _ = strings.Cut(url, "\n")
	args := []string{"serve", "--lease", "4s", "--nats", url, "--data", filepath.Join(dir, "one")}
	s := serveData(t, dir, "one", args...)
	filler, err := os.Create(n.inside(filepath.Join(natsDir, "filler")))
	if err != nil {
		t.Fatal(err)
	}
	defer filler.Close()
	for chunk := make([]byte, 4<<10); err == nil; {
		_, err = filler.Write(chunk)
	}
	// JetStream notices only when it writes.
	_, _ = s.SubmitSweep(t.Context(), &outbidv1.SubmitSweepRequest{
		Spec: job{name: "full", mode: "well", tuner: random(1000), trials: 2}.spec(t, t.TempDir()),
	})
	s.repeats("its disk is full", 1)
	s.kill()
	again := start(t, dir, append(args, "--api", "127.0.0.1:0")...)
	again.repeats("its disk is full", 1)
	for name, p := range map[string]*proc{"the leader": s.proc, "a second start": again} {
		if text, _ := p.out.text(); !strings.Contains(text, "waiting for NATS") || strings.Contains(text, "does not answer") ||
			strings.Contains(text, "leads since") {
			t.Errorf("output of %s:\n%s", name, text)
		}
	}
	again.kill()
}

func TestADeadPredecessorIsNamedAndTakenOverFrom(t *testing.T) {
	t.Parallel()
	dir, nats := t.TempDir(), startNATS(t)
	args := []string{"serve", "--lease", "4s", "--nats", nats, "--data", filepath.Join(dir, "one")}
	first := serveData(t, dir, "one", args...)
	second := start(t, dir, "serve", "--nats", nats, "--data", filepath.Join(dir, "two"), "--keys", first.Info.Keys,
		"--api", "127.0.0.1:0")
	<-second.ended
	if text, _ := second.out.text(); !strings.Contains(text, fmt.Sprintf("(process %d on ", first.Info.PID)) ||
		!strings.Contains(text, "leads since") {
		t.Errorf("output of a second server:\n%s", text)
	}
	first.kill()
	third := serveData(t, dir, "one", args...)
	third.until("the previous leader is dead")
	third.stop()
}

func TestALedgerInANATSOfItsOwnIsExported(t *testing.T) {
	t.Parallel()
	dir, nats := t.TempDir(), startNATS(t)
	data := filepath.Join(dir, "one")
	s := serveData(t, dir, "one", "serve", "--nats", nats, "--data", data)
	s.submit(job{name: "kept", mode: "well", tuner: random(1000), trials: 2}.spec(t, t.TempDir()))
	export := func(file string, args ...string) string {
		t.Helper()
		p := start(t, dir, append([]string{"export", "--ledger", file}, args...)...)
		<-p.ended
		text, _ := p.out.text()
		if p.cmd.ProcessState.ExitCode() != 0 {
			return text
		}
		got, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			t.Fatal(err)
		}
		return string(got)
	}
	for name, got := range map[string]string{
		"of the server that runs": export("a.jsonl", "--data", data),
		"of the NATS":             export("b.jsonl", "--nats", nats, "--keys", s.Info.Keys),
	} {
		if !strings.Contains(got, `"kept-1"`) {
			t.Errorf("%s: %.300s", name, got)
		}
	}
	s.stop()
	if got := export("c.jsonl", "--nats", nats, "--data", data); !strings.Contains(got, `"kept-1"`) {
		t.Errorf("of the NATS without a server: %.300s", got)
	}
	if got := export("d.jsonl", "--nats", startNATS(t), "--data", data); !strings.Contains(got, "this NATS server has no ledger") {
		t.Errorf("of a NATS without a ledger: %.300s", got)
	}
	if got := export("e.jsonl", "--data", data); !strings.Contains(got, "--nats URL") {
		t.Errorf("of a data directory without one: %.300s", got)
	}
}
