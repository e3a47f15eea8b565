package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/proto"

	"github.com/outbid-dev/outbid/orchestrator/bus"
	"github.com/outbid-dev/outbid/orchestrator/ledger"
	"github.com/outbid-dev/outbid/orchestrator/ledger/ledgertest"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

func testContext(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func startServer(t testing.TB, dir string, port int) *bus.Server {
	t.Helper()
	return start(t, bus.ServerConfig{Dir: dir, Port: port})
}

// startSmallServer starts a server with the smallest message limit that Outbid supports.
func startSmallServer(t testing.TB, dir string) *bus.Server {
	t.Helper()
	return start(t, bus.ServerConfig{Dir: dir, MaxPayload: 64 << 10})
}

func start(t testing.TB, cfg bus.ServerConfig) *bus.Server {
	t.Helper()
	s, err := bus.StartServer(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func connect(t testing.TB, cfg bus.ConnConfig) *nats.Conn {
	t.Helper()
	nc, err := bus.Connect(testContext(t), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

func open(t testing.TB, nc *nats.Conn, cfg ledger.Config) *ledger.JetStream {
	t.Helper()
	l, err := ledger.OpenJetStream(testContext(t), nc, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func notes(texts ...string) []*outbidv1.Event {
	var events []*outbidv1.Event
	for _, text := range texts {
		events = append(events, &outbidv1.Event{Kind: &outbidv1.Event_Note{Note: &outbidv1.Note{Text: text}}})
	}
	return events
}

func mustAppend(t testing.TB, l ledger.Ledger, text string) *outbidv1.Batch {
	t.Helper()
	b, err := l.Append(testContext(t), time.Now(), notes(text))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func count(b *[]uint64) func(*outbidv1.Batch) error {
	return func(batch *outbidv1.Batch) error {
		*b = append(*b, batch.GetSeq())
		return nil
	}
}

func wantDamage(t *testing.T, err error, seq uint64, reason string) {
	t.Helper()
	var damage *ledger.DamageError
	if !errors.As(err, &damage) || damage.Seq != seq || !strings.Contains(damage.Reason, reason) {
		t.Errorf("%v; want damage of batch %d: %s", err, seq, reason)
	}
}

func TestMemory(t *testing.T) {
	t.Parallel()
	ledgertest.Run(t, func(*testing.T) func() ledger.Ledger {
		m := ledger.NewMemory()
		return func() ledger.Ledger { return m.Another() }
	})
}

func TestJetStream(t *testing.T) {
	t.Parallel()
	conform(t, startServer(t, t.TempDir(), 0))
}

func TestJetStreamOfSmallMessages(t *testing.T) {
	t.Parallel()
	conform(t, startSmallServer(t, t.TempDir()))
}

func conform(t *testing.T, s *bus.Server) {
	t.Helper()
	here, there := connect(t, bus.ConnConfig{Server: s}), connect(t, bus.ConnConfig{URL: s.URL()})
	var streams atomic.Int64
	ledgertest.Run(t, func(t *testing.T) func() ledger.Ledger {
		t.Helper()
		cfg := ledger.Config{Stream: fmt.Sprint("TEST_", streams.Add(1))}
		turn := 0
		return func() ledger.Ledger {
			turn++
			return open(t, []*nats.Conn{here, there}[turn%2], cfg)
		}
	})
}

// TestJetStreamOfManySegments runs the suite with a stream for every two batches, which may be in parts.
func TestJetStreamOfManySegments(t *testing.T) {
	t.Parallel()
	s := startSmallServer(t, t.TempDir())
	nc := connect(t, bus.ConnConfig{Server: s})
	var ledgers atomic.Int64
	ledgertest.Run(t, func(t *testing.T) func() ledger.Ledger {
		t.Helper()
		cfg := ledger.Config{Stream: fmt.Sprint("SHORT_", ledgers.Add(1)), SegmentBatches: 2}
		return func() ledger.Ledger { return open(t, nc, cfg) }
	})
}

func TestServerRestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first := startServer(t, dir, 0)
	l := open(t, connect(t, bus.ConnConfig{Server: first}), ledger.Config{})
	for i := range 10 {
		mustAppend(t, l, fmt.Sprint(i))
	}
	if err := l.SaveSnapshot(testContext(t), 9, []byte("state")); err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	l = open(t, connect(t, bus.ConnConfig{Server: startServer(t, dir, 0)}), ledger.Config{})
	seq, data, err := l.LoadSnapshot(testContext(t))
	if err != nil || seq != 9 || string(data) != "state" {
		t.Errorf("snapshot %d, %q, %v", seq, data, err)
	}
	var read []uint64
	if err := l.Read(testContext(t), 1, count(&read)); err != nil || len(read) != 10 {
		t.Errorf("read %v, %v", read, err)
	}
}

// TestAppendOutlivesServer stops the server during an append and starts it again: the batch is stored once.
func TestAppendOutlivesServer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first := startServer(t, dir, 0)
	_, portText, err := net.SplitHostPort(strings.TrimPrefix(first.URL(), "nats://"))
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(portText)
	if err != nil {
		t.Fatal(err)
	}
	l := open(t, connect(t, bus.ConnConfig{URL: first.URL()}), ledger.Config{})
	mustAppend(t, l, "before")
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := l.Append(testContext(t), time.Now(), notes("during"))
		done <- err
	}()
	second := startServer(t, dir, port)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	mustAppend(t, l, "after")
	var read []uint64
	reader := open(t, connect(t, bus.ConnConfig{Server: second}), ledger.Config{})
	if err := reader.Read(testContext(t), 1, count(&read)); err != nil || len(read) != 3 {
		t.Errorf("read %v, %v", read, err)
	}
}

// looseStream creates a ledger's stream that allows deletion of messages, so that a test can damage it.
func looseStream(t *testing.T) (*nats.Conn, jetstream.JetStream, jetstream.Stream) {
	t.Helper()
	nc := connect(t, bus.ConnConfig{Server: startServer(t, t.TempDir(), 0)})
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.CreateStream(testContext(t), jetstream.StreamConfig{
		Name: ledger.DefaultStream, Subjects: []string{"outbid.v1.ledger"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return nc, js, stream
}

func TestMissingBatchesAreNamed(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		batches int // few are requested one by one, many are sent
		missing uint64
	}{{5, 1}, {5, 2}, {5, 5}, {100, 1}, {100, 2}, {100, 100}} {
		missing := tc.missing
		nc, _, stream := looseStream(t)
		l := open(t, nc, ledger.Config{})
		for range tc.batches {
			mustAppend(t, l, "x")
		}
		if err := stream.DeleteMsg(testContext(t), missing); err != nil {
			t.Fatal(err)
		}
		var read []uint64
		err := l.Read(testContext(t), 1, count(&read))
		wantDamage(t, err, missing, "missing")
		if len(read) > int(missing-1) {
			t.Errorf("read %v though %d is missing", read, missing)
		}
	}
}

func TestLostEndIsNoticed(t *testing.T) {
	t.Parallel()
	nc, js, stream := looseStream(t)
	l := open(t, nc, ledger.Config{})
	for range 3 {
		mustAppend(t, l, "x")
	}
	if err := l.SaveSnapshot(testContext(t), 3, []byte("state")); err != nil {
		t.Fatal(err)
	}
	first, err := stream.GetMsg(testContext(t), 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := js.DeleteStream(testContext(t), ledger.DefaultStream); err != nil {
		t.Fatal(err)
	}
	cut := open(t, nc, ledger.Config{})
	if _, err := js.Publish(testContext(t), "outbid.v1.ledger", first.Data); err != nil {
		t.Fatal(err)
	}
	_, _, err = cut.LoadSnapshot(testContext(t))
	wantDamage(t, err, 2, "lost its end")
	_, err = l.Append(testContext(t), time.Now(), notes("y"))
	wantDamage(t, err, 2, "lost its end")
}

func TestForgedBatchesAreNamed(t *testing.T) {
	t.Parallel()
	forge := func(b *outbidv1.Batch) []byte {
		data, err := proto.Marshal(b)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	for name, data := range map[string]func(prev *outbidv1.Batch) []byte{
		"cannot be decoded": func(*outbidv1.Batch) []byte { return []byte("\xff\xff") },
		"has hash": func(prev *outbidv1.Batch) []byte {
			b := proto.CloneOf(prev)
			b.Seq, b.PrevHash = 3, prev.GetHash()
			return forge(b)
		},
		"does not follow": func(prev *outbidv1.Batch) []byte {
			b, err := ledger.NewBatch(3, time.Now(), prev.GetPrevHash(), notes("forged"))
			if err != nil {
				t.Fatal(err)
			}
			return forge(b)
		},
		"says that it is batch 2": func(prev *outbidv1.Batch) []byte { return forge(prev) },
	} {
		nc, js, _ := looseStream(t)
		l := open(t, nc, ledger.Config{})
		mustAppend(t, l, "x")
		second := mustAppend(t, l, "y")
		if _, err := js.Publish(testContext(t), "outbid.v1.ledger", data(second)); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Append(testContext(t), time.Now(), notes("z")); !errors.Is(err, ledger.ErrConflict) {
			t.Errorf("%s: append after a forged batch: %v", name, err)
		}
		for _, from := range []uint64{1, 3} {
			var read []uint64
			wantDamage(t, l.Read(testContext(t), from, count(&read)), 3, name)
		}
	}
}

func TestDamagedSnapshotIsPassedOver(t *testing.T) {
	t.Parallel()
	nc := connect(t, bus.ConnConfig{Server: startServer(t, t.TempDir(), 0)})
	log := new(lines)
	l := open(t, nc, ledger.Config{Logger: slog.New(slog.NewTextHandler(log, nil))})
	for i := range 3 {
		mustAppend(t, l, "x")
		if err := l.SaveSnapshot(testContext(t), uint64(i+1), []byte(fmt.Sprint("state ", i+1))); err != nil {
			t.Fatal(err)
		}
	}
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(testContext(t), ledger.DefaultSnapshots)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []struct {
		seq  uint64
		data string
	}{{3, "state 3"}, {2, "state 2"}, {0, ""}} { // two are kept; after that only the whole ledger is left
		seq, data, err := l.LoadSnapshot(testContext(t))
		if err != nil || seq != want.seq || string(data) != want.data {
			t.Fatalf("snapshot %d, %q, %v; want %d", seq, data, err, want.seq)
		}
		chunk := fmt.Sprintf("outbid.v1.snapshots.%020d.*.0", seq)
		if err := stream.Purge(testContext(t), jetstream.WithPurgeSubject(chunk)); err != nil {
			t.Fatal(err)
		}
	}
	if n := strings.Count(log.String(), "cannot be read"); n != 3 {
		t.Errorf("%d warnings, want 3: %s", n, log)
	}
}

// lines is a log writer that can be read. The tests that use it log from one goroutine.
type lines struct{ strings.Builder }

func TestOpenRefusesLossyStream(t *testing.T) {
	t.Parallel()
	for _, cfg := range []jetstream.StreamConfig{
		{Storage: jetstream.MemoryStorage},
		{MaxMsgs: 10},
		{MaxBytes: 1 << 20},
		{MaxAge: time.Hour},
		{Retention: jetstream.WorkQueuePolicy},
		{PersistMode: jetstream.AsyncPersistMode},
	} {
		nc := connect(t, bus.ConnConfig{Server: startServer(t, t.TempDir(), 0)})
		js, err := jetstream.New(nc)
		if err != nil {
			t.Fatal(err)
		}
		cfg.Name, cfg.Subjects = ledger.DefaultStream, []string{"outbid.v1.ledger"}
		if _, err := js.CreateStream(testContext(t), cfg); err != nil {
			t.Fatal(err)
		}
		_, err = ledger.OpenJetStream(testContext(t), nc, ledger.Config{})
		if err == nil || !strings.Contains(err.Error(), "settings that lose messages") {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
}
