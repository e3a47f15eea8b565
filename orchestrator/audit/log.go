package audit

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// queueLength is how many records wait while the stream cannot be written; beyond it, the tenant with most of them loses
	// its newest ones, which are counted.
	queueLength = 10_000
	// lookBack is among how many last records a failed write is searched.
	lookBack = 100
	// recordWait is how long a call waits until its record is stored.
	recordWait = time.Second
	// writeTimeout limits one write.
	writeTimeout = 3 * time.Second
	// retryEvery is how long a failed write is repeated after.
	retryEvery = time.Second
)

// Config configures a Log.
type Config struct {
	// Replicas of the stream in a NATS cluster; 0 means 1.
	Replicas int
	// Now is the clock.
	Now func() time.Time
	// File, if not nil, also receives every stored line.
	File io.Writer
	// Logger receives warnings.
	Logger *slog.Logger

	// queue is how many records may wait; queueLength if it is 0.
	queue int
}

// Log writes the audit. A stream that cannot be written does not stop calls: records wait in memory, and beyond
// queueLength they are lost; the next stored record states how many. It is safe for concurrent use.
type Log struct {
	cfg    Config
	store  store
	flood  flood
	queue  *queue
	stop   chan struct{}
	done   chan struct{}
	closed sync.Once

	failing             atomic.Bool
	fileErr             atomic.Pointer[error]
	fileFailures        atomic.Uint64
	written, lost       atomic.Uint64
	unreported, waiting atomic.Int64
}

// entry is an event that waits to be stored; done is closed once it is stored or lost.
type entry struct {
	event Event
	done  chan struct{}
}

// Open returns a Log that writes until Close. It does not wait for the stream.
func Open(nc *nats.Conn, cfg Config) (*Log, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("open the audit: %w", err)
	}
	if cfg.queue == 0 {
		cfg.queue = queueLength
	}
	l := &Log{
		cfg: cfg, store: store{js, cfg.Replicas}, flood: newFlood(), queue: newQueue(cfg.queue),
		stop: make(chan struct{}), done: make(chan struct{}),
	}
	go l.run()
	return l, nil
}

// Record adds an event to the audit. It returns once the event is stored, and after a second at the latest. While the
// stream cannot be written it does not wait.
func (l *Log) Record(ctx context.Context, e Event) {
	now := l.cfg.Now()
	suppressed, ok := l.flood.admit(&e, now)
	if !ok {
		return
	}
	if suppressed > 0 {
		e.annotate(AnnotationSuppressed, strconv.FormatInt(suppressed, 10))
	}
	e.AuditID, e.Stage, e.StageTimestamp = rand.Text(), "ResponseComplete", now
	if e.RequestReceivedTimestamp.IsZero() {
		e.RequestReceivedTimestamp = now
	}
	added := entry{e, make(chan struct{})}
	l.waiting.Add(1)
	if e, full := l.queue.push(added); full {
		close(e.done)
		l.waiting.Add(-1)
		l.lost.Add(1)
		l.unreported.Add(1)
	}
	if l.failing.Load() {
		return
	}
	timeout := time.NewTimer(recordWait)
	defer timeout.Stop()
	select {
	case <-added.done:
	case <-timeout.C:
	case <-l.done:
	case <-ctx.Done():
	}
}

func (e *Event) annotate(key, value string) {
	notes := map[string]string{key: value}
	for k, v := range e.Annotations {
		notes[k] = v
	}
	e.Annotations = notes
}

// Close stores the waiting records, and gives up after a few seconds.
func (l *Log) Close() error {
	l.closed.Do(func() { close(l.stop) })
	<-l.done
	if n := l.waiting.Load(); n > 0 {
		return fmt.Errorf("%d records of the audit could not be stored", n)
	}
	return nil
}

// run stores records until Close.
func (l *Log) run() {
	defer close(l.done)
	var tail *Anchor
	for {
		e, ok := l.next()
		if !ok {
			return
		}
		if lost := l.unreported.Swap(0); lost > 0 {
			l.waiting.Add(1)
			if tail = l.write(tail, entry{l.gap(lost), make(chan struct{})}); tail == nil {
				return
			}
		}
		if tail = l.write(tail, e); tail == nil {
			return
		}
	}
}

// next waits for a record. After Close it returns false once all are stored.
func (l *Log) next() (entry, bool) {
	for {
		if e, ok := l.queue.pop(); ok {
			return e, true
		}
		select {
		case <-l.queue.added:
		case <-l.stop:
			return l.queue.pop()
		}
	}
}

// write stores a record, and tries again until it is stored or the log closes. It returns the new tail, or nil if the
// record could not be stored before the log closed.
func (l *Log) write(tail *Anchor, e entry) *Anchor {
	for retry := false; ; retry = true {
		last, err := l.tryWrite(tail, e, retry)
		if err == nil {
			if l.failing.Swap(false) {
				l.cfg.Logger.Info("the audit is stored again")
			}
			return &last
		}
		tail = nil
		if errors.Is(err, errConflict) {
			continue
		}
		if !l.failing.Swap(true) {
			l.cfg.Logger.Warn("the audit cannot be stored; calls continue, and their records wait in memory", "err", err)
		}
		select {
		case <-l.stop:
			return nil
		case <-time.After(retryEvery):
		}
	}
}

// gap returns the record that states how many records were lost.
func (l *Log) gap(lost int64) Event {
	now := l.cfg.Now()
	return Event{
		AuditID: rand.Text(), Stage: "ResponseComplete", Verb: "lose", User: User{Username: Server}, RequestReceivedTimestamp: now, StageTimestamp: now,
		ObjectRef: &ObjectRef{Resource: "auditrecords"}, ResponseStatus: Status{Code: 503, Reason: "UNAVAILABLE"},
		Annotations: map[string]string{AnnotationLost: strconv.FormatInt(lost, 10)},
	}
}

// tryWrite stores a record after the tail, which it reads if it is nil. On a retry it first checks whether the earlier
// try has stored the record although it failed. It returns the new tail.
func (l *Log) tryWrite(tail *Anchor, e entry, retry bool) (last Anchor, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), writeTimeout)
	defer cancel()
	if tail != nil {
		last = *tail
	} else if last, err = l.store.tail(ctx); err != nil {
		return last, err
	}
	if retry {
		if line := l.stored(ctx, e.event.AuditID, last.Seq); line != nil {
			l.finish(e, line)
			return last, nil
		}
	}
	line, hash, err := seal(last.Hash, last.Seq+1, e.event)
	if err == nil {
		err = l.store.append(ctx, last.Seq, line)
	}
	if err != nil {
		return last, err
	}
	l.finish(e, line)
	return Anchor{last.Seq + 1, hash}, nil
}

// stored returns the line of a record if it is among the last ones, or nil.
func (l *Log) stored(ctx context.Context, id string, last uint64) (found []byte) {
	from := last - min(last, lookBack)
	_, _, err := l.Read(ctx, Query{After: from, Scan: lookBack}, func(line []byte) bool {
		if r, err := Parse(line); err == nil && r.AuditID == id {
			found = append(found, line...)
		}
		return found == nil
	})
	if err != nil {
		return nil // a record that is stored twice is better than none
	}
	return found
}

// finish marks an entry as stored and writes its line to the file.
func (l *Log) finish(e entry, line []byte) {
	l.written.Add(1)
	l.waiting.Add(-1)
	close(e.done)
	if l.cfg.File != nil {
		l.appendToFile(line)
	}
}

// appendToFile writes a line to the file. The first of several failures is logged.
func (l *Log) appendToFile(line []byte) {
	_, err := l.cfg.File.Write(append(line, '\n'))
	switch {
	case err == nil:
		if l.fileErr.Swap(nil) != nil {
			l.cfg.Logger.Info("the audit's file is written again")
		}
		return
	case l.fileErr.Swap(&err) == nil:
		l.cfg.Logger.Error("the audit's file cannot be written; records are stored in NATS only", "err", err)
	}
	l.fileFailures.Add(1)
}

// Check returns an error if the stream, or the file, cannot be written now.
func (l *Log) Check() error {
	if l.failing.Load() {
		return errors.New("the audit cannot be stored: NATS takes no records; calls continue")
	}
	if err := l.fileErr.Load(); err != nil {
		return fmt.Errorf("the audit's file cannot be written, and lacks records that NATS has: %w", *err)
	}
	return nil
}
