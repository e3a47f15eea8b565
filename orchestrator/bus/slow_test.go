package bus

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
)

// slowBucket delays every write, like a NATS with a busy disk or processor.
type slowBucket struct {
	jetstream.KeyValue
	delay atomic.Int64
}

func (b *slowBucket) Create(ctx context.Context, key string, value []byte, opts ...jetstream.KVCreateOpt) (uint64, error) {
	revision, err := b.KeyValue.Create(ctx, key, value, opts...)
	return b.late(ctx, revision, err)
}

func (b *slowBucket) Update(ctx context.Context, key string, value []byte, last uint64) (uint64, error) {
	revision, err := b.KeyValue.Update(ctx, key, value, last)
	return b.late(ctx, revision, err)
}

func (b *slowBucket) late(ctx context.Context, revision uint64, err error) (uint64, error) {
	select {
	case <-time.After(time.Duration(b.delay.Load())):
		return revision, err
	case <-ctx.Done():
		return 0, ctx.Err() // it was written all the same
	}
}

func TestSlowNATSHasALeader(t *testing.T) {
	t.Parallel()
	const delay = 3 * minTTL // no lease of the shortest TTL is confirmed before it expires
	s := startServer(t, ServerConfig{})
	nc := connect(t, ConnConfig{Server: s})
	ctx, end := context.WithCancel(testContext(t))
	defer end()
	bucket, err := leaderBucket(ctx, nc, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	slow := &slowBucket{KeyValue: bucket}
	slow.delay.Store(int64(delay))
	run := campaign{
		kv: slow, shortest: minTTL, patience: time.Minute, log: orDiscard(nil), move: &Mover{},
		record: leaderRecord{ID: "a", Nonce: nuid.Next(), TTLMs: minTTL.Milliseconds()},
	}
	lead, err := run.run(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	// Its lease adapts to the write latency, and adapts again once NATS is fast.
	untilTTL(t, bucket, func(ttl time.Duration) bool { return ttl >= writesPerTTL*delay })
	slow.delay.Store(0)
	untilTTL(t, bucket, func(ttl time.Duration) bool { return ttl < writesPerTTL*delay })
	if !isOpen(lead.Lost()) {
		t.Error("it leads no more")
	}
	if err := lead.Resign(ctx); err != nil {
		t.Error(err)
	}
}

// untilTTL waits for a record with a suitable TTL.
func untilTTL(t *testing.T, bucket jetstream.KeyValue, suits func(time.Duration) bool) {
	t.Helper()
	watch, err := bucket.Watch(testContext(t), leaderKey)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := watch.Stop(); err != nil {
			t.Error(err)
		}
	}()
	for {
		if receive(t, watch.Updates()) == nil {
			continue // all existing values were delivered
		}
		record, _, err := readRecord(testContext(t), bucket)
		if err != nil {
			t.Fatal(err)
		}
		if record != nil && suits(record.ttl()) {
			return
		}
	}
}

func TestResignAfterARenewalThatWasCutOff(t *testing.T) {
	t.Parallel()
	s := startServer(t, ServerConfig{})
	ctx := testContext(t)
	nc := connect(t, ConnConfig{Server: s})
	lead, err := Campaign(ctx, nc, Candidate{ID: "a", TTL: maxTTL})
	if err != nil {
		t.Fatal(err)
	}
	record, err := json.Marshal(lead.record)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lead.kv.Put(ctx, leaderKey, record); err != nil { // a renewal that this process does not know of
		t.Fatal(err)
	}
	if err := lead.Resign(ctx); err != nil {
		t.Fatal(err)
	}
	// The next leader does not wait a minute for the lease to expire.
	next := receive(t, campaigning(ctx, nc, "b"))
	if next.err != nil {
		t.Fatal(next.err)
	}
	if err := next.lead.Resign(ctx); err != nil {
		t.Error(err)
	}
}
