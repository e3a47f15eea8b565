package audit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/outbid-dev/outbid/orchestrator/bus"
	"github.com/outbid-dev/outbid/orchestrator/limits"
)

// The stream and its subject. Workers cannot publish to it or read it.
const (
	Stream  = "OUTBID_AUDIT"
	Subject = "outbid.v1.audit"
)

// leastBytes is the smallest useful size of the stream.
const leastBytes = 1 << 20

// store writes and reads the stream.
type store struct {
	js       jetstream.JetStream
	replicas int
}

// open creates the stream if it is missing. JetStream reserves its limit in advance. If it has less space than that, the
// stream takes a small part of the space and leaves the rest for the ledger.
func (s *store) open(ctx context.Context) (jetstream.Stream, error) {
	stream, err := s.js.Stream(ctx, Stream)
	if !errors.Is(err, jetstream.ErrStreamNotFound) {
		return stream, err
	}
	cfg := jetstream.StreamConfig{
		Name: Stream, Description: "the audit", Subjects: []string{Subject}, Discard: jetstream.DiscardOld,
		MaxBytes: limits.AuditBytes, MaxAge: limits.AuditAge, Storage: jetstream.FileStorage, Replicas: max(s.replicas, 1),
		DenyDelete: true, DenyPurge: true,
	}
	for refused := false; ; refused = true {
		stream, err := bus.CreateStream(ctx, s.js, cfg)
		if err == nil && refused {
			cfg.MaxBytes = max(cfg.MaxBytes/8, leastBytes)
			return bus.UpdateStream(ctx, s.js, cfg)
		}
		if !bus.IsNoRoom(err) || cfg.MaxBytes/2 < leastBytes {
			return stream, err
		}
		cfg.MaxBytes /= 2
	}
}

// tail returns the last record's sequence and hash.
func (s *store) tail(ctx context.Context) (Anchor, error) {
	stream, err := s.open(ctx)
	if err != nil {
		return Anchor{}, err
	}
	info, err := stream.Info(ctx)
	if err != nil {
		return Anchor{}, err
	}
	last := Anchor{Seq: info.State.LastSeq}
	if info.State.Msgs == 0 { // limits have deleted every record
		return last, nil
	}
	m, err := stream.GetMsg(ctx, last.Seq)
	if err != nil {
		return Anchor{}, err
	}
	if r, err := Parse(m.Data); err == nil {
		last.Hash = r.Hash
	}
	return last, nil // after a damaged record, verification reports both it and its successor
}

// append stores a line after the record with a sequence. It returns errConflict if another record has followed that one.
func (s *store) append(ctx context.Context, after uint64, line []byte) error {
	_, err := s.js.PublishMsg(ctx, &nats.Msg{Subject: Subject, Data: line}, jetstream.WithExpectLastSequence(after))
	if refused, ok := errors.AsType[*jetstream.APIError](err); ok && refused.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence {
		return errConflict
	}
	return err
}

// errConflict means that another server has written to the stream.
var errConflict = errors.New("another server has written to the audit")

// Query selects records.
type Query struct {
	// After is the sequence of the last record that was read before.
	After uint64
	// Since excludes records that were stored earlier, unless it is zero.
	Since time.Time
	// Scan is the maximum number of records that are read.
	Scan int
}

// Read calls f with records, oldest first, until f returns false. It returns the sequence of the last record that it read,
// and whether records may follow it.
func (l *Log) Read(ctx context.Context, q Query, f func(line []byte) (more bool)) (last uint64, left bool, err error) {
	last = q.After
	stream, err := l.store.js.Stream(ctx, Stream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return last, false, nil
	}
	if err != nil {
		return last, false, fmt.Errorf("read the audit: %w", err)
	}
	state := stream.CachedInfo().State
	from := max(q.After+1, state.FirstSeq)
	if !q.Since.IsZero() {
		if from, err = firstSince(ctx, stream, from, state.LastSeq, q.Since); err != nil {
			return last, false, fmt.Errorf("read the audit: %w", err)
		}
	}
	if state.Msgs == 0 || from > state.LastSeq {
		return max(last, state.LastSeq), false, nil
	}
	err = bus.ReadStream(ctx, l.store.js, bus.StreamRead{Stream: Stream, From: from}, func(m jetstream.Msg) (bool, error) {
		meta, err := m.Metadata()
		if err != nil {
			return false, err
		}
		last = meta.Sequence.Stream
		q.Scan--
		more := f(m.Data())
		left = last < state.LastSeq
		return more && left && q.Scan > 0, nil
	})
	if err != nil {
		return last, false, fmt.Errorf("read the audit: %w", err)
	}
	return last, left, nil
}

// firstSince returns the first sequence in [from, to] that was stored at a time or later, or to+1.
func firstSince(ctx context.Context, stream jetstream.Stream, from, to uint64, since time.Time) (uint64, error) {
	low, high := from, to+1
	for low < high {
		middle := low + (high-low)/2
		m, err := stream.GetMsg(ctx, middle)
		if errors.Is(err, jetstream.ErrMsgNotFound) { // limits have deleted it
			low = middle + 1
			continue
		}
		if err != nil {
			return 0, err
		}
		if m.Time.Before(since) {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return low, nil
}
