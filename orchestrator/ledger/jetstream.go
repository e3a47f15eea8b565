package ledger

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

const (
	// DefaultStream is the stream of the ledger, on subject outbid.v1.ledger.
	DefaultStream = "OUTBID_LEDGER"
	// DefaultSnapshots is the stream of its snapshots, on subjects outbid.v1.snapshots.>.
	DefaultSnapshots = "OUTBID_SNAPSHOTS"

	ledgerSubject    = "outbid.v1.ledger"
	snapshotsSubject = "outbid.v1.snapshots"

	// attemptTimeout bounds one try of one request; Append and the others try on until their context ends.
	attemptTimeout = 5 * time.Second
	firstPause     = 20 * time.Millisecond
	longestPause   = time.Second
	// minPayload is the least a server must take in one message to be of use.
	minPayload = 64 << 10
	// batchOverhead is room in a message for what a batch holds besides its events, and for headers.
	batchOverhead = 4096
)

// Config says where in JetStream the ledger is.
type Config struct {
	// Stream of the ledger; empty means DefaultStream and DefaultSnapshots. Another name has subjects of its own.
	Stream string
	// Replicas of new streams in a NATS cluster; 0 means 1.
	Replicas int
	// Logger gets retries and snapshots that cannot be read; nil drops it.
	Logger *slog.Logger
	// MustExist refuses to make a ledger where there is none, for those who only read.
	MustExist bool
}

// JetStream is a ledger in a JetStream stream, in which the sequence of a message is that of its batch. What is
// acknowledged is durable if the server syncs before it acknowledges (sync_interval: always), as the embedded one does.
type JetStream struct {
	nc        *nats.Conn
	js        jetstream.JetStream
	stream    jetstream.Stream
	subject   string
	snapshots *snapshots
	log       *slog.Logger

	mu   sync.Mutex
	seq  uint64
	hash []byte
}

// OpenJetStream opens the ledger, or makes an empty one. The connection stays the caller's.
func OpenJetStream(ctx context.Context, nc *nats.Conn, cfg Config) (*JetStream, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("open ledger: %w", err)
	}
	if got := nc.MaxPayload(); got < minPayload {
		return nil, fmt.Errorf("open ledger: the NATS server takes messages of at most %d bytes; "+
			"set max_payload to 8MB", got)
	}
	l := &JetStream{nc: nc, js: js, subject: ledgerSubject, log: cfg.Logger}
	if l.log == nil {
		l.log = slog.New(slog.DiscardHandler)
	}
	name, snapName, snapSubject := DefaultStream, DefaultSnapshots, snapshotsSubject
	if cfg.Stream != "" && cfg.Stream != DefaultStream {
		name, snapName = cfg.Stream, cfg.Stream+"_SNAPSHOTS"
		l.subject, snapSubject = ledgerSubject+"."+name, snapshotsSubject+"."+name
	}
	if cfg.MustExist {
		if _, err := js.Stream(ctx, name); errors.Is(err, jetstream.ErrStreamNotFound) {
			return nil, fmt.Errorf("open ledger: there is none in this NATS: %w", err)
		}
	}
	if l.stream, err = openStream(ctx, js, ledgerConfig(name, l.subject, cfg.Replicas)); err != nil {
		return nil, fmt.Errorf("open ledger: %w", err)
	}
	stream, err := openStream(ctx, js, snapshotsConfig(snapName, snapSubject, cfg.Replicas))
	if err != nil {
		return nil, fmt.Errorf("open ledger: %w", err)
	}
	l.snapshots = &snapshots{js: js, stream: stream, subject: snapSubject, log: l.log}
	return l, nil
}

// ledgerConfig has no limit and lets nobody delete: a full disk must refuse the new, never drop the old. Direct reads
// are off, because they may be answered by a replica that lags behind.
func ledgerConfig(name, subject string, replicas int) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: name, Subjects: []string{subject}, Description: "what happened, in order",
		Storage: jetstream.FileStorage, Discard: jetstream.DiscardNew, Replicas: max(replicas, 1),
		MaxMsgs: -1, MaxBytes: -1, DenyDelete: true, DenyPurge: true,
	}
}

// openStream makes a stream unless it is there, and refuses one that may lose what it was given.
func openStream(ctx context.Context, js jetstream.JetStream, cfg jetstream.StreamConfig) (jetstream.Stream, error) {
	stream, err := js.Stream(ctx, cfg.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		stream, err = js.CreateStream(ctx, cfg)
	}
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", cfg.Name, err)
	}
	got := stream.CachedInfo().Config
	if got.Storage != cfg.Storage || got.MaxMsgs > 0 || got.MaxBytes > 0 || got.MaxAge > 0 ||
		got.MaxMsgsPerSubject != cfg.MaxMsgsPerSubject && got.MaxMsgsPerSubject > 0 ||
		got.Retention != jetstream.LimitsPolicy || got.PersistMode != jetstream.DefaultPersistMode {
		return nil, fmt.Errorf("stream %s: it exists with settings that lose messages: want file storage and no "+
			"limits of messages, bytes or age", cfg.Name)
	}
	return stream, nil
}

// MaxBatchBytes is what fits one message of the server; see the function of that name.
func (l *JetStream) MaxBatchBytes() int { return int(l.nc.MaxPayload()) - batchOverhead }

// Resume implements Ledger.
func (l *JetStream) Resume(seq uint64, hash []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seq, l.hash = seq, bytes.Clone(hash)
}

// Last implements Ledger.
func (l *JetStream) Last(ctx context.Context) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	info, err := l.stream.Info(ctx)
	if err != nil {
		return 0, fmt.Errorf("ask for the last batch of the ledger: %w", err)
	}
	return info.State.LastSeq, nil
}

// SinceLast returns how long ago the last batch was stored, by the clock of NATS: that of one machine, whoever writes.
func (l *JetStream) SinceLast(ctx context.Context) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	info, err := l.stream.Info(ctx)
	if err != nil {
		return 0, fmt.Errorf("ask for the last batch of the ledger: %w", err)
	}
	if info.State.Msgs == 0 {
		return 0, nil
	}
	return info.TimeStamp.Sub(info.State.LastTime), nil
}

// Append implements Ledger. It tries until ctx ends. If ctx ends first, it is unknown whether the batch was stored: the
// caller may append again only after it has read on.
func (l *JetStream) Append(ctx context.Context, at time.Time, events []*outbidv1.Event) (*outbidv1.Batch, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b, err := NewBatch(l.seq+1, at, l.hash, events)
	if err != nil {
		return nil, err
	}
	data, err := encodeBatch(b)
	if err != nil {
		return nil, err
	}
	if limit := l.MaxBatchBytes(); len(b.GetEvents()) > limit {
		return nil, fmt.Errorf("%w: %d bytes of events, at most %d", errTooBig, len(b.GetEvents()), limit)
	}
	if err := l.store(ctx, b, data); err != nil {
		return nil, err
	}
	l.seq, l.hash = b.GetSeq(), b.GetHash()
	return b, nil
}

// store publishes a batch until it is known to be stored, or not to be.
func (l *JetStream) store(ctx context.Context, b *outbidv1.Batch, data []byte) error {
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		err := l.publish(ctx, b.GetSeq(), data)
		if err == nil {
			return nil
		}
		if !retryable(err) {
			return fmt.Errorf("append batch %d to the ledger: %w", b.GetSeq(), err)
		}
		stored, readErr := l.fate(ctx, b)
		switch {
		case stored:
			return nil
		case readErr != nil && !retryable(readErr):
			return readErr
		}
		l.log.Warn("an append to the ledger got no answer; trying again", "batch", b.GetSeq(), "error", err)
		if waitErr := sleep(ctx, pause); waitErr != nil {
			return fmt.Errorf("append batch %d to the ledger: %w; last try: %w", b.GetSeq(), waitErr, err)
		}
	}
}

func (l *JetStream) publish(ctx context.Context, seq uint64, data []byte) error {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	ack, err := l.js.PublishMsg(ctx, &nats.Msg{Subject: l.subject, Data: data},
		jetstream.WithExpectStream(l.stream.CachedInfo().Config.Name), jetstream.WithExpectLastSequence(seq-1))
	if err != nil {
		return err
	}
	if ack.Sequence != seq {
		return fmt.Errorf("it was stored as message %d: stream and ledger do not count alike", ack.Sequence)
	}
	return nil
}

// fate asks whether b is in the stream. ErrConflict if another batch has its place.
func (l *JetStream) fate(ctx context.Context, b *outbidv1.Batch) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	m, err := l.stream.GetMsg(ctx, b.GetSeq())
	if err == nil {
		stored, err := decodeBatch(b.GetSeq(), m.Data)
		if err == nil && bytes.Equal(stored.GetHash(), b.GetHash()) {
			return true, nil
		}
		return false, ErrConflict
	}
	if !errors.Is(err, jetstream.ErrMsgNotFound) {
		return false, err
	}
	last, err := l.Last(ctx)
	switch {
	case err != nil:
		return false, err
	case last >= b.GetSeq():
		return false, damaged(b.GetSeq(), "it is missing from the stream")
	case last+1 < b.GetSeq():
		return false, missingTail(last, b.GetSeq())
	}
	return false, nil
}

// retryable says whether a request may yet succeed, or may have succeeded without our knowing.
func retryable(err error) bool {
	var api *jetstream.APIError
	if errors.As(err, &api) {
		return api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence ||
			api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant || api.Code == 503
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
