package objectstest

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"
)

// MinioEnv names the binary of a MinIO server for tests against the real thing.
const MinioEnv = "OUTBID_TEST_MINIO"

// Minio is a MinIO server of a test, on the loopback interface.
type Minio struct {
	// Endpoint is its URL.
	Endpoint string
	// User and Password let a client in.
	User, Password string

	binary, addr, dir string
	cmd               *exec.Cmd
	output            bytes.Buffer
}

// StartMinio starts a server that ends with the test, or skips the test if OUTBID_TEST_MINIO names no binary.
func StartMinio(t testing.TB) *Minio {
	t.Helper()
	binary := os.Getenv(MinioEnv)
	if binary == "" {
		t.Skipf("set %s to the path of a minio binary to run this against a real MinIO server", MinioEnv)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m := &Minio{
		Endpoint: "http://" + l.Addr().String(), User: "outbid-test", Password: "outbid-test-password",
		binary: binary, addr: l.Addr().String(), dir: t.TempDir(),
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	m.Start(t)
	t.Cleanup(func() { m.Stop(t) })
	return m
}

// Start starts the server again after Stop, with the same data, and returns once it answers.
func (m *Minio) Start(t testing.TB) {
	t.Helper()
	m.cmd = exec.Command(m.binary, "server", "--quiet", "--address", m.addr, "--console-address", "127.0.0.1:0", m.dir)
	m.cmd.Env = append(os.Environ(), "MINIO_ROOT_USER="+m.User, "MINIO_ROOT_PASSWORD="+m.Password,
		"MINIO_UPDATE=off", "MINIO_BROWSER=off", "MINIO_CALLHOME_ENABLE=off")
	m.output.Reset()
	m.cmd.Stdout, m.cmd.Stderr = &m.output, &m.output
	if err := m.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !m.ready(ctx) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			m.Stop(t)
			t.Fatalf("minio did not get ready: %s", &m.output)
		}
	}
}

func (m *Minio) ready(ctx context.Context) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, m.Endpoint+"/minio/health/ready", http.NoBody)
	if err != nil {
		return false
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	return resp.Body.Close() == nil && resp.StatusCode == http.StatusOK
}

// Stop kills the server and waits until it is gone.
func (m *Minio) Stop(t testing.TB) {
	t.Helper()
	if m.cmd == nil {
		return
	}
	if err := m.cmd.Process.Kill(); err != nil {
		t.Errorf("kill minio: %v", err)
	}
	_ = m.cmd.Wait() // says that it was killed
	m.cmd = nil
}

// bucketNames counts buckets, so that tests share a server and not their objects.
type bucketNames struct {
	mu sync.Mutex
	n  int
}

func (b *bucketNames) next() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.n++
	return fmt.Sprintf("bucket-%d", b.n)
}

// URLs returns a function that gives the URL of a fresh bucket, with a prefix, at every call.
func URLs(endpoint string) func() string {
	names := new(bucketNames)
	return func() string {
		return "s3://" + names.next() + "/some/prefix?endpoint=" + endpoint + "&region=us-east-1"
	}
}
