package bus

import (
	"context"
	"errors"
	"fmt"
	"math/bits"

	"github.com/nats-io/nats.go/jetstream"
)

// Workers publish the output of trials to the intake of its tenant. There it waits, even without a leader, until the
// leader checks whether the worker ran that trial. Only then it goes to the tenant's stream, to which workers cannot
// publish. A full intake drops its tenant's oldest output, and no other tenant's.
const (
	// LogIntake starts the names of the intakes. It was the only intake of all tenants before version 1.0.
	LogIntake = "OUTBID_OUTPUT"
	// intakeBytes is the size of all intakes together. leastIntake is the least size of one, enough for two messages.
	intakeBytes = 64 << 20
	leastIntake = 128 << 10
	// noMemoryCode is JetStream's error code if it cannot reserve that much memory.
	noMemoryCode = 10028
)

// intakeOf returns the name of a tenant's intake.
func intakeOf(tenant string) string { return LogIntake + "_" + tenant }

// intakeShare returns the size of each intake. It is a power of two so that few new tenants change it.
func intakeShare(tenants int) int64 {
	return max(leastIntake, int64(intakeBytes)>>bits.Len(uint(max(tenants, 1)-1)))
}

// removeSharedIntake deletes the intake that all tenants shared in earlier versions, because its subjects are those of
// the tenants' intakes.
func removeSharedIntake(ctx context.Context, js jetstream.JetStream) error {
	_, err := patiently(ctx, nil, func(ctx context.Context) (struct{}, error) {
		err := js.DeleteStream(ctx, LogIntake)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			err = nil
		}
		return struct{}{}, err
	})
	return err
}

// reserveIntake creates a tenant's intake if this process has not yet, and makes those of the others smaller if all
// together would be too large.
func (l *Logs) reserveIntake(ctx context.Context, tenant string) error {
	l.reserving.Lock()
	defer l.reserving.Unlock()
	l.mu.Lock()
	if l.intakes[tenant] > 0 {
		l.mu.Unlock()
		return nil
	}
	l.intakes[tenant] = 0
	share := intakeShare(len(l.intakes))
	var change []string
	for other, bytes := range l.intakes {
		if bytes != share {
			change = append(change, other)
		}
	}
	l.mu.Unlock()
	var failed []error
	for _, other := range change {
		bytes, err := openIntake(ctx, l.js, other, share, l.cfg.Replicas)
		if err != nil {
			failed = append(failed, err)
			continue
		}
		l.mu.Lock()
		l.intakes[other] = bytes
		l.mu.Unlock()
	}
	select {
	case l.reservedMore <- struct{}{}:
	default:
	}
	return errors.Join(failed...)
}

// openIntake creates the intake of a tenant with up to the given size, or less if NATS has less memory. It returns the
// size.
func openIntake(ctx context.Context, js jetstream.JetStream, tenant string, bytes int64, replicas int) (int64, error) {
	for {
		_, err := PutStream(ctx, js, jetstream.StreamConfig{
			Name: intakeOf(tenant), Description: "output of trials of " + tenant + " that the server has not checked yet",
			Subjects: []string{logsPrefix + "*." + tenant + ".*.*"}, Retention: jetstream.WorkQueuePolicy, Discard: jetstream.DiscardOld,
			MaxBytes: bytes, MaxAge: intakeAge, MaxMsgSize: logChunkBytes + logChunkHead, Storage: jetstream.MemoryStorage,
			Replicas: max(replicas, 1), NoAck: true,
		})
		if err == nil {
			return bytes, nil
		}
		if refused, ok := errors.AsType[*jetstream.APIError](err); !ok || refused.ErrorCode != noMemoryCode || bytes <= leastIntake {
			return 0, fmt.Errorf("stream %s: %w", intakeOf(tenant), err)
		}
		bytes /= 2
	}
}

// openIntakeConsumer recreates the consumer of a tenant's intake, so that messages that the previous leader received but
// did not store are redelivered at once.
func (l *Logs) openIntakeConsumer(ctx context.Context, tenant string) (jetstream.Consumer, error) {
	l.mu.Lock()
	bytes := l.intakes[tenant]
	l.mu.Unlock()
	if _, err := openIntake(ctx, l.js, tenant, max(bytes, leastIntake), l.cfg.Replicas); err != nil {
		return nil, err
	}
	stream, err := l.js.Stream(ctx, intakeOf(tenant))
	if err != nil {
		return nil, err
	}
	if err := stream.DeleteConsumer(ctx, intakeConsumer); err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
		return nil, err
	}
	return stream.CreateConsumer(ctx, jetstream.ConsumerConfig{
		Durable: intakeConsumer, AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: 4 * pulledMessages, MemoryStorage: true,
	})
}
