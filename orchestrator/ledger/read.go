package ledger

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/proto"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// What may be under way from the server while batches are read: bounded in bytes, because a batch may have 8 MB.
const (
	readAheadMessages = 4096
	readAheadBytes    = 32 << 20
)

// Read implements Ledger.
func (l *JetStream) Read(ctx context.Context, from uint64, f func(*outbidv1.Batch) error) error {
	last, err := l.Last(ctx)
	if err != nil {
		return err
	}
	from = max(from, 1)
	if from > last+1 {
		return missingTail(last, from)
	}
	if from > last {
		return nil
	}
	// The batch before is read too, for the hash that the first one must continue.
	start := max(from-1, 1)
	cons, err := l.stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: start,
	})
	if err != nil {
		return fmt.Errorf("read the ledger: %w", err)
	}
	info, err := cons.Info(ctx)
	if err != nil {
		return fmt.Errorf("read the ledger: %w", err)
	}
	if info.NumPending == 0 {
		return damaged(start, "it is missing from the stream")
	}
	messages, err := cons.Messages(jetstream.PullMaxMessagesWithBytesLimit(readAheadMessages, readAheadBytes))
	if err != nil {
		return fmt.Errorf("read the ledger: %w", err)
	}
	defer messages.Stop()
	c := chain{next: start, any: start > 1}
	for c.next <= last {
		m, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			return fmt.Errorf("read the ledger: %w", err)
		}
		b, err := takeMessage(&c, m, last)
		if err != nil {
			return err
		}
		if b.GetSeq() < from {
			continue
		}
		if err := f(b); err != nil {
			return err
		}
	}
	return nil
}

// takeMessage checks that m is the batch that comes next.
func takeMessage(c *chain, m jetstream.Msg, last uint64) (*outbidv1.Batch, error) {
	meta, err := m.Metadata()
	if err != nil {
		return nil, fmt.Errorf("read the ledger: %w", err)
	}
	if meta.Sequence.Stream != c.next {
		return nil, damaged(c.next, "it is missing from the stream; the next one there is %d", meta.Sequence.Stream)
	}
	b := new(outbidv1.Batch)
	if err := proto.Unmarshal(m.Data(), b); err != nil {
		return nil, damaged(c.next, "it cannot be decoded: %v", err)
	}
	if err := c.take(b); err != nil {
		return nil, err
	}
	if meta.NumPending == 0 && c.next <= last {
		return nil, damaged(c.next, "it is missing from the stream, which ends at %d", last)
	}
	return b, nil
}
