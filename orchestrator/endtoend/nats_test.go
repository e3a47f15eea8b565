package endtoend

import (
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/bus"
)

func TestAnOrchestratorThatStandsBySaysSo(t *testing.T) {
	t.Parallel()
	dir, nats := t.TempDir(), startNATS(t)
	serveData(t, dir, "one", "serve", "--nats", nats, "--data", filepath.Join(dir, "one"))
	address := freeAddress(t)
	// The last --api counts, so this one comes without the helper that adds its own.
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

// freeAddress is one that nobody listens on just now.
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

func TestAnOrchestratorWithoutNATSEndsSoonAndSaysWhy(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	nats, err := bus.StartServer(bus.ServerConfig{Dir: filepath.Join(dir, "nats")})
	if err != nil {
		t.Fatal(err)
	}
	s := serveData(t, dir, "one", "serve", "--nats", nats.URL(), "--data", filepath.Join(dir, "one"))
	start(t, dir, "worker", "--nats", nats.URL(), "--keys", s.Info.Keys, "--name", "w", "--devices", "cpu:2",
		"--dir", filepath.Join(dir, "w"))
	id := s.submit(job{name: "busy", mode: "well", tuner: random(1000), trials: 2}.spec(t, t.TempDir()))
	s.waitSteps(id, 4) // so that something is being appended when NATS goes
	if err := nats.Close(); err != nil {
		t.Fatal(err)
	}
	gone := time.Now()
	select {
	case <-s.ended:
	case <-time.After(patience):
		t.Fatal("it goes on without NATS")
	}
	text, _ := s.out.text()
	if took := time.Since(gone); took > 30*time.Second || !strings.Contains(text, "NATS at "+nats.URL()+" does not answer") {
		t.Errorf("it ended after %s and said:\n%s", took, text)
	}
}
