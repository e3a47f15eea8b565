package bus

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/outbid-dev/outbid/orchestrator/limits"
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

// reserved opens the logs over a connection, with the given space for the tenant vision, until the test ends.
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

// keepAll stores the output of all workers.
func keepAll(t *testing.T, l *Logs) {
	t.Helper()
	keepWhat(t, l, func(*outbidv1.LogChunk) bool { return true })
}

// keepWhat stores the output that may allows, until the test ends.
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
	// The stream stores messages after the server receives them, so wait for the last byte.
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
	l := &Logs{wake: make(chan struct{}, 1), nc: connect(t, ConnConfig{Server: startServer(t, ServerConfig{})})}
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

// smallServer is a NATS server with the smallest message size that Outbid supports.
func smallServer(t *testing.T) string {
	t.Helper()
	ns, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: -1, MaxPayload: limits.Message, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	ns.Start()
	t.Cleanup(func() {
		ns.Shutdown()
		ns.WaitForShutdown()
	})
	if !ns.ReadyForConnections(patience) {
		t.Fatal("NATS does not start")
	}
	return ns.ClientURL()
}

// TestLogsFitIntoSmallMessages checks that output of any size and content passes through a NATS with 64 KiB messages.
func TestLogsFitIntoSmallMessages(t *testing.T) {
	t.Parallel()
	url := smallServer(t)
	orchestrator := reserved(t, connect(t, ConnConfig{URL: url}), 64<<20)
	keepAll(t, orchestrator)
	worker, err := AttachLogs(connect(t, ConnConfig{URL: url}), nil)
	if err != nil {
		t.Fatal(err)
	}
	line := strings.Repeat("\xffx", 100<<10) + "\n"
	c := chunk(1, "stdout", line)
	c.Node, c.Fork.Sweep = strings.Repeat("n", 128), "digits-1"
	if err := worker.Append(c); err != nil {
		t.Fatal(err)
	}
	if err := worker.Append(chunk(1, "stdout", "last\n")); err != nil {
		t.Fatal(err)
	}
	if err := worker.Close(); err != nil {
		t.Fatal(err)
	}
	got := 0
	if err := orchestrator.Read(testContext(t), "vision", "digits-1", nil, 0, true, func(c *outbidv1.LogChunk) error {
		if got += len(c.GetData()); got == len(line)+5 {
			return errEnough
		}
		return nil
	}); !errors.Is(err, errEnough) {
		t.Errorf("%d bytes of %d, %v", got, len(line)+5, err)
	}
}

var errEnough = errors.New("enough")

// TestAMessageThatCannotBeSent checks that a message above the server's limit gets another error than a lost
// connection.
func TestAMessageThatCannotBeSent(t *testing.T) {
	t.Parallel()
	nc := connect(t, ConnConfig{URL: smallServer(t)})
	up := &outbidv1.Uplink{Node: "n1", Boot: strings.Repeat("x", MaxMessage(nc)-20)}
	if err := PublishUplink(nc, up, nil); err != nil {
		t.Errorf("what fits: %v", err)
	}
	for name, boot := range map[string]string{"too large": strings.Repeat("x", maxPieces+1), "not UTF-8": "\xff"} {
		if err := PublishUplink(nc, &outbidv1.Uplink{Node: "n1", Boot: boot}, nil); !errors.Is(err, ErrRefused) {
			t.Errorf("%s: %v", name, err)
		}
	}
	nc.Close()
	if err := PublishUplink(nc, up, nil); !errors.Is(err, ErrNotConnected) {
		t.Errorf("without a connection: %v", err)
	}
}

func TestComplaintsAreMadeOnce(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	c := new(complaints)
	for i := range 3 * maxComplaints {
		if !c.isNew(fmt.Sprint(i), now) || c.isNew(fmt.Sprint(i), now.Add(complainAgain-1)) {
			t.Fatal(i)
		}
	}
	if !c.isNew(fmt.Sprint(3*maxComplaints-1), now.Add(complainAgain)) || len(c.logged) > maxComplaints {
		t.Errorf("%d are remembered", len(c.logged))
	}
}
