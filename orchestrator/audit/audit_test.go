package audit

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/outbid-dev/outbid/orchestrator/bus"
	"github.com/outbid-dev/outbid/orchestrator/limits"
)

func connect(t *testing.T) *nats.Conn {
	t.Helper()
	s, err := bus.StartServer(bus.ServerConfig{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	nc, err := bus.Connect(t.Context(), bus.ConnConfig{URL: s.URL()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

func open(t *testing.T, nc *nats.Conn, cfg Config) *Log {
	t.Helper()
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	cfg.Logger = slog.New(slog.DiscardHandler)
	l, err := Open(nc, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func call(verb, name string) Event {
	return Event{
		Verb: verb, User: User{Username: "ann"}, ObjectRef: &ObjectRef{Resource: "sweeps", Namespace: "vision", Name: name},
		ResponseStatus: Status{Code: 200, Reason: "OK"},
	}
}

func denial(name string) Event {
	e := call("delete", name)
	e.Annotations = map[string]string{AnnotationDenied: DeniedRole}
	return e
}

// read returns every stored line.
func read(t *testing.T, l *Log) (lines []string) {
	t.Helper()
	_, left, err := l.Read(t.Context(), Query{Scan: 100_000}, func(line []byte) bool { lines = append(lines, string(line)); return true })
	if err != nil || left {
		t.Fatalf("%v, left %v", err, left)
	}
	return lines
}

func verify(lines []string, anchor *Anchor) (Verifier, error) {
	v := Verifier{Anchor: anchor}
	for _, line := range lines {
		if err := v.Add([]byte(line)); err != nil {
			return v, err
		}
	}
	return v, v.End()
}

func names(t *testing.T, lines []string) (found []string) {
	t.Helper()
	for _, line := range lines {
		r, err := Parse([]byte(line))
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, r.ObjectRef.Name)
	}
	return found
}

// TestRecordsAreStoredInAChain checks that a record is stored when Record returns, that another process continues the
// chain, and that the file has the same lines.
func TestRecordsAreStoredInAChain(t *testing.T) {
	t.Parallel()
	nc, file := connect(t), &bytes.Buffer{}
	l := open(t, nc, Config{File: file})
	for i := range 3 {
		l.Record(t.Context(), call("create", fmt.Sprint("s-", i)))
		if got := read(t, l); len(got) != i+1 {
			t.Fatalf("%d records after call %d", len(got), i+1)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l = open(t, nc, Config{})
	l.Record(t.Context(), call("create", "s-3"))
	lines := read(t, l)
	v, err := verify(lines, nil)
	if err != nil || v.Records != 4 || v.First.Seq != 1 || v.Last.Seq != 4 {
		t.Errorf("%+v, %v", v, err)
	}
	if got := names(t, lines); !slices.Equal(got, []string{"s-0", "s-1", "s-2", "s-3"}) {
		t.Errorf("%v", got)
	}
	if want := strings.Join(lines[:3], "\n") + "\n"; file.String() != want {
		t.Errorf("the file has\n%s\nwant\n%s", file, want)
	}
}

// TestTwoWritersDoNotForkTheChain lets a deposed leader and its successor write at once.
func TestTwoWritersDoNotForkTheChain(t *testing.T) {
	t.Parallel()
	nc := connect(t)
	logs := []*Log{open(t, nc, Config{}), open(t, nc, Config{})}
	var calls sync.WaitGroup
	for i := range 40 {
		calls.Go(func() { logs[i%2].Record(t.Context(), call("create", fmt.Sprint("s-", i))) })
	}
	calls.Wait()
	for _, l := range logs {
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	lines := read(t, logs[0])
	if v, err := verify(lines, nil); err != nil || v.Records != 40 {
		t.Errorf("%d records, %v", v.Records, err)
	}
	got := names(t, lines)
	slices.Sort(got)
	if n := len(slices.Compact(got)); n != 40 {
		t.Errorf("%d different records, want 40", n)
	}
}

// TestVerifyFindsEveryKindOfTampering damages a good chain.
func TestVerifyFindsEveryKindOfTampering(t *testing.T) {
	t.Parallel()
	var lines []string
	prev := ""
	for i := range 6 {
		line, hash, err := seal(prev, uint64(i+1), call("create", fmt.Sprint("s-", i)))
		if err != nil {
			t.Fatal(err)
		}
		lines, prev = append(lines, string(line)), hash
	}
	good, err := verify(lines, nil)
	if err != nil {
		t.Fatal(err)
	}
	forged, _, err := seal(good.First.Hash, 2, call("create", "forged"))
	if err != nil {
		t.Fatal(err)
	}
	first, end := good.First, good.Last
	other := Anchor{3, strings.Repeat("0", 64)}
	for name, tc := range map[string]struct {
		lines  []string
		anchor *Anchor
		want   string
	}{
		"intact":               {lines, &end, ""},
		"old records deleted":  {lines[2:], &end, ""},
		"changed":              {append([]string{lines[0], strings.Replace(lines[1], "ann", "bob", 1)}, lines[2:]...), nil, "record 2 was changed"},
		"changed and rehashed": {append([]string{lines[0], string(forged)}, lines[2:]...), nil, "record 3 does not follow record 2"},
		"removed":              {append([]string{lines[0]}, lines[2:]...), nil, "record 3 follows record 1"},
		"reordered":            {[]string{lines[0], lines[2], lines[1]}, nil, "record 3 follows record 1"},
		"repeated":             {[]string{lines[0], lines[0]}, nil, "record 1 follows record 1"},
		"not a record":         {[]string{lines[0], "{}"}, nil, "after record 1"},
		"end removed":          {lines[:4], &end, "its end was removed"},
		"replaced":             {lines, &other, "was replaced"},
		"anchor deleted":       {lines[2:], &first, "use a newer anchor"},
	} {
		_, err := verify(tc.lines, tc.anchor)
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}

// TestAForgedRecordInTheStreamIsFound writes to the stream without the log, which the cluster's keys allow.
func TestAForgedRecordInTheStreamIsFound(t *testing.T) {
	t.Parallel()
	nc := connect(t)
	l := open(t, nc, Config{})
	l.Record(t.Context(), call("create", "s-1"))
	forged, _, err := seal(strings.Repeat("0", 64), 2, call("create", "forged"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.store.js.Publish(t.Context(), Subject, forged); err != nil {
		t.Fatal(err)
	}
	l.Record(t.Context(), call("create", "s-2")) // the log continues after it
	lines := read(t, l)
	if len(lines) != 3 {
		t.Fatalf("%d records", len(lines))
	}
	if _, err := verify(lines, nil); err == nil || !strings.Contains(err.Error(), "record 2 does not follow record 1") {
		t.Errorf("%v", err)
	}
}

// TestTheStreamRefusesDeletion checks that JetStream itself does not remove records.
func TestTheStreamRefusesDeletion(t *testing.T) {
	t.Parallel()
	nc := connect(t)
	l := open(t, nc, Config{})
	l.Record(t.Context(), call("create", "s-1"))
	stream, err := l.store.js.Stream(t.Context(), Stream)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.DeleteMsg(t.Context(), 1); err == nil {
		t.Error("a record was deleted")
	}
	if err := stream.Purge(t.Context()); err == nil {
		t.Error("the stream was purged")
	}
	if cfg := stream.CachedInfo().Config; cfg.MaxBytes != limits.AuditBytes || cfg.MaxAge != limits.AuditAge {
		t.Errorf("limits %d, %s", cfg.MaxBytes, cfg.MaxAge)
	}
}

// TestAFailingStreamDoesNotStopCalls makes the stream impossible, overflows the queue, and repairs it.
func TestAFailingStreamDoesNotStopCalls(t *testing.T) {
	t.Parallel()
	nc := connect(t)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "OTHER", Subjects: []string{Subject}}); err != nil {
		t.Fatal(err)
	}
	l := open(t, nc, Config{queue: 5})
	l.Record(t.Context(), call("create", "first")) // waits until the write fails, a second at most
	began := time.Now()
	for i := range 20 {
		l.Record(t.Context(), call("create", fmt.Sprint("s-", i)))
	}
	if took := time.Since(began); took > recordWait {
		t.Errorf("20 calls took %s", took)
	}
	lost := l.lost.Load()
	if l.Check() == nil || lost == 0 || lost+uint64(l.waiting.Load()) != 21 {
		t.Errorf("%v, lost %d, waiting %d", l.Check(), lost, l.waiting.Load())
	}
	if err := js.DeleteStream(t.Context(), "OTHER"); err != nil {
		t.Fatal(err)
	}
	await(t, func() bool { return l.Check() == nil && l.waiting.Load() == 0 })
	l.Record(t.Context(), call("create", "last"))
	v, err := verify(read(t, l), nil)
	if err != nil || v.Lost != lost || v.Records != 21-lost+2 { // the gap and the last
		t.Errorf("%+v, %v; lost %d", v, err, lost)
	}
}

// await waits for a condition.
func await(t *testing.T, done func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	timeout := time.After(time.Minute)
	for !done() {
		select {
		case <-tick.C:
		case <-timeout:
			t.Fatal("the condition was not met within a minute")
		}
	}
}

// TestRepeatedDenialsAreCounted checks that a client in a loop cannot displace other records.
func TestRepeatedDenialsAreCounted(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	f := newFlood()
	var recorded int
	for range 1000 {
		e := denial("s-1")
		if _, ok := f.admit(&e, now); ok {
			recorded++
		}
	}
	if recorded != floodDenials {
		t.Errorf("%d denials were recorded, want %d", recorded, floodDenials)
	}
	other := denial("s-1")
	other.User.Username = "bob"
	if _, ok := f.admit(&other, now); !ok {
		t.Error("another caller's denial was not recorded")
	}
	allowed := call("create", "s-2")
	if _, ok := f.admit(&allowed, now); !ok {
		t.Error("an allowed call was not recorded")
	}
	later := denial("s-1")
	if n, ok := f.admit(&later, now.Add(floodWindow)); !ok || n != 1000-floodDenials {
		t.Errorf("%d suppressed, %v", n, ok)
	}
}

// TestEventsAreBoundedAndValid gives every field invalid and long text.
func TestEventsAreBoundedAndValid(t *testing.T) {
	t.Parallel()
	bad := "\x1b[31m\xff\n" + strings.Repeat("x", 10_000)
	e := Event{
		AuditID: bad, Stage: bad, RequestURI: bad, Verb: bad, User: User{Username: bad, Groups: slices.Repeat([]string{bad}, 100)},
		SourceIPs: slices.Repeat([]string{bad}, 100), UserAgent: bad, ObjectRef: &ObjectRef{bad, bad, bad},
		ResponseStatus: Status{Reason: bad, Message: bad}, Annotations: map[string]string{bad: bad},
	}
	for i := range 100 {
		e.Annotations[fmt.Sprint(i)] = bad
	}
	line, _, err := seal("", 1, e)
	if err != nil || len(line) > limits.Message/2 || !utf8.Valid(line) || bytes.ContainsAny(line, "\n\x1b") {
		t.Errorf("%d bytes, %v", len(line), err)
	}
	if _, err := Parse(line); err != nil {
		t.Error(err)
	}
}

// TestReadStartsAtATime reads the records since a time, page by page.
func TestReadStartsAtATime(t *testing.T) {
	t.Parallel()
	l := open(t, connect(t), Config{})
	for i := range 5 {
		l.Record(t.Context(), call("create", fmt.Sprint("s-", i)))
	}
	stream, err := l.store.js.Stream(t.Context(), Stream)
	if err != nil {
		t.Fatal(err)
	}
	third, err := stream.GetMsg(t.Context(), 3)
	if err != nil {
		t.Fatal(err)
	}
	q := Query{Since: third.Time, Scan: 2}
	var pages [][]string
	for left := true; left; {
		var lines []string
		q.After, left, err = l.Read(t.Context(), q, func(line []byte) bool { lines = append(lines, string(line)); return true })
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, names(t, lines))
	}
	if want := [][]string{{"s-2", "s-3"}, {"s-4"}}; !slices.EqualFunc(pages, want, slices.Equal[[]string]) {
		t.Errorf("%v, want %v", pages, want)
	}
	q.Since = time.Now().Add(time.Hour)
	if last, left, err := l.Read(t.Context(), q, func([]byte) bool { t.Error("a record"); return true }); err != nil || left || last != 5 {
		t.Errorf("%d, %v, %v", last, left, err)
	}
}
