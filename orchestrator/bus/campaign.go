package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
)

// Campaign blocks until this process leads, or ctx ends. The leadership ends with ctx.
func Campaign(ctx context.Context, nc *nats.Conn, c Candidate) (*Leadership, error) {
	if c.ID == "" {
		return nil, errors.New("campaign for the lead: the candidate has no ID")
	}
	if c.TTL == 0 {
		c.TTL = defaultTTL
	}
	if c.TTL < minTTL || c.TTL > maxTTL {
		return nil, fmt.Errorf("campaign for the lead: TTL %s: want %s to %s", c.TTL, minTTL, maxTTL)
	}
	run := campaign{
		shortest: c.TTL, patience: c.Patience, force: c.Force, log: orDiscard(c.Logger).With("candidate", c.ID),
		record: leaderRecord{ID: c.ID, Nonce: nuid.Next(), TTLMs: c.TTL.Milliseconds(), Host: c.Host, PID: c.PID},
	}
	// Without ctx's deadline every request has its own timeout, and is repeated if it was lost.
	watching, forget := context.WithCancel(context.WithoutCancel(ctx))
	defer forget()
	defer context.AfterFunc(ctx, forget)()
	watch, err := run.watch(watching, nc, c.Replicas)
	if err != nil {
		return nil, fmt.Errorf("campaign for the lead: %w", errors.Join(ctx.Err(), err))
	}
	lead, err := run.run(ctx, watch.Updates())
	if stopErr := watch.Stop(); stopErr != nil && ctx.Err() == nil {
		run.log.Warn("cannot end the watch on the lead", "error", stopErr)
	}
	if err != nil {
		return nil, fmt.Errorf("campaign for the lead: %w", err)
	}
	run.log.Info("this server leads", "term", lead.Term())
	return lead, nil
}

// peersPatience is how long the servers of a NATS cluster may take to connect to each other when all start together.
const peersPatience = time.Minute

// isForming reports whether NATS rejected a request because too few servers of its cluster are connected to each other
// yet: "no suitable peers for placement" (10005), or "JetStream temporarily unavailable" (10008).
func isForming(err error) bool {
	var refused jetstream.JetStreamError
	if !errors.As(err, &refused) || refused.APIError() == nil {
		return false
	}
	code := refused.APIError().ErrorCode
	return code == 10005 || code == 10008
}

// watch opens the bucket and watches the record until ctx ends. It retries after timeouts, and for a while if the
// servers of the NATS cluster are not connected to each other.
func (c *campaign) watch(ctx context.Context, nc *nats.Conn, replicas int) (jetstream.KeyWatcher, error) {
	patience := time.Now().Add(peersPatience)
	for told := false; ; {
		var watch jetstream.KeyWatcher
		kv, err := leaderBucket(ctx, nc, replicas)
		if err == nil {
			watch, err = kv.Watch(ctx, leaderKey, jetstream.UpdatesOnly(), jetstream.MetaOnly())
		}
		if err == nil {
			c.kv = kv
			return watch, nil
		}
		if isForming(err) && time.Now().Before(patience) && ctx.Err() == nil {
			if !told {
				c.log.Warn("the servers of the NATS cluster are not all connected to each other; retrying", "error", err)
			}
			told = true
			select {
			case <-time.After(200 * time.Millisecond):
			case <-ctx.Done():
			}
			continue
		}
		if late := errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrTimeout); !late || ctx.Err() != nil {
			return nil, fmt.Errorf("watch %s: %w", LeaderBucket, err)
		}
		c.log.Warn("NATS did not return the current leader in time; retrying", "error", err)
	}
}

func leaderBucket(ctx context.Context, nc *nats.Conn, replicas int) (jetstream.KeyValue, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	kv, err := js.KeyValue(ctx, LeaderBucket)
	if !errors.Is(err, jetstream.ErrBucketNotFound) {
		return kv, err
	}
	return js.CreateKeyValue(ctx, jetstream.KeyValueConfig{
		Bucket: LeaderBucket, Description: "which orchestrator leads",
		Storage: jetstream.FileStorage, Replicas: max(replicas, 1),
	})
}

// campaign is one attempt to become the leader.
type campaign struct {
	kv jetstream.KeyValue
	// record is the next record to write. Its TTL is adapted to NATS's write latency.
	record leaderRecord
	// shortest is the TTL if NATS writes fast.
	shortest time.Duration
	// patience is how long the leadership outlives its TTL.
	patience time.Duration
	force    bool
	log      *slog.Logger

	holder  string    // of the newest record
	seen    uint64    // its revision
	expires time.Time // when it expires if it does not change
	failed  error     // the error of the last attempt, or nil
}

func (c *campaign) run(ctx context.Context, updates <-chan jetstream.KeyValueEntry) (*Leadership, error) {
	for {
		start := time.Now()
		lead, err := c.try(ctx)
		c.record.TTLMs = fittingTTL(c.shortest, time.Since(start)).Milliseconds()
		if lead != nil {
			return lead, nil
		}
		if ctx.Err() == nil {
			c.failed = err
		}
		pause := c.shortest / 4
		if err != nil && ctx.Err() == nil {
			c.log.Warn("cannot campaign for the lead; retrying", "error", err)
		} else if left := time.Until(c.expires); left > 0 {
			pause = min(pause, left)
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-updates:
			timer.Stop()
		case <-ctx.Done():
			timer.Stop()
			return nil, errors.Join(ctx.Err(), c.failed)
		}
	}
}

// try takes the lead if it is free, or if the leader's record has not changed for its TTL.
func (c *campaign) try(ctx context.Context) (*Leadership, error) {
	ttl := c.record.ttl()
	short, cancel := context.WithTimeout(ctx, max(ttl, connectTimeout))
	defer cancel()
	current, revision, err := readRecord(short, c.kv)
	if err != nil {
		return nil, err
	}
	c.record.Since, c.record.Term = time.Now().UTC(), 0
	value, err := json.Marshal(c.record)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	switch {
	case current == nil:
		revision, err = c.kv.Create(short, leaderKey, value)
	case c.force || current.Nonce == c.record.Nonce || c.expired(current, revision):
		revision, err = c.kv.Update(short, leaderKey, value, revision)
	default:
		return nil, nil
	}
	if errors.Is(err, jetstream.ErrKeyExists) || errors.Is(err, jetstream.ErrKeyRevisionMismatch) {
		return nil, nil // another candidate was faster
	}
	if err != nil {
		return nil, err
	}
	if took := time.Since(start); took >= ttl {
		c.log.Warn("NATS wrote so slowly that the leader's lease expired; requesting a longer one", "took", took, "ttl", ttl)
		return nil, nil
	}
	return c.lead(ctx, revision, start), nil
}

// expired reports whether a record has expired, measured by this process's clock.
func (c *campaign) expired(current *leaderRecord, revision uint64) bool {
	if c.seen != revision || c.expires.IsZero() {
		if c.holder != current.Nonce {
			c.log.Info("another server leads; standing by", "leader", current.ID)
		}
		c.seen, c.holder, c.expires = revision, current.Nonce, time.Now().Add(current.ttl())
	}
	return !time.Now().Before(c.expires)
}

func (c *campaign) lead(ctx context.Context, revision uint64, start time.Time) *Leadership {
	ctx, cancel := context.WithCancel(ctx)
	c.record.Term = revision
	l := &Leadership{
		kv: c.kv, record: c.record, shortest: c.shortest, patience: c.patience, log: c.log,
		cancel: cancel, done: make(chan struct{}), lost: make(chan struct{}),
	}
	l.confirm(revision, start)
	go l.keep(ctx)
	return l
}
