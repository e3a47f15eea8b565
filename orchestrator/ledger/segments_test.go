package ledger_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/proto"

	"github.com/outbid-dev/outbid/orchestrator/bus"
	"github.com/outbid-dev/outbid/orchestrator/ledger"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// streamsOf lists the streams of a ledger.
func streamsOf(t *testing.T, nc *nats.Conn, name string) (names []string) {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	list := js.ListStreams(testContext(t))
	for info := range list.Info() {
		if n := info.Config.Name; strings.HasPrefix(n, name) && !strings.HasSuffix(n, "_SNAPSHOTS") {
			names = append(names, n)
		}
	}
	if err := list.Err(); err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	return names
}

// notesIn reads a whole ledger and returns the text of each batch.
func notesIn(t *testing.T, l ledger.Ledger) (texts []string, last *outbidv1.Batch) {
	t.Helper()
	if err := l.Read(testContext(t), 1, func(b *outbidv1.Batch) error {
		events, err := ledger.Decode(b)
		if err != nil {
			return err
		}
		texts, last = append(texts, events[0].GetNote().GetText()), b
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return texts, last
}

func TestALedgerContinuesInAnotherStream(t *testing.T) {
	t.Parallel()
	for what, cfg := range map[string]ledger.Config{
		"after so many batches": {SegmentBatches: 40}, "after so many bytes": {SegmentBytes: 40 * 10_000},
	} {
		dir := t.TempDir()
		s := startServer(t, dir, 0)
		nc := connect(t, bus.ConnConfig{Server: s})
		reader, l := open(t, nc, ledger.Config{}), open(t, nc, cfg)
		text := strings.Repeat("x", 10_000)
		for i := range 200 {
			mustAppend(t, l, text)
			if last, err := reader.Last(testContext(t)); err != nil || last != uint64(i+1) {
				t.Fatalf("%s: a reader sees %d batches of %d: %v", what, last, i+1, err)
			}
		}
		names := streamsOf(t, nc, ledger.DefaultStream)
		if len(names) < 5 || len(names) > 6 || names[0] != "OUTBID_LEDGER" || names[1] != "OUTBID_LEDGER_2" {
			t.Errorf("%s: streams %v", what, names)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = startServer(t, dir, 0)
		again := open(t, connect(t, bus.ConnConfig{Server: s}), ledger.Config{})
		for _, from := range []uint64{1, 2, 40, 41, 42, 100, 150, 200, 201} {
			var read []uint64
			if err := again.Read(testContext(t), from, count(&read)); err != nil || len(read) != int(201-from) ||
				len(read) > 0 && read[0] != from {
				t.Errorf("%s: %d batches from %d: %v", what, len(read), from, err)
			}
		}
	}
}

// TestALedgerOfOneStreamContinues continues a ledger of earlier versions, which has one stream with any number of
// batches.
func TestALedgerOfOneStreamContinues(t *testing.T) {
	t.Parallel()
	nc := connect(t, bus.ConnConfig{Server: startServer(t, t.TempDir(), 0)})
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(testContext(t), jetstream.StreamConfig{
		Name: ledger.DefaultStream, Subjects: []string{"outbid.v1.ledger"}, Discard: jetstream.DiscardNew, DenyDelete: true,
		DenyPurge: true, Description: "what happened, in order",
	}); err != nil {
		t.Fatal(err)
	}
	var prev []byte
	for seq := range uint64(20) {
		b, err := ledger.NewBatch(seq+1, time.Now(), prev, notes("old"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := js.Publish(testContext(t), "outbid.v1.ledger", encoded(t, b)); err != nil {
			t.Fatal(err)
		}
		prev = b.GetHash()
	}
	l := open(t, nc, ledger.Config{SegmentBatches: 10})
	_, last := notesIn(t, l)
	l.Resume(last.GetSeq(), last.GetHash())
	mustAppend(t, l, "new")
	texts, _ := notesIn(t, l)
	names := streamsOf(t, nc, ledger.DefaultStream)
	if len(texts) != 21 || texts[20] != "new" || len(names) != 2 {
		t.Errorf("%d batches, the last is %q; streams %v", len(texts), texts[len(texts)-1], names)
	}
	if since, err := l.SinceLast(testContext(t)); err != nil || since <= 0 || since > time.Minute {
		t.Errorf("the last batch was stored %s ago, %v", since, err)
	}
}

// TestSealedAndNotContinued opens a ledger whose writer was killed between the two steps.
func TestSealedAndNotContinued(t *testing.T) {
	t.Parallel()
	nc := connect(t, bus.ConnConfig{Server: startServer(t, t.TempDir(), 0)})
	first := open(t, nc, ledger.Config{})
	last := mustAppend(t, first, "a")
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	seal := &nats.Msg{Subject: "outbid.v1.ledger", Header: nats.Header{"Outbid-Sealed": {"OUTBID_LEDGER_2"}}}
	if _, err := js.PublishMsg(testContext(t), seal, jetstream.WithExpectLastSequence(1)); err != nil {
		t.Fatal(err)
	}
	second := open(t, nc, ledger.Config{})
	if since, err := second.SinceLast(testContext(t)); err != nil || since <= 0 {
		t.Errorf("the last batch was stored %s ago, %v", since, err)
	}
	second.Resume(last.GetSeq(), last.GetHash())
	mustAppend(t, second, "b")
	if _, err := first.Append(testContext(t), time.Now(), notes("c")); !errors.Is(err, ledger.ErrConflict) {
		t.Errorf("a writer that was overtaken: %v", err)
	}
	if texts, _ := notesIn(t, first); !slices.Equal(texts, []string{"a", "b"}) {
		t.Errorf("it holds %v", texts)
	}
}

// TestAStreamThatWasHalfMade opens what a kill of NATS leaves while it creates a stream: settings without their
// checksum. NATS ignores such a stream when it starts, and does not write the checksum when it creates it again.
func TestAStreamThatWasHalfMade(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := startServer(t, dir, 0)
	l := open(t, connect(t, bus.ConnConfig{Server: s}), ledger.Config{SegmentBatches: 2})
	mustAppend(t, l, "a")
	last := mustAppend(t, l, "b")
	mustAppend(t, l, "in the next stream")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	stream := filepath.Join(dir, "store", "jetstream", "$G", "streams", "OUTBID_LEDGER_2")
	if err := errors.Join(os.RemoveAll(filepath.Join(stream, "msgs")), os.Remove(filepath.Join(stream, "meta.sum"))); err != nil {
		t.Fatal(err)
	}
	s = startServer(t, dir, 0)
	l = open(t, connect(t, bus.ConnConfig{Server: s}), ledger.Config{SegmentBatches: 2})
	l.Resume(last.GetSeq(), last.GetHash())
	mustAppend(t, l, "c")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = startServer(t, dir, 0)
	if texts, _ := notesIn(t, open(t, connect(t, bus.ConnConfig{Server: s}), ledger.Config{})); !slices.Equal(texts, []string{"a", "b", "c"}) {
		t.Errorf("the ledger has %v", texts)
	}
}

// TestStreamsThatDoNotFit opens a ledger with a replaced stream.
func TestStreamsThatDoNotFit(t *testing.T) {
	t.Parallel()
	nc := connect(t, bus.ConnConfig{Server: startServer(t, t.TempDir(), 0)})
	l := open(t, nc, ledger.Config{SegmentBatches: 2})
	for range 3 {
		mustAppend(t, l, "x")
	}
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if err := js.DeleteStream(testContext(t), "OUTBID_LEDGER_2"); err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(testContext(t), jetstream.StreamConfig{
		Name: "OUTBID_LEDGER_2", Subjects: []string{"outbid.v1.ledger.segment.2"}, FirstSeq: 7,
	}); err != nil {
		t.Fatal(err)
	}
	_, err = ledger.OpenJetStream(testContext(t), nc, ledger.Config{})
	wantDamage(t, err, 3, "ends with batch 2, and OUTBID_LEDGER_2 begins with 7")
}

// TestNATSWithAStreamLimit uses an account with a limit of streams: the ledger continues in the stream it has.
func TestNATSWithAStreamLimit(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	conf := filepath.Join(dir, "nats.conf")
	text := fmt.Sprintf(`jetstream { store_dir: %q }
		accounts { A { users: [{user: a, password: a}], jetstream: {max_streams: 3} } }`, dir)
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	opts, err := natsserver.ProcessConfigFile(conf)
	if err != nil {
		t.Fatal(err)
	}
	opts.Host, opts.Port, opts.NoSigs, opts.NoLog = "127.0.0.1", natsserver.RANDOM_PORT, true, true
	s, err := natsserver.NewServer(opts)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(time.Minute) {
		t.Fatal("NATS does not start")
	}
	nc, err := nats.Connect(s.ClientURL(), nats.UserInfo("a", "a"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	l := open(t, nc, ledger.Config{SegmentBatches: 4})
	for range 20 {
		mustAppend(t, l, "x")
	}
	names := streamsOf(t, nc, ledger.DefaultStream)
	if len(names) != 2 { // the other one is OUTBID_SNAPSHOTS, so the limit is reached
		t.Errorf("streams %v", names)
	}
}

// faultyConn applies a fault to a request by its number, and to all later ones.
type faultyConn struct {
	net.Conn
	fault *fault
}

// fault is what happens to a connection at request number at.
type fault struct {
	kind string // lost: the process dies before it sends; unanswered: after; late: it is frozen before it sends
	pad  string // appended to the text of every second batch
	at   int

	mu       sync.Mutex
	requests int
	frozen   chan struct{} // closed once it is frozen
	thaw     chan struct{}
}

func (f *fault) Dial(network, address string) (net.Conn, error) {
	conn, err := net.Dial(network, address) //nolint:noctx // the interface of the client
	return &faultyConn{Conn: conn, fault: f}, err
}

func (c *faultyConn) Write(p []byte) (int, error) {
	f := c.fault
	if !bytes.Contains(p, []byte("PUB ")) {
		return c.Conn.Write(p)
	}
	f.mu.Lock()
	f.requests++
	hit := f.requests == f.at
	f.mu.Unlock()
	switch {
	case !hit:
		return c.Conn.Write(p)
	case f.kind == "lost":
		return 0, errors.Join(net.ErrClosed, c.Close())
	case f.kind == "unanswered":
		_, err := c.Conn.Write(p)
		return 0, errors.Join(net.ErrClosed, err, c.finish())
	}
	close(f.frozen)
	<-f.thaw
	return c.Conn.Write(p)
}

// finish lets the server process what was sent, without an answer.
func (c *faultyConn) finish() error {
	conn, ok := c.Conn.(*net.TCPConn)
	if !ok {
		return c.Close()
	}
	return errors.Join(conn.CloseRead(), conn.CloseWrite())
}

// inParts returns a text that a server with a message limit of 64 KiB stores in three parts.
func inParts() string { return strings.Repeat("x", 150<<10) }

// TestWriterFailsAtEveryRequest kills or freezes a writer at each of its requests to NATS, including those that begin
// a segment, while another writer takes over. Every acknowledged batch is there once, whichever writer appended it.
func TestWriterFailsAtEveryRequest(t *testing.T) {
	t.Parallel()
	s := startSmallServer(t, t.TempDir())
	nc := connect(t, bus.ConnConfig{Server: s})
	for _, c := range []struct{ name, kind, pad string }{
		{"lost", "lost", ""},
		{"unanswered", "unanswered", ""},
		{"late", "late", ""},
		{"lost_in_parts", "lost", inParts()},
		{"unanswered_in_parts", "unanswered", inParts()},
		{"late_in_parts", "late", inParts()},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			every := 1
			if raceEnabled {
				every = 6 // make test also tries all of them without the race detector
			}
			for at := 1; ; at += every {
				f := &fault{kind: c.kind, pad: c.pad, at: at, frozen: make(chan struct{}), thaw: make(chan struct{})}
				failOnce(t, s.URL(), nc, ledger.Config{Stream: fmt.Sprint(strings.ToUpper(c.name), at, "X"), SegmentBatches: 2}, f)
				if f.requests < at {
					if at < 20 {
						t.Errorf("a writer made %d requests only", f.requests)
					}
					return
				}
				if t.Failed() {
					t.Fatalf("at request %d", at)
				}
			}
		})
	}
}

func failOnce(t *testing.T, url string, nc *nats.Conn, cfg ledger.Config, f *fault) {
	t.Helper()
	open(t, nc, cfg) // the fault affects the writer of an existing ledger
	var acked []string
	var mu sync.Mutex
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		own, err := nats.Connect(url, nats.SetCustomDialer(f), nats.NoReconnect(),
			nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
		if err != nil {
			return
		}
		defer own.Close()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		l, err := ledger.OpenJetStream(ctx, own, cfg)
		for i := 0; i < 6 && err == nil; i++ {
			text := fmt.Sprint("first ", i)
			if i%2 == 1 {
				text += f.pad
			}
			if _, err = l.Append(ctx, time.Now(), notes(text)); err == nil {
				mu.Lock()
				acked = append(acked, text)
				mu.Unlock()
			}
		}
	}()
	select {
	case <-ended:
	case <-f.frozen:
	}
	mu.Lock()
	before := slices.Clone(acked)
	mu.Unlock()
	second := open(t, nc, cfg)
	texts := takeOver(t, second)
	if n := len(texts) - 1; n < len(before) || n > len(before)+1 || !slices.Equal(texts[:len(before)], before) {
		t.Errorf("%d acknowledged, but the ledger has %.40q", len(before), texts)
	}
	for i := range 3 {
		text := fmt.Sprint("second ", i) + f.pad
		mustAppend(t, second, text)
		texts = append(texts, text)
	}
	close(f.thaw)
	<-ended
	if f.kind == "late" && len(acked) > len(before)+1 {
		t.Errorf("a deposed writer was told that %.40q were stored", acked[len(before):])
	}
	mustAppend(t, second, "end")
	got, _ := notesIn(t, open(t, nc, cfg))
	if !slices.Equal(got, append(texts, "end")) {
		t.Errorf("the ledger has %.40q, want %.40q and the end", got, texts)
	}
	for _, text := range acked {
		if !slices.Contains(got, text) {
			t.Errorf("%.40q was acknowledged and is not in %.40q", text, got)
		}
	}
}

// takeOver appends a batch, like a new leader, and returns the contents of the ledger. The last batch of the previous
// writer may arrive meanwhile: then it reads again.
func takeOver(t *testing.T, l ledger.Ledger) []string {
	t.Helper()
	for {
		texts, last := notesIn(t, l)
		l.Resume(last.GetSeq(), last.GetHash())
		_, err := l.Append(testContext(t), time.Now(), notes("taken over"))
		if err == nil {
			return append(texts, "taken over")
		}
		if !errors.Is(err, ledger.ErrConflict) {
			t.Fatal(err)
		}
	}
}

func encoded(t *testing.T, b *outbidv1.Batch) []byte {
	t.Helper()
	data, err := proto.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
