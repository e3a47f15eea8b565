package bus

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/proto"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

const (
	// intakeAge is how long output waits for a leader.
	intakeAge = 10 * time.Minute
	// intakeConsumer is the only consumer of an intake, which each leader recreates.
	intakeConsumer = "leader"
	// pulledMessages and pulledBytes limit what is in flight to it. The leader receives the output of all tenants over one
	// connection, which NATS closes if more than 64 MiB wait for it.
	pulledMessages = 1024
	pulledBytes    = 256 << 10
	// keepAgain is when an intake is reopened after it was lost with its NATS server.
	keepAgain = time.Second
	// keepRestWait is how long the last output may take from the worker to the intake. keepRestTimeout limits the whole
	// step.
	keepRestWait    = 200 * time.Millisecond
	keepRestTimeout = 5 * time.Second
)

// Keep moves the output of trials from the intakes to the tenants' streams, if may allows it, until ctx ends. The output of
// each tenant moves independently, so may must be safe for concurrent use.
func (l *Logs) Keep(ctx context.Context, may func(*outbidv1.LogChunk) bool) error {
	var running sync.WaitGroup
	defer running.Wait()
	kept := map[string]bool{}
	for {
		l.mu.Lock()
		tenants := slices.Collect(maps.Keys(l.intakes))
		l.mu.Unlock()
		for _, tenant := range tenants {
			if !kept[tenant] {
				kept[tenant] = true
				running.Go(func() { l.keepTenant(ctx, tenant, may) })
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-l.reservedMore:
		}
	}
}

// keepTenant moves the output of one tenant until ctx ends.
func (l *Logs) keepTenant(ctx context.Context, tenant string, may func(*outbidv1.LogChunk) bool) {
	for {
		err := l.storeIntake(ctx, tenant, may)
		if ctx.Err() != nil {
			return
		}
		l.log.Debug("the output of trials cannot be stored now", "tenant", tenant, "error", err)
		again := time.NewTimer(keepAgain)
		select {
		case <-ctx.Done():
			again.Stop()
			return
		case <-again.C:
		}
	}
}

func (l *Logs) storeIntake(ctx context.Context, tenant string, may func(*outbidv1.LogChunk) bool) error {
	cons, err := l.openIntakeConsumer(ctx, tenant)
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
