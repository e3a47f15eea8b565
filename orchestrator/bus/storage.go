package bus

import (
	"context"
	"errors"
	"slices"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// StorageRefused reports whether an error means that JetStream cannot write: it has no space, or has stopped for that
// reason.
func StorageRefused(err error) bool {
	refused, ok := errors.AsType[*jetstream.APIError](err)
	return ok && slices.Contains([]jetstream.ErrorCode{
		10023, // insufficient resources
		10047, // storage resources exceeded
		10039, // not enabled for the account
		10076, // not enabled
		10077, // the stream could not store it
	}, refused.ErrorCode) || errors.Is(err, nats.ErrNoResponders) || errors.Is(err, jetstream.ErrNoStreamResponse) ||
		errors.Is(err, jetstream.ErrJetStreamNotEnabled)
}

// probeKey is written to test whether writes work; its value is not used.
const probeKey = "probe"

// CheckWrites returns an error unless JetStream accepts writes. With a full disk it answers all other requests, but
// does not answer writes.
func CheckWrites(ctx context.Context, nc *nats.Conn) error {
	kv, err := leaderBucket(ctx, nc, 1, nil)
	if err == nil {
		_, err = kv.Put(ctx, probeKey, nil)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		err = errors.New("NATS does not acknowledge writes")
	}
	return err
}
