package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// isOutOfPlace reports whether the stream does not end where the batch should be appended.
func isOutOfPlace(err error) bool {
	refused, ok := errors.AsType[*jetstream.APIError](err)
	return ok && (refused.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence ||
		refused.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant)
}

// retryable reports whether a request may still succeed, or may have succeeded without an answer.
func retryable(err error) bool {
	var api *jetstream.APIError
	if errors.As(err, &api) {
		return isOutOfPlace(err) || api.Code == 503
	}
	for _, transient := range []error{
		context.DeadlineExceeded, context.Canceled, nats.ErrTimeout, nats.ErrNoResponders, nats.ErrDisconnected,
		nats.ErrConnectionReconnecting, nats.ErrReconnectBufExceeded, nats.ErrNoServers, nats.ErrStaleConnection,
		jetstream.ErrNoStreamResponse,
	} {
		if errors.Is(err, transient) {
			return true
		}
	}
	return false
}

// patiently retries an idempotent request until it succeeds, cannot succeed, or ctx ends. The timeout of each attempt
// doubles, because a busy machine may take longer than the first one for a message of several MiB.
func patiently(ctx context.Context, try func(context.Context) error) error {
	for pause, timeout := firstPause, attemptTimeout; ; pause, timeout = min(2*pause, longestPause), min(2*timeout, longestAttempt) {
		short, cancel := context.WithTimeout(ctx, timeout)
		err := try(short)
		cancel()
		if err == nil || !retryable(err) {
			return err
		}
		if waitErr := sleep(ctx, pause); waitErr != nil {
			return fmt.Errorf("%w; last try: %w", waitErr, err)
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}
