package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/outbid-dev/outbid/orchestrator/bus"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// readAheadMessages and readAheadBytes limit what the server sends ahead. The limit in bytes is needed because a
// message may have 8 MB.
const (
	readAheadMessages = 4096
	readAheadBytes    = 32 << 20
	// fewBatches are requested one by one.
	fewBatches = 64
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
	c := l.chainFrom(from)
	var failed error // an error of f
	take := func(b *outbidv1.Batch) error {
		failed = f(b)
		return failed
	}
	for {
		if err := l.readArchive(ctx, c, from, last, take); err != nil || c.next > last {
			return err
		}
		var err error
		if last-c.next < fewBatches {
			err = l.readFew(ctx, c, from, last, take)
		} else {
			err = l.readMany(ctx, c, from, last, take)
		}
		if err == nil || failed != nil {
			return err
		}
		// The streams may have been archived meanwhile.
		if archived, refreshErr := l.segments.refresh(ctx); refreshErr != nil || !archived && !l.isArchived(c.next) {
			return err
		}
	}
}

// chainFrom returns the chain before batch from. It begins with the previous batch, for the hash that the first one must
// continue, unless that is the last archived batch, whose hash is known.
func (l *JetStream) chainFrom(from uint64) *chain {
	if end, _ := l.segments.archive.last(); end > 0 && end == from-1 {
		return l.archivedChain()
	}
	start := max(from-1, 1)
	c := &chain{next: start, any: start > 1, lost: l.lost()}
	c.skip()
	return c
}

// readMany makes the server send the batches of one segment after another.
func (l *JetStream) readMany(ctx context.Context, c *chain, from, last uint64, f func(*outbidv1.Batch) error) error {
	list := l.segments.known()
	if c.next < list[0].first {
		return damaged(c.next, "it is missing from the streams") // Read looks for it in the archive
	}
	for i, segment := range list {
		end := last
		if i+1 < len(list) {
			end = min(last, list[i+1].first-1)
		}
		if c.next > end {
			continue
		}
		if err := l.readSegment(ctx, segment, c, from, end, f); err != nil {
			return err
		}
	}
	return nil
}

// readSegment reads from c.next to batch end.
func (l *JetStream) readSegment(
	ctx context.Context, segment *segment, c *chain, from, end uint64, f func(*outbidv1.Batch) error,
) error {
	start := c.next
	if start > end {
		return nil // the rest of the segment is lost
	}
	r := bus.StreamRead{Stream: segment.name, From: start, AheadMessages: readAheadMessages, AheadBytes: readAheadBytes}
	r.Pending = func(messages uint64) (bool, error) {
		if messages == 0 {
			return false, damaged(start, "it is missing from the stream")
		}
		return true, nil
	}
	var failed error // an error of f, or damage
	err := bus.ReadStream(ctx, l.js, r, func(m jetstream.Msg) (bool, error) {
		var b *outbidv1.Batch
		if b, failed = l.takeMessage(ctx, c, m, end); failed == nil && b.GetSeq() >= from {
			failed = f(b)
		}
		return failed == nil && c.next <= end, nil
	})
	if _, ok := errors.AsType[*DamageError](err); err != nil && !ok {
		err = fmt.Errorf("read the ledger: %w", err)
	}
	if failed != nil {
		return failed
	}
	return err
}

// readFew requests one batch after another, which is faster for a few than to make the server send them.
func (l *JetStream) readFew(ctx context.Context, c *chain, from, last uint64, f func(*outbidv1.Batch) error) error {
	for c.next <= last {
		if l.isArchived(c.next) {
			return damaged(c.next, "it is missing from the streams") // Read looks for it in the archive
		}
		m, err := l.get(ctx, c.next)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return damaged(c.next, "it is missing from the stream")
		}
		if err != nil {
			return fmt.Errorf("read the ledger: %w", err)
		}
		b, err := l.decodeNext(ctx, c, m.Data)
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

// readPatience limits the retries for one message, or for the end of the ledger. A busy disk may take longer than one
// attempt.
const readPatience = time.Minute

// asking retries a request for one message until it succeeds or readPatience is over.
func asking(ctx context.Context, get func(context.Context) (*jetstream.RawStreamMsg, error)) (m *jetstream.RawStreamMsg, err error) {
	ctx, cancel := context.WithTimeout(ctx, readPatience)
	defer cancel()
	err = patiently(ctx, func(ctx context.Context) error {
		m, err = get(ctx)
		return err
	})
	return m, err
}

func (l *JetStream) get(ctx context.Context, seq uint64) (*jetstream.RawStreamMsg, error) {
	return asking(ctx, func(ctx context.Context) (*jetstream.RawStreamMsg, error) {
		return l.segments.holding(seq).stream.GetMsg(ctx, seq)
	})
}

// decodeNext decodes what is stored as the next batch, adds its parts, and verifies it.
func (l *JetStream) decodeNext(ctx context.Context, c *chain, data []byte) (*outbidv1.Batch, error) {
	b, err := decodeBatch(c.next, data)
	if err != nil {
		return nil, err
	}
	if err := l.parts.load(ctx, b); err != nil {
		return nil, err
	}
	return b, c.verifyNext(b)
}

// takeMessage checks that m is the next batch.
func (l *JetStream) takeMessage(ctx context.Context, c *chain, m jetstream.Msg, last uint64) (*outbidv1.Batch, error) {
	meta, err := m.Metadata()
	if err != nil {
		return nil, fmt.Errorf("read the ledger: %w", err)
	}
	if meta.Sequence.Stream != c.next {
		return nil, damaged(c.next, "it is missing from the stream; the next one there is %d", meta.Sequence.Stream)
	}
	b, err := l.decodeNext(ctx, c, m.Data())
	if err != nil {
		return nil, err
	}
	if meta.NumPending == 0 && c.next <= last {
		return nil, damaged(c.next, "it is missing from the stream, which ends at %d", last)
	}
	return b, nil
}
