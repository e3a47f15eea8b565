package bus

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

func chunk(trial int32, stream, text string) *outbidv1.LogChunk {
	return &outbidv1.LogChunk{
		Fork: &outbidv1.ForkRef{Sweep: "digits-1", Trial: trial}, Node: "n1", Tenant: "vision", Stream: stream, Data: []byte(text),
	}
}

func openLogs(t *testing.T) (*Logs, *Logs) {
	t.Helper()
	s := startServer(t, ServerConfig{})
	orchestrator := reserved(t, connect(t, ConnConfig{Server: s}), 64<<20)
	keepAll(t, orchestrator)
	worker, err := AttachLogs(connect(t, ConnConfig{URL: s.URL()}), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := worker.Close(); err != nil {
			t.Error(err)
		}
	})
	return orchestrator, worker
}

// reserved opens the logs over a connection, with so much room for the tenant vision, until the test ends.
func reserved(t *testing.T, nc *nats.Conn, bytes int64) *Logs {
	t.Helper()
	l, err := OpenLogs(testContext(t), nc, LogsConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := l.Reserve(testContext(t), "vision", bytes); err != nil {
		t.Fatal(err)
	}
	return l
}

// keepAll keeps what every worker says.
func keepAll(t *testing.T, l *Logs) {
	t.Helper()
	keepWhat(t, l, func(*outbidv1.LogChunk) bool { return true })
}

// keepWhat keeps what may allows, until the test ends.
func keepWhat(t *testing.T, l *Logs, may func(*outbidv1.LogChunk) bool) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- l.Keep(ctx, may) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func readLogs(t *testing.T, l *Logs, trial *int32) string {
	t.Helper()
	var out bytes.Buffer
	err := l.Read(testContext(t), "vision", "digits-1", trial, 0, false, func(c *outbidv1.LogChunk) error {
		fmt.Fprintf(&out, "[%d %s]%s", c.GetFork().GetTrial(), c.GetStream(), c.GetData())
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestLogs(t *testing.T) {
	t.Parallel()
	orchestrator, worker := openLogs(t)
	one := int32(1)
	if got := readLogs(t, orchestrator, nil); got != "" {
		t.Errorf("read %q of nothing", got)
	}
	followed := make(chan string, 10)
	ctx, cancel := context.WithCancel(testContext(t))
	ended := make(chan error, 1)
	go func() {
		ended <- orchestrator.Read(ctx, "vision", "digits-1", &one, 0, true, func(c *outbidv1.LogChunk) error {
			followed <- string(c.GetData())
			return nil
		})
	}()
	for _, c := range []*outbidv1.LogChunk{
		chunk(1, "stdout", "a\n"), chunk(1, "stdout", "b\n"), chunk(2, "stdout", "x\n"),
		chunk(1, "stderr", "c\n"), chunk(1, "stdout", "d\n"),
	} {
		if err := worker.Append(c); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{"a\nb\n", "c\n", "d\n"} {
		if got := receive(t, followed); got != want {
			t.Errorf("followed %q, want %q", got, want)
		}
	}
	cancel()
	if err := receive(t, ended); !errors.Is(err, context.Canceled) {
		t.Errorf("following ended with %v", err)
	}
	if got, want := readLogs(t, orchestrator, &one), "[1 stdout]a\nb\n[1 stderr]c\n[1 stdout]d\n"; got != want {
		t.Errorf("read %q, want %q", got, want)
	}
	if got := readLogs(t, orchestrator, nil); len(got) != len("[1 stdout]a\nb\n[2 stdout]x\n[1 stderr]c\n[1 stdout]d\n") {
		t.Errorf("read %q", got)
	}
	if err := orchestrator.Delete(testContext(t), "vision", "digits-1"); err != nil {
		t.Fatal(err)
	}
	if got := readLogs(t, orchestrator, nil); got != "" {
		t.Errorf("read %q after deleting", got)
	}
	if worker.Append(&outbidv1.LogChunk{Fork: &outbidv1.ForkRef{Sweep: "a.b"}}) == nil {
		t.Error("took output of a sweep that cannot be")
	}
}

func TestLogsCloseSendsTheRest(t *testing.T) {
	t.Parallel()
	orchestrator, worker := openLogs(t)
	big := bytes.Repeat([]byte("0123456789abcde\n"), 3*logChunkBytes/16)
	if err := worker.Append(chunk(0, "stdout", string(big))); err != nil {
		t.Fatal(err)
	}
	if err := worker.Close(); err != nil {
		t.Fatal(err)
	}
	// The stream takes messages in after the server does: wait for the last byte, not for a time.
	var got []byte
	done := errors.New("all there")
	err := orchestrator.Read(testContext(t), "vision", "digits-1", nil, 0, true, func(c *outbidv1.LogChunk) error {
		if got = append(got, c.GetData()...); len(got) >= len(big) {
			return done
		}
		return nil
	})
	if !errors.Is(err, done) || !bytes.Equal(got, big) {
		t.Errorf("%v; %d bytes, want %d", err, len(got), len(big))
	}
}

func TestLogsBounded(t *testing.T) {
	t.Parallel()
	l := &Logs{wake: make(chan struct{}, 1)}
	line := bytes.Repeat([]byte("x"), logChunkBytes)
	for range 2 * logBufferBytes / logChunkBytes {
		if err := l.Append(chunk(0, "stdout", string(line))); err != nil {
			t.Fatal(err)
		}
	}
	if l.bytes > logBufferBytes || l.dropped != logBufferBytes || len(l.pending) != logBufferBytes/logChunkBytes {
		t.Errorf("%d bytes kept in %d chunks, %d dropped", l.bytes, len(l.pending), l.dropped)
	}
}
