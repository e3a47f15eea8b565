package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// LeaderBucket is the key-value bucket of the leader's lease.
const LeaderBucket = "OUTBID_LEADER"

const (
	leaderKey = "leader"
	// defaultTTL is how long a leader leads after its last renewal.
	defaultTTL = 3 * time.Second
	minTTL     = 100 * time.Millisecond
	maxTTL     = time.Minute
	// writesPerTTL is the minimum number of writes per lease. The lease starts before its first write; the renewal
	// starts after a third of the TTL and must be finished in time.
	writesPerTTL = 4
)

// Candidate is a server that wants to lead.
type Candidate struct {
	// ID names the server for users.
	ID string
	// TTL is how long this leader's lease outlives its last renewal; 0 means 3 s. If NATS writes slowly the lease is
	// longer, up to a minute, because a lease that expires before it is confirmed would leave the cluster without a
	// leader.
	TTL time.Duration
	// Patience is how long beyond its TTL a leader continues if it cannot renew its lease but no other server has taken
	// it, such as when a disk of NATS stalls. Once another server leads, its appends are rejected. 0 means not at all.
	Patience time.Duration
	// Waits keeps a leader whose lease cannot be renewed until NATS answers again: another server may have taken over by
	// then, or not. Meanwhile Acts returns false once Patience is over.
	Waits bool
	// Force takes over at once. It is for a process that has just started the NATS server itself: the previous leader
	// used the previous NATS server. A previous leader that still writes is deposed safely.
	Force bool
	// Host and PID of the process, so that a later server on this machine can check whether it is alive.
	Host string
	PID  int
	// Replicas of the bucket in a NATS cluster; 0 means 1.
	Replicas int
	// Logger receives messages; nil discards them.
	Logger *slog.Logger
}

// Leader describes the current leader.
type Leader struct {
	ID string
	// Term increases with every new leader.
	Term uint64
	// Since is when it started to lead, by its own clock.
	Since time.Time
	// Host and PID of its process; empty if unknown.
	Host string
	PID  int
}

// leaderRecord is the value in the bucket. The revision of a leader's first write, which increases with every write, is
// its term. Clocks are not compared: a candidate takes over a record that has not changed for its TTL.
type leaderRecord struct {
	ID    string    `json:"id"`
	Nonce string    `json:"nonce"`
	TTLMs int64     `json:"ttl_ms"`
	Term  uint64    `json:"term,omitempty"` // 0 in the first write, whose revision is the term
	Since time.Time `json:"since"`
	Host  string    `json:"host,omitempty"`
	PID   int       `json:"pid,omitempty"`
}

func (r *leaderRecord) ttl() time.Duration {
	return min(time.Duration(r.TTLMs)*time.Millisecond, maxTTL)
}

// ErrNoLeader means that no server leads.
var ErrNoLeader = errors.New("no server leads")

// CurrentLeader returns the leader according to the bucket, even if it has just died.
func CurrentLeader(ctx context.Context, nc *nats.Conn) (Leader, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return Leader{}, fmt.Errorf("ask for the leader: %w", err)
	}
	kv, err := js.KeyValue(ctx, LeaderBucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return Leader{}, ErrNoLeader
	}
	if err != nil {
		return Leader{}, fmt.Errorf("ask for the leader: %w", err)
	}
	record, revision, err := readRecord(ctx, kv)
	switch {
	case err != nil:
		return Leader{}, fmt.Errorf("ask for the leader: %w", err)
	case record == nil:
		return Leader{}, ErrNoLeader
	case record.Term == 0:
		record.Term = revision
	}
	return Leader{ID: record.ID, Term: record.Term, Since: record.Since, Host: record.Host, PID: record.PID}, nil
}

// readRecord returns nil if the record does not exist.
func readRecord(ctx context.Context, kv jetstream.KeyValue) (*leaderRecord, uint64, error) {
	entry, err := kv.Get(ctx, leaderKey)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	record := new(leaderRecord)
	if err := json.Unmarshal(entry.Value(), record); err != nil {
		// An invalid value is not a lease, and is replaced like an expired one.
		record = &leaderRecord{}
	}
	return record, entry.Revision(), nil
}

// Leadership is the lease of this process. It is renewed until Resign, until the ctx of Campaign ends, or until it is
// lost: to another server, or because NATS could not be reached for the TTL.
type Leadership struct {
	kv       jetstream.KeyValue
	record   leaderRecord // the next record to write
	revision uint64
	until    time.Time
	tried    time.Time     // start of the first write after the last confirmed one, or zero
	shortest time.Duration // TTL if NATS writes fast
	patience time.Duration
	waits    bool
	move     *Mover
	// acts is until when the leader acts as such, and failing why the last renewal failed, or nil.
	acts    atomic.Pointer[time.Time]
	failing atomic.Pointer[error]
	// refused is set if NATS answered that it cannot renew the lease, such as with a full disk; then it does not wait.
	refused bool
	log     *slog.Logger

	cancel context.CancelFunc
	done   chan struct{}
	lost   chan struct{}
	lapsed bool
	// cause is the last error of a renewal, or nil.
	cause  error
	resign sync.Once
}

// Term returns the number of this leadership, which is greater than those of all earlier leaders.
func (l *Leadership) Term() uint64 { return l.record.Term }

// Lost returns a channel that is closed when this process no longer leads, also after Resign.
func (l *Leadership) Lost() <-chan struct{} { return l.lost }

// Lapsed reports, once Lost is closed, whether the lead was lost because NATS could not be reached, and not to another
// server.
func (l *Leadership) Lapsed() bool {
	select {
	case <-l.lost:
		return l.lapsed
	default:
		return false
	}
}

// Cause returns why the lease could not be renewed, once it has lapsed, or nil if unknown.
func (l *Leadership) Cause() error {
	if !l.Lapsed() {
		return nil
	}
	return l.cause
}

// Acts reports whether this process may give orders: its lease, with the patience, has not expired.
func (l *Leadership) Acts() bool { return time.Now().Before(*l.acts.Load()) }

// confirmAgain is how often Confirm looks whether the lease was renewed.
const confirmAgain = 20 * time.Millisecond

// Confirm returns once the lease is current, so that no other server can lead yet. The patience does not count.
func (l *Leadership) Confirm(ctx context.Context) error {
	if time.Now().Before(l.acts.Load().Add(-l.patience)) {
		return nil
	}
	again := time.NewTicker(confirmAgain)
	defer again.Stop()
	for !time.Now().Before(l.acts.Load().Add(-l.patience)) {
		select {
		case <-again.C:
		case <-l.lost:
			return errDeposed
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// Overdue returns for how long the lease has expired and could not be renewed, and the last error, or 0.
func (l *Leadership) Overdue() (time.Duration, error) {
	failing := l.failing.Load()
	if failing == nil {
		return 0, nil
	}
	return max(0, time.Since(l.acts.Load().Add(-l.patience))), *failing
}

// Resign ends the leadership, so that the next candidate can lead at once.
func (l *Leadership) Resign(ctx context.Context) error {
	var err error
	l.resign.Do(func() {
		l.cancel()
		<-l.done
		err = l.kv.Delete(ctx, leaderKey, jetstream.LastRevision(l.revision))
		if errors.Is(err, jetstream.ErrKeyRevisionMismatch) {
			err = l.resignLate(ctx)
		}
	})
	if err != nil {
		return fmt.Errorf("resign: %w", err)
	}
	return nil
}

// resignLate ends a leadership whose last renewal was interrupted. The renewal may have succeeded, or another server
// may already lead.
func (l *Leadership) resignLate(ctx context.Context) error {
	record, at, err := readRecord(ctx, l.kv)
	if err != nil || record == nil || record.Nonce != l.record.Nonce {
		return err
	}
	return l.kv.Delete(ctx, leaderKey, jetstream.LastRevision(at))
}

// keep renews the lease three times per TTL, and more often while that fails.
func (l *Leadership) keep(ctx context.Context) {
	defer close(l.done)
	defer close(l.lost)
	defer l.cancel()
	pause := l.pause()
	said := new(complaints)
	for {
		if !l.waits {
			pause = min(pause, time.Until(l.end()))
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		if !l.waits && !time.Now().Before(l.end()) {
			l.log.Warn("lost the lead: the lease could not be renewed", "term", l.record.Term)
			l.lapsed = true
			return
		}
		err := l.renew(ctx)
		pause = l.pause()
		switch {
		case errors.Is(err, errDeposed):
			l.log.Warn("lost the lead: another server has taken over", "term", l.record.Term)
			return
		case err != nil && ctx.Err() == nil:
			level := slog.LevelDebug
			if said.isNew(err.Error(), time.Now()) {
				level = slog.LevelWarn
			}
			l.log.Log(ctx, level, "cannot renew the leader's lease", "term", l.record.Term, "error", err)
			l.failing.Store(&err)
			l.move.Failed(time.Now())
			l.cause, pause = err, l.record.ttl()/10
			_, l.refused = errors.AsType[*jetstream.APIError](err)
		}
	}
}

// pause returns the time until the next renewal. It is zero if writes are so slow that the lease must become longer.
func (l *Leadership) pause() time.Duration {
	third := l.record.ttl() / 3
	return min(third, time.Until(l.until.Add(-2*third)))
}

// end returns when the leadership ends unless the lease is renewed.
func (l *Leadership) end() time.Time {
	if l.refused {
		return l.until
	}
	return l.until.Add(l.patience)
}

var (
	errDeposed = errors.New("another server leads")
	errLags    = errors.New("the answer came from a lagging replica of NATS")
)

// renew writes the record again. If the result of a write is unknown, the next attempt sees it as a conflict with this
// process.
func (l *Leadership) renew(ctx context.Context) error {
	ttl := l.record.ttl()
	value, err := json.Marshal(l.record)
	if err != nil {
		return err
	}
	start := time.Now()
	if l.tried.IsZero() {
		l.tried = start
		if soon := start.Add(ttl); soon.Before(l.until) { // others see the new TTL before this process knows
			l.extend(soon)
		}
	}
	if !l.waits {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, l.end())
		defer cancel()
	}
	ctx, giveUp := context.WithTimeout(ctx, ttl)
	defer giveUp()
	revision, err := l.kv.Update(ctx, leaderKey, value, l.revision)
	if errors.Is(err, jetstream.ErrKeyRevisionMismatch) {
		record, at, readErr := readRecord(ctx, l.kv)
		switch {
		case readErr != nil:
			return readErr
		case record != nil && at <= l.revision:
			return errLags
		case record == nil || record.Nonce != l.record.Nonce:
			return errDeposed
		}
		l.confirm(at, l.tried) // one of the writes since then
		return nil
	}
	if err != nil {
		return err
	}
	l.confirm(revision, start)
	return nil
}

// confirm records a successful write that began at start, and adapts the next TTL to its duration.
func (l *Leadership) confirm(revision uint64, start time.Time) {
	l.revision, l.tried, l.refused = revision, time.Time{}, false
	l.extend(start.Add(l.record.ttl()))
	l.failing.Store(nil)
	l.move.Worked()
	l.record.TTLMs = fittingTTL(l.shortest, time.Since(start)).Milliseconds()
}

// extend sets when the lease expires.
func (l *Leadership) extend(until time.Time) {
	l.until = until
	l.acts.Store(new(until.Add(l.patience)))
}

// fittingTTL returns the TTL for a given write latency.
func fittingTTL(shortest, write time.Duration) time.Duration {
	return min(max(shortest, writesPerTTL*write), maxTTL)
}
