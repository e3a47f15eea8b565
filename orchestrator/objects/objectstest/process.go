package objectstest

import (
	"bytes"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/prometheus/procfs"
)

// process is another vendor's server in a separate process.
type process struct {
	// Endpoint is its URL.
	Endpoint string
	// User and Password are a client's credentials.
	User, Password string

	binary, addr, dir, health string
	args, env                 []string
	cmd                       *exec.Cmd
	output                    bytes.Buffer
}

// newProcess returns a process that is not started yet, or skips the test if the environment does not name its binary.
func newProcess(t testing.TB, env, scheme, health string) process {
	t.Helper()
	binary := os.Getenv(env)
	if binary == "" {
		t.Skipf("set %s to the path of its binary to run this against a real server", env)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := process{
		Endpoint: scheme + "://" + l.Addr().String(), User: "outbid-test", Password: "outbid-test-password",
		binary: binary, addr: l.Addr().String(), dir: t.TempDir(), health: health,
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return p
}

// Start starts the server, also again after Stop with the same data, and returns once it answers.
func (p *process) Start(t testing.TB) {
	t.Helper()
	p.cmd = exec.Command(p.binary, p.args...)
	p.cmd.Env = append(os.Environ(), p.env...)
	p.output.Reset()
	p.cmd.Stdout, p.cmd.Stderr = &p.output, &p.output
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !p.ready(ctx) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			p.Stop(t)
			t.Fatalf("%s did not get ready: %s", p.binary, &p.output)
		}
	}
}

func (p *process) ready(ctx context.Context) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.Endpoint+p.health, http.NoBody)
	if err != nil {
		return false
	}
	// This only tests whether a server that this test started answers.
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	resp, err := client.Do(req)
	if err != nil {
		return false
	}
	return resp.Body.Close() == nil && resp.StatusCode == http.StatusOK
}

// Busy returns the server's CPU time since its start, on Linux.
func (p *process) Busy(t testing.TB) time.Duration {
	t.Helper()
	proc, err := procfs.NewProc(p.cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	stat, err := proc.Stat()
	if err != nil {
		t.Fatal(err)
	}
	return time.Duration(stat.CPUTime() * float64(time.Second))
}

// Stop kills the server and waits until it is gone.
func (p *process) Stop(t testing.TB) {
	t.Helper()
	if p.cmd == nil {
		return
	}
	if err := p.cmd.Process.Kill(); err != nil {
		t.Errorf("kill %s: %v", p.binary, err)
	}
	_ = p.cmd.Wait() // returns that it was killed
	p.cmd = nil
}
