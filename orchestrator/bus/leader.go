package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// LeaderBucket is the key-value bucket of the leader's lease.
const LeaderBucket = "OUTBID_LEADER"

const (
	leaderKey = "leader"
	// defaultTTL is how long a leader that says nothing more goes on leading.
	defaultTTL = 3 * time.Second
	minTTL     = 100 * time.Millisecond
	maxTTL     = time.Minute
	// writesPerTTL is how many writes fit in a lease at least: it counts from before the write that began it, the next begins a
	// third later and is to be over in time.
	writesPerTTL = 4
)

// Candidate is an orchestrator that wants to lead.
type Candidate struct {
	// ID names the orchestrator for people.
	ID string
	// TTL is how long this leader's lease outlives its last word; 0 means 3 s. Where NATS takes long to write, the lease is
	// longer, a minute at most: one that is over before it is confirmed would leave everybody without a leader.
	TTL time.Duration
	// Patience is how long beyond its TTL a leader goes on that cannot renew its lease while nobody else has taken it: a disk of
	// NATS that stalls is not a rival. What it appends is refused once somebody else has. 0 for not at all.
	Patience time.Duration
	// Force takes over at once. It is for the process that runs the NATS server itself and has just started it: the
	// leader of before is gone with the server of before. Another that still writes is deposed, not endangered.
	Force bool
	// Host and PID of the process that leads, so that the next one of this machine knows whether it is alive.
	Host string
	PID  int
	// Replicas of the bucket in a NATS cluster; 0 means 1.
	Replicas int
	// Logger gets what happens; nil drops it.
	Logger *slog.Logger
}

// Leader describes who leads.
type Leader struct {
	ID string
	// Term grows with every new leader.
	Term uint64
	// Since is when it began to lead, by its own clock.
	Since time.Time
	// Host and PID of its process; empty if it did not say.
	Host string
	PID  int
}

// leaderRecord is the value in the bucket. Its revision, which grows with every write, is the term of the leader that
// wrote it first. Nobody compares clocks: a candidate takes over a record that has not changed for its TTL.
type leaderRecord struct {
	ID    string    `json:"id"`
	Nonce string    `json:"nonce"`
	TTLMs int64     `json:"ttl_ms"`
	Term  uint64    `json:"term,omitempty"` // 0 in the first write, when it is the revision itself
	Since time.Time `json:"since"`
	Host  string    `json:"host,omitempty"`
	PID   int       `json:"pid,omitempty"`
}

func (r *leaderRecord) ttl() time.Duration {
	return min(time.Duration(r.TTLMs)*time.Millisecond, maxTTL)
}

// ErrNoLeader says that nobody leads.
var ErrNoLeader = errors.New("no orchestrator leads")

// CurrentLeader returns who leads, as far as the bucket says; a leader that has just died still shows.
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

// readRecord returns nil if there is none.
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
		// Somebody wrote something else: it is nobody's lease, and replaced like one that has run out.
		record = &leaderRecord{}
	}
	return record, entry.Revision(), nil
}

// Leadership is the lease of this process. It is renewed until Resign, or until ctx of Campaign ends, or until it is
// lost to another orchestrator or because NATS could not be reached for the TTL.
type Leadership struct {
	kv       jetstream.KeyValue
	record   leaderRecord // as the next write says it
	revision uint64
	until    time.Time
	tried    time.Time     // when the first write after the last one that was confirmed began; zero if there is none
	shortest time.Duration // TTL where NATS writes fast
	patience time.Duration
	// refused: NATS answered, and will not renew the lease; a full disk is not waited for.
	refused bool
	log     *slog.Logger

	cancel context.CancelFunc
	done   chan struct{}
	lost   chan struct{}
	lapsed bool
	// cause is why the lease could not be renewed at last; nil if nothing failed.
	cause  error
	resign sync.Once
}

// Term is the number of this leadership: greater than that of every leader before.
func (l *Leadership) Term() uint64 { return l.record.Term }

// Lost is closed when this process leads no more, also by Resign.
func (l *Leadership) Lost() <-chan struct{} { return l.lost }

// Lapsed says, once Lost is closed, whether the lead was lost because NATS could not be reached, and not to another
// orchestrator.
func (l *Leadership) Lapsed() bool {
	select {
	case <-l.lost:
		return l.lapsed
	default:
		return false
	}
}

// Cause is why the lease could not be renewed, once it has lapsed; nil if that is not known.
func (l *Leadership) Cause() error {
	if !l.Lapsed() {
		return nil
	}
	return l.cause
}

// Resign ends the leadership and lets the next candidate lead at once.
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

// resignLate ends a leadership whose last renewal was cut off, and was done all the same; or that is another's already.
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
	for {
		timer := time.NewTimer(min(pause, time.Until(l.end())))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		if !time.Now().Before(l.end()) {
			l.log.Warn("lost the lead: the lease could not be renewed", "term", l.record.Term)
			l.lapsed = true
			return
		}
		err := l.renew(ctx)
		pause = l.pause()
		switch {
		case errors.Is(err, errDeposed):
			l.log.Warn("lost the lead: another orchestrator has taken over", "term", l.record.Term)
			return
		case err != nil && ctx.Err() == nil:
			l.log.Warn("cannot renew the lease on the lead", "term", l.record.Term, "error", err)
			l.cause, pause = err, l.record.ttl()/10
			_, l.refused = errors.AsType[*jetstream.APIError](err)
		}
	}
}

// pause is how long the next renewal has time: none if writes take so long that the lease is to become longer.
func (l *Leadership) pause() time.Duration {
	third := l.record.ttl() / 3
	return min(third, time.Until(l.until.Add(-2*third)))
}

// end is when it stops leading unless the lease is renewed before.
func (l *Leadership) end() time.Time {
	if l.refused {
		return l.until
	}
	return l.until.Add(l.patience)
}

var (
	errDeposed = errors.New("another orchestrator leads")
	errLags    = errors.New("a replica of NATS that lags behind answered")
)

// renew writes the record again. A write whose fate is unknown shows as a conflict with ourselves at the next try.
func (l *Leadership) renew(ctx context.Context) error {
	ttl := l.record.ttl()
	value, err := json.Marshal(l.record)
	if err != nil {
		return err
	}
	start := time.Now()
	if l.tried.IsZero() {
		l.tried = start
		if soon := start.Add(ttl); soon.Before(l.until) { // others see the new TTL before this process knows that they do
			l.until = soon
		}
	}
	ctx, cancel := context.WithDeadline(ctx, l.end())
	defer cancel()
	ctx, giveUp := context.WithTimeout(ctx, ttl)
	defer giveUp()
	revision, err := l.kv.Update(ctx, leaderKey, value, l.revision)
	if errors.Is(err, jetstream.ErrKeyRevisionMismatch) {
		record, at, readErr := readRecord(ctx, l.kv)
		switch {
		case readErr != nil:
			return readErr
		case record == nil || record.Nonce != l.record.Nonce:
			return errDeposed
		case at <= l.revision:
			return errLags
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

// confirm takes note of a write that began at start and was done, and of how long it took: the next asks for a lease to suit.
func (l *Leadership) confirm(revision uint64, start time.Time) {
	l.revision, l.until, l.tried, l.refused = revision, start.Add(l.record.ttl()), time.Time{}, false
	l.record.TTLMs = fittingTTL(l.shortest, time.Since(start)).Milliseconds()
}

// fittingTTL is how long a lease has to be where a write takes so long.
func fittingTTL(shortest, write time.Duration) time.Duration {
	return min(max(shortest, writesPerTTL*write), maxTTL)
}
