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
		shortest: c.TTL, patience: c.Patience, waits: c.Waits, move: &Mover{NC: nc}, force: c.Force, log: orDiscard(c.Logger).With("candidate", c.ID),
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

// watch opens the bucket and watches the record until ctx ends. It retries for as long as NATS does not answer.
func (c *campaign) watch(ctx context.Context, nc *nats.Conn, replicas int) (jetstream.KeyWatcher, error) {
	said := new(complaints)
	failed := func(err error) {
		if said.isNew(err.Error(), time.Now()) {
			c.log.Warn("NATS does not return the current leader; retrying", "error", err)
		}
	}
	for {
		kv, err := leaderBucket(ctx, nc, replicas, failed)
		if err == nil {
			c.kv = kv
			var watch jetstream.KeyWatcher
			if watch, err = kv.Watch(ctx, leaderKey, jetstream.UpdatesOnly(), jetstream.MetaOnly()); err == nil {
				return watch, nil
			}
		}
		if !IsAway(err) || isForming(err) || ctx.Err() != nil {
			return nil, fmt.Errorf("watch %s: %w", LeaderBucket, err)
		}
		failed(err)
	}
}

// leaderBucket opens the bucket, or creates it. failed, unless it is nil, is called after each failed attempt.
func leaderBucket(ctx context.Context, nc *nats.Conn, replicas int, failed func(error)) (jetstream.KeyValue, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	return makeBucket(ctx, js, jetstream.KeyValueConfig{
		Bucket: LeaderBucket, Description: "which orchestrator leads",
		Storage: jetstream.FileStorage, Replicas: max(replicas, 1),
	}, failed)
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
	waits    bool
	move     *Mover
	force    bool
	log      *slog.Logger

	holder  string    // of the newest record
	seen    uint64    // its revision
	expires time.Time // when it expires if it does not change
	failed  error     // the error of the last attempt, or nil
	missed  bool      // an attempt has failed since the record was last read
}

func (c *campaign) run(ctx context.Context, updates <-chan jetstream.KeyValueEntry) (*Leadership, error) {
	said := new(complaints)
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
			c.missed = true
			c.move.Failed(time.Now())
			level := slog.LevelDebug
			if said.isNew(err.Error(), time.Now()) {
				level = slog.LevelWarn
			}
			c.log.Log(ctx, level, "cannot campaign for the lead; retrying", "error", err)
		} else {
			c.move.Worked()
			if left := time.Until(c.expires); left > 0 {
				pause = min(pause, left)
			}
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
	if c.missed { // NATS was away, also for the leader, which renews its lease first
		c.missed = false
		if soon := time.Now().Add(current.ttl() / 2); c.expires.Before(soon) {
			c.expires = soon
		}
	}
	return !time.Now().Before(c.expires)
}

func (c *campaign) lead(ctx context.Context, revision uint64, start time.Time) *Leadership {
	ctx, cancel := context.WithCancel(ctx)
	c.record.Term = revision
	l := &Leadership{
		kv: c.kv, record: c.record, shortest: c.shortest, patience: c.patience, waits: c.waits, move: c.move, log: c.log,
		cancel: cancel, done: make(chan struct{}), lost: make(chan struct{}),
	}
	l.confirm(revision, start)
	go l.keep(ctx)
	return l
}
