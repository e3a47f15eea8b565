package bus

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Streams and buckets are created and changed only with the functions of this file.

const (
	// makePatience is how long the creation of a stream may take. NATS syncs its files, which takes a busy disk more than
	// the five seconds that its client waits by default.
	makePatience = 30 * time.Second
	// makeAttempt limits one attempt: its answer may have been lost with its NATS server. Another attempt finds the stream.
	makeAttempt = 2 * time.Second
	// makePause is the pause between two attempts.
	makePause = 200 * time.Millisecond
	// peersPatience is how long the servers of a NATS cluster may take to connect to each other when all start together.
	peersPatience = time.Minute
)

// MakeStream returns a stream, which it creates if it is missing.
func MakeStream(ctx context.Context, js jetstream.JetStream, cfg jetstream.StreamConfig) (jetstream.Stream, error) {
	return patiently(ctx, nil, func(ctx context.Context) (jetstream.Stream, error) {
		stream, err := js.Stream(ctx, cfg.Name)
		if !errors.Is(err, jetstream.ErrStreamNotFound) {
			return stream, err
		}
		stream, err = js.CreateStream(ctx, cfg)
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // another server was faster
			stream, err = js.Stream(ctx, cfg.Name)
		}
		return stream, err
	})
}

// CreateStream creates a stream, which may exist only with the same settings.
func CreateStream(ctx context.Context, js jetstream.JetStream, cfg jetstream.StreamConfig) (jetstream.Stream, error) {
	return patiently(ctx, nil, func(ctx context.Context) (jetstream.Stream, error) { return js.CreateStream(ctx, cfg) })
}

// UpdateStream changes the settings of a stream.
func UpdateStream(ctx context.Context, js jetstream.JetStream, cfg jetstream.StreamConfig) (jetstream.Stream, error) {
	return patiently(ctx, nil, func(ctx context.Context) (jetstream.Stream, error) { return js.UpdateStream(ctx, cfg) })
}

// PutStream creates a stream or changes its settings.
func PutStream(ctx context.Context, js jetstream.JetStream, cfg jetstream.StreamConfig) (jetstream.Stream, error) {
	return patiently(ctx, nil, func(ctx context.Context) (jetstream.Stream, error) { return js.CreateOrUpdateStream(ctx, cfg) })
}

// MakeBucket returns a key-value bucket, which it creates if it is missing.
func MakeBucket(ctx context.Context, js jetstream.JetStream, cfg jetstream.KeyValueConfig) (jetstream.KeyValue, error) {
	return makeBucket(ctx, js, cfg, nil)
}

func makeBucket(ctx context.Context, js jetstream.JetStream, cfg jetstream.KeyValueConfig, failed func(error)) (jetstream.KeyValue, error) {
	return patiently(ctx, failed, func(ctx context.Context) (jetstream.KeyValue, error) {
		kv, err := js.KeyValue(ctx, cfg.Bucket)
		if errors.Is(err, jetstream.ErrBucketNotFound) {
			kv, err = js.CreateKeyValue(ctx, cfg)
		}
		return kv, err
	})
}

// patiently repeats a request that may be repeated until NATS answers it. It waits makePatience for an answer, and
// peersPatience for the servers of a NATS cluster to connect. failed, unless it is nil, is called after each failure.
func patiently[T any](ctx context.Context, failed func(error), request func(context.Context) (T, error)) (T, error) {
	began := time.Now()
	for {
		got, err := attempt(ctx, request)
		left := makePatience - time.Since(began)
		if isForming(err) {
			left = peersPatience - time.Since(began)
		}
		if err == nil || ctx.Err() != nil || left <= 0 || !IsAway(err) || errors.Is(err, nats.ErrConnectionClosed) {
			return got, err // a connection that is closed stays so
		}
		if failed != nil {
			failed(err)
		}
		pause := time.NewTimer(makePause)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return got, err
		}
	}
}

func attempt[T any](ctx context.Context, request func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, makeAttempt)
	defer cancel()
	return request(ctx)
}

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

// IsAway reports whether an error means that NATS did not answer, so that the same request may succeed later.
func IsAway(err error) bool {
	for _, away := range []error{
		context.DeadlineExceeded, nats.ErrTimeout, nats.ErrNoResponders, jetstream.ErrNoStreamResponse, nats.ErrDisconnected,
		nats.ErrConnectionReconnecting, nats.ErrConnectionClosed, nats.ErrReconnectBufExceeded, nats.ErrNoServers, nats.ErrStaleConnection,
	} {
		if errors.Is(err, away) {
			return true
		}
	}
	return isForming(err)
}
