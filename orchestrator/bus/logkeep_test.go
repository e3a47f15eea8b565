package bus

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// TestOnlyWhatIsAllowedIsKept checks that a worker's output of another node's trial never reaches the tenant's stream,
// on any subject.
func TestOnlyWhatIsAllowedIsKept(t *testing.T) {
	t.Parallel()
	keys := makeKeys(t)
	r := newRealm(t, keys, startServer(t, ServerConfig{Keys: keys}).URL())
	l, err := OpenLogs(testContext(t), r.admin, LogsConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Reserve(testContext(t), "vision", 1<<20); err != nil {
		t.Fatal(err)
	}
	worker, err := AttachLogs(connect(t, ConnConfig{URL: r.url, User: r.who["n1"]}), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(worker.Close(), l.Close()); err != nil {
			t.Error(err)
		}
	})
	keepWhat(t, l, func(c *outbidv1.LogChunk) bool { return c.GetNode() == "n1" && c.GetFork().GetTrial() == 1 })
	lies := chunk(1, "stdout", "another sweep on my own subject\n")
	lies.Fork.Sweep = "other-1"
	for subject, c := range map[string]*outbidv1.LogChunk{
		LogSubject(chunk(2, "", "")): chunk(2, "stdout", "not mine\n"), LogSubject(chunk(1, "", "")): lies,
		keptSubject(chunk(2, "", "")): chunk(2, "stdout", "around the orchestrator\n"),
	} {
		if err := publish(worker.nc, subject, c, nil); err != nil {
			t.Fatal(err)
		}
	}
	put(t, worker, chunk(1, "stdout", "mine\n"))
	stored(t, l, LogStream("vision"), 1)
	if got := readLogs(t, l, nil); got != "[1 stdout]mine\n" {
		t.Errorf("kept %q", got)
	}
	s, err := l.js.Stream(testContext(t), LogStream("vision"))
	if err != nil || s.CachedInfo().State.Msgs != 1 {
		t.Errorf("the stream has %d messages: %v", s.CachedInfo().State.Msgs, err)
	}
}

// TestOutputWaitsForALeader checks that output printed without a leader waits, and is stored in order and once.
func TestOutputWaitsForALeader(t *testing.T) {
	t.Parallel()
	s := startServer(t, ServerConfig{})
	nc := connect(t, ConnConfig{Server: s})
	l := reserved(t, nc, 1<<20)
	put(t, l, chunk(1, "stdout", "a\n"), chunk(1, "stdout", "b\n"), chunk(1, "stdout", "c\n"))
	keepAll(t, l)
	stored(t, l, LogStream("vision"), 3)
	if got := readLogs(t, l, nil); got != strings.ReplaceAll("Xa\nXb\nXc\n", "X", "[1 stdout]") {
		t.Errorf("kept %q", got)
	}
}

// TestOneConsumerOfTheIntakeFollowsAnother checks that a stopped leader has stored everything, and that the next one
// continues after it, including messages that the previous one received but did not store.
func TestOneConsumerOfTheIntakeFollowsAnother(t *testing.T) {
	t.Parallel()
	s := startServer(t, ServerConfig{})
	l := reserved(t, connect(t, ConnConfig{Server: s}), 8<<20)
	ctx, stop := context.WithCancel(testContext(t))
	ended := make(chan error, 1)
	looked := make(chan struct{}, 10_000)
	go func() {
		ended <- l.Keep(ctx, func(*outbidv1.LogChunk) bool { looked <- struct{}{}; return true })
	}()
	const n = 3000
	want := ""
	for i := range n {
		text := fmt.Sprintln(i)
		want += "[1 stdout]" + text
		put(t, l, chunk(1, "stdout", text))
		if i == 1 {
			receive(t, looked)
		}
	}
	stored(t, l, intakeOf("vision"), n)
	stop()
	if err := receive(t, ended); err != nil {
		t.Fatal(err)
	}
	if err := l.nc.FlushTimeout(patience); err != nil {
		t.Fatal(err)
	}
	stored(t, l, LogStream("vision"), n)
	// A leader that received some messages and died.
	dead, err := l.openIntakeConsumer(testContext(t), "vision")
	if err != nil {
		t.Fatal(err)
	}
	put(t, l, chunk(1, "stdout", "x\n"), chunk(1, "stdout", "y\n"))
	if m, err := dead.Next(); err != nil || string(m.Data()) == "" {
		t.Fatal(err)
	}
	keepAll(t, l)
	stored(t, l, LogStream("vision"), n+2)
	if got := readLogs(t, l, nil); got != want+"[1 stdout]x\n[1 stdout]y\n" {
		t.Errorf("kept %d bytes, want %d", len(got), len(want))
	}
}

// TestAFullIntakeDropsItsTenantsOutputOnly checks that a tenant whose trials print more than the server can store does not
// displace a line of another tenant that the server has not read yet.
func TestAFullIntakeDropsItsTenantsOutputOnly(t *testing.T) {
	t.Parallel()
	s := startServer(t, ServerConfig{})
	l := reserved(t, connect(t, ConnConfig{Server: s}), 8<<20)
	if err := l.Reserve(testContext(t), "loud", 1<<20); err != nil {
		t.Fatal(err)
	}
	put(t, l, chunk(1, "stdout", "said once\n"))
	flood := ofTenant("loud", "loud-1", strings.Repeat("0123456789abcde\n", logChunkBytes/16))
	for range 2 * intakeBytes / logChunkBytes {
		if err := publish(l.nc, LogSubject(flood), flood, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.nc.FlushTimeout(patience); err != nil {
		t.Fatal(err)
	}
	keepAll(t, l)
	stored(t, l, LogStream("vision"), 1)
	if got := readLogs(t, l, nil); got != "[1 stdout]said once\n" {
		t.Errorf("kept %q", got)
	}
	var size uint64
	for _, tenant := range []string{"vision", "loud"} {
		stream, err := l.js.Stream(testContext(t), intakeOf(tenant))
		if err != nil {
			t.Fatal(err)
		}
		size += uint64(stream.CachedInfo().Config.MaxBytes)
	}
	if size > intakeBytes {
		t.Errorf("the intakes have %d bytes together", size)
	}
}

func TestIntakesShareTheirSpace(t *testing.T) {
	t.Parallel()
	for tenants, want := range map[int]int64{
		0: intakeBytes, 1: intakeBytes, 2: intakeBytes / 2, 3: intakeBytes / 4, 4: intakeBytes / 4, 512: leastIntake, 10_000: leastIntake,
	} {
		if got := intakeShare(tenants); got != want {
			t.Errorf("%d tenants: %d bytes each, want %d", tenants, got, want)
		}
	}
}

// TestTheSharedIntakeOfEarlierVersionsIsReplaced checks that a server starts on a NATS that has it.
func TestTheSharedIntakeOfEarlierVersionsIsReplaced(t *testing.T) {
	t.Parallel()
	s := startServer(t, ServerConfig{})
	nc := connect(t, ConnConfig{Server: s})
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(testContext(t), jetstream.StreamConfig{
		Name: LogIntake, Subjects: []string{logsPrefix + "*.*.*.*"}, Storage: jetstream.MemoryStorage,
	}); err != nil {
		t.Fatal(err)
	}
	l := reserved(t, nc, 1<<20)
	keepAll(t, l)
	put(t, l, chunk(1, "stdout", "a\n"))
	stored(t, l, LogStream("vision"), 1)
}
