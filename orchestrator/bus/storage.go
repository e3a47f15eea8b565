package bus

import (
	"context"
	"errors"
	"slices"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// StorageRefused says whether an error is how JetStream answers when it cannot write: it has no room, or has stopped
// because it had none.
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

// probeKey is written to see whether anything can be; nobody reads it.
const probeKey = "probe"

// CheckWrites says whether JetStream takes writes. With a full disk it answers everything else, and those not at all.
func CheckWrites(ctx context.Context, nc *nats.Conn) error {
	kv, err := leaderBucket(ctx, nc, 1)
	if err == nil {
		_, err = kv.Put(ctx, probeKey, nil)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		err = errors.New("it does not acknowledge them")
	}
	return err
}
