package bus

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/proto"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Workers publish the output of trials to the intake. There it waits, even without a leader, until the leader checks
// whether the worker ran that trial. Only then it goes to the tenant's stream, to which workers cannot publish.
const (
	LogIntake = "OUTBID_OUTPUT"
	// intakeBytes and intakeAge limit the intake; the oldest messages are dropped first.
	intakeBytes = 64 << 20
	intakeAge   = 10 * time.Minute
	// intakeConsumer is the only consumer of the intake, which each leader recreates.
	intakeConsumer = "leader"
	// pulledMessages and pulledBytes limit what is in flight to it.
	pulledMessages = 1024
	pulledBytes    = 8 << 20
	// keepAgain is when the intake is reopened after it was lost with its NATS server.
	keepAgain = time.Second
	// keepRestWait is how long the last output may take from the worker to the intake. keepRestTimeout limits the whole
	// step.
	keepRestWait    = 200 * time.Millisecond
	keepRestTimeout = 5 * time.Second
)

// openIntake creates the intake.
func openIntake(ctx context.Context, js jetstream.JetStream, replicas int) (jetstream.Stream, error) {
	stream, err := PutStream(ctx, js, jetstream.StreamConfig{
		Name: LogIntake, Description: "output of trials that the server has not checked yet", Subjects: []string{logsPrefix + "*.*.*.*"},
		Retention: jetstream.WorkQueuePolicy, Discard: jetstream.DiscardOld, MaxBytes: intakeBytes, MaxAge: intakeAge,
		Storage: jetstream.MemoryStorage, Replicas: max(replicas, 1), NoAck: true,
	})
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", LogIntake, err)
	}
	return stream, nil
}

// openIntakeConsumer recreates the intake's consumer, so that messages that the previous leader received but did not
// store are redelivered at once.
func openIntakeConsumer(ctx context.Context, js jetstream.JetStream, replicas int) (jetstream.Consumer, error) {
	stream, err := openIntake(ctx, js, replicas)
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

// Keep moves the output of trials from the intake to the tenants' streams, if may allows it, until ctx ends. may is
// called from one goroutine.
func (l *Logs) Keep(ctx context.Context, may func(*outbidv1.LogChunk) bool) error {
	for {
		err := l.storeIntake(ctx, may)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // it ended as requested
		}
		l.log.Debug("the output of trials cannot be stored now", "error", err)
		again := time.NewTimer(keepAgain)
		select {
		case <-ctx.Done():
			again.Stop()
			return nil
		case <-again.C:
		}
	}
}

func (l *Logs) storeIntake(ctx context.Context, may func(*outbidv1.LogChunk) bool) error {
	cons, err := openIntakeConsumer(ctx, l.js, l.cfg.Replicas)
	if err != nil {
		return err
	}
	messages, err := cons.Messages(jetstream.PullMaxMessagesWithBytesLimit(pulledMessages, pulledBytes))
	if err != nil {
		return err
	}
	defer messages.Stop()
	defer context.AfterFunc(ctx, func() {
		if l.nc.IsConnected() {
			messages.Drain()
		} else {
			messages.Stop() // Drain would wait ten seconds for NATS
		}
	})()
	for {
		m, err := messages.Next()
		if errors.Is(err, jetstream.ErrMsgIteratorClosed) && ctx.Err() != nil {
			return l.storeRest(cons, may)
		}
		if err != nil {
			return err
		}
		if err := l.storeOne(m, may); err != nil {
			return err
		}
	}
}

// storeRest stores the remaining messages after the last trial has printed, because NATS, with the intake, may end with
// this process.
func (l *Logs) storeRest(cons jetstream.Consumer, may func(*outbidv1.LogChunk) bool) error {
	deadline := time.Now().Add(keepRestTimeout)
	for time.Now().Before(deadline) && l.nc.IsConnected() {
		batch, err := cons.Fetch(pulledMessages, jetstream.FetchMaxWait(keepRestWait))
		if err != nil {
			return err
		}
		n := 0
		for m := range batch.Messages() {
			n++
			if err := l.storeOne(m, may); err != nil {
				return err
			}
		}
		if n == 0 {
			return batch.Error()
		}
	}
	return nil
}

// storeOne stores one message. A redelivered message, whose acknowledgement was lost, has the same id, so the stream
// drops the duplicate.
func (l *Logs) storeOne(m jetstream.Msg, may func(*outbidv1.LogChunk) bool) error {
	chunk := new(outbidv1.LogChunk)
	if proto.Unmarshal(m.Data(), chunk) != nil || m.Subject() != LogSubject(chunk) || !may(chunk) {
		return m.Ack()
	}
	meta, err := m.Metadata()
	if err != nil {
		return err
	}
	id := strconv.FormatInt(meta.Timestamp.UnixNano(), 36) + "-" + strconv.FormatUint(meta.Sequence.Stream, 36)
	kept := &nats.Msg{Subject: keptSubject(chunk), Data: m.Data(), Header: nats.Header{nats.MsgIdHdr: []string{id}}}
	if err := l.nc.PublishMsg(kept); err != nil {
		return errors.Join(err, m.Nak())
	}
	return m.Ack()
}
