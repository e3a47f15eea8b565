package ledger

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/outbid-dev/outbid/orchestrator/bus"
	"github.com/outbid-dev/outbid/orchestrator/ledger/archive"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

const (
	// DefaultStream is the stream of the ledger, with the subject outbid.v1.ledger.
	DefaultStream = "OUTBID_LEDGER"
	// DefaultSnapshots is the stream of its snapshots, with the subjects outbid.v1.snapshots.>.
	DefaultSnapshots = "OUTBID_SNAPSHOTS"

	ledgerSubject    = "outbid.v1.ledger"
	snapshotsSubject = "outbid.v1.snapshots"
	partsSubject     = "outbid.v1.ledgerparts"
	archiveSubject   = "outbid.v1.ledgerarchive"

	// attemptTimeout limits one attempt of a request. Append and others retry until their context ends.
	attemptTimeout = 5 * time.Second
	// longestAttempt limits later attempts of an idempotent request. Their timeouts double.
	longestAttempt = 40 * time.Second
	firstPause     = 20 * time.Millisecond
	longestPause   = time.Second
	// firstAttempt limits the first attempt of an append, in addition to the time for its bytes at attemptRate per
	// second. The timeout of further attempts doubles, up to laterAttempt and eight times the time for its bytes.
	// longestAppendPause is the longest pause between two attempts. They are short because an election of NATS may end at
	// any time, and an attempt that began before gets no answer.
	firstAttempt       = 500 * time.Millisecond
	laterAttempt       = time.Second
	attemptRate        = 4 << 20
	longestAppendPause = 200 * time.Millisecond
	// tellAgain is the time between two log messages about an append that gets no answer.
	tellAgain = 30 * time.Second
	// messageID is how many bytes of a batch's hash identify its message.
	messageID = 16
	// minPayload is the smallest message limit of a server that Outbid supports.
	minPayload = 64 << 10
	// batchOverhead is the space in a message for headers and for the fields of a batch besides its events.
	batchOverhead = 4096
)

// Config locates the ledger in JetStream.
type Config struct {
	// Stream of the ledger. The default is DefaultStream with DefaultSnapshots. Other names have separate subjects.
	Stream string
	// Replicas of new streams in a NATS cluster; 0 means 1.
	Replicas int
	// Logger logs retries and snapshots that cannot be read. If nil, nothing is logged.
	Logger *slog.Logger
	// SegmentBatches and SegmentBytes limit the size of a stream before the ledger continues in a new one; 0 means a
	// million batches and 512 MiB.
	SegmentBatches, SegmentBytes uint64
	// SegmentAge limits the age of a stream in the same way; 0 means no limit.
	SegmentAge time.Duration
	// OpenStore opens the object store of archived segments at a location that was recorded with them. If it is nil,
	// reading archived batches is an error.
	OpenStore func(ctx context.Context, location string) (archive.Store, error)
	// MustExist refuses to create a ledger, for commands that only read.
	MustExist bool
}

// JetStream is a ledger in streams of JetStream, in which the sequence number of a message is that of its batch. An
// acknowledged batch is durable if the server syncs before it acknowledges (sync_interval: always), like the embedded
// server.
type JetStream struct {
	nc        *nats.Conn
	js        jetstream.JetStream
	segments  *segments
	snapshots *snapshots
	parts     *parts
	stores    *stores
	log       *slog.Logger
	// archiveStep is called before each step of Archive that changes something, and stops it with an error. It is nil
	// except in tests.
	archiveStep func(step string) error

	// acked is when the newest acknowledged attempt of an append began, and stored when an append was last known to be
	// stored; both are nil at first.
	acked, stored atomic.Pointer[time.Time]

	mu   sync.Mutex
	seq  uint64
	hash []byte
	// accepted are batches whose loss was accepted. lossy is set once Accept was called.
	accepted []Hole
	lossy    bool
}

// OpenJetStream opens the ledger, or creates an empty one. The caller still owns the connection.
func OpenJetStream(ctx context.Context, nc *nats.Conn, cfg Config) (*JetStream, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("open ledger: %w", err)
	}
	if got := nc.MaxPayload(); got < minPayload {
		return nil, fmt.Errorf("open ledger: the NATS server takes messages of at most %d bytes; "+
			"set max_payload to 8MB", got)
	}
	l := &JetStream{nc: nc, js: js, log: cfg.Logger}
	if l.log == nil {
		l.log = slog.New(slog.DiscardHandler)
	}
	name, snapName, suffix := DefaultStream, DefaultSnapshots, ""
	if cfg.Stream != "" && cfg.Stream != DefaultStream {
		name, snapName, suffix = cfg.Stream, cfg.Stream+"_SNAPSHOTS", "."+cfg.Stream
	}
	subject, snapSubject := ledgerSubject+suffix, snapshotsSubject+suffix
	if cfg.MustExist {
		found, err := exists(ctx, js, name)
		if err == nil && !found {
			err = fmt.Errorf("this NATS server has no ledger: %w", jetstream.ErrStreamNotFound)
		}
		if err != nil {
			return nil, fmt.Errorf("open ledger: %w", err)
		}
	}
	l.segments = &segments{
		js: js, config: segmentConfig{stream: name, subject: subject, replicas: cfg.Replicas}, log: l.log,
		batches: cmp.Or(cfg.SegmentBatches, defaultSegmentBatches), bytes: cmp.Or(cfg.SegmentBytes, defaultSegmentBytes),
		age: cfg.SegmentAge, archive: newArchiveList(js, name+archiveSuffix, archiveSubject+suffix, cfg.Replicas),
	}
	l.stores = &stores{open: cfg.OpenStore}
	if err := l.segments.open(ctx); err != nil {
		return nil, fmt.Errorf("open ledger: %w", err)
	}
	stream, err := openStream(ctx, js, snapshotsConfig(snapName, snapSubject, cfg.Replicas))
	if err != nil {
		return nil, fmt.Errorf("open ledger: %w", err)
	}
	l.snapshots = &snapshots{js: js, stream: stream, subject: snapSubject, payload: l.MaxBatchBytes, log: l.log}
	l.parts = newParts(js, name+"_PARTS", partsSubject+suffix, cfg.Replicas, l.MaxBatchBytes)
	return l, nil
}

// archiveSuffix is added to the name of a ledger's first stream for the list of its archived segments.
const archiveSuffix = "_ARCHIVE"

// Exists reports whether a NATS server has a ledger.
func Exists(ctx context.Context, js jetstream.JetStream) (bool, error) {
	return exists(ctx, js, DefaultStream)
}

func exists(ctx context.Context, js jetstream.JetStream, name string) (bool, error) {
	for _, stream := range []string{name, name + archiveSuffix} { // the first stream may be archived
		_, err := js.Stream(ctx, stream)
		if err == nil || !errors.Is(err, jetstream.ErrStreamNotFound) {
			return err == nil, err
		}
	}
	return false, nil
}

// openStream opens or creates a stream, and refuses one that may lose messages.
func openStream(ctx context.Context, js jetstream.JetStream, cfg jetstream.StreamConfig) (jetstream.Stream, error) {
	stream, err := bus.MakeStream(ctx, js, cfg)
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", cfg.Name, err)
	}
	if err := keepsAll(stream, cfg); err != nil {
		return nil, fmt.Errorf("stream %s: %w", cfg.Name, err)
	}
	return stream, nil
}

// keepsAll returns an error if a stream may lose messages that a stream with the settings cfg would keep.
func keepsAll(stream jetstream.Stream, cfg jetstream.StreamConfig) error {
	got := stream.CachedInfo().Config
	if got.Storage != cfg.Storage || got.MaxMsgs > 0 || got.MaxBytes > 0 || got.MaxAge > 0 ||
		got.MaxMsgsPerSubject != cfg.MaxMsgsPerSubject && got.MaxMsgsPerSubject > 0 ||
		got.Retention != jetstream.LimitsPolicy || got.PersistMode != jetstream.DefaultPersistMode {
		return errors.New("it exists with settings that lose messages: want file storage and no limits of messages, bytes " +
			"or age")
	}
	return nil
}

// MaxBatchBytes returns how many bytes of events fit one message of the server: see the function MaxBatchBytes.
func (l *JetStream) MaxBatchBytes() int { return int(l.nc.MaxPayload()) - batchOverhead }

// Resume implements Ledger.
func (l *JetStream) Resume(seq uint64, hash []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seq, l.hash = after(l.accepted, seq+1)-1, bytes.Clone(hash)
}

// Last implements Ledger.
func (l *JetStream) Last(ctx context.Context) (last uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, readPatience)
	defer cancel()
	err = patiently(ctx, func(ctx context.Context) error {
		_, state, err := l.segments.newest(ctx)
		if err == nil {
			last = state.last
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("ask for the last batch of the ledger: %w", err)
	}
	return last, nil
}

// SinceLast returns how long ago the last batch was stored, by the clock of NATS, which is the same for all writers.
func (l *JetStream) SinceLast(ctx context.Context) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	newest, state, err := l.segments.newest(ctx)
	if err == nil && state.last < newest.first && newest.first > 1 {
		state, err = l.segments.holding(newest.first - 1).state(ctx)
	}
	if err != nil {
		return 0, fmt.Errorf("ask for the last batch of the ledger: %w", err)
	}
	if state.info.State.Msgs == 0 {
		return 0, nil
	}
	return state.info.TimeStamp.Sub(state.info.State.LastTime), nil
}

// Append implements Ledger. It retries until ctx ends. In that case it is unknown whether the batch was stored, and
// the caller must read on before it appends again.
func (l *JetStream) Append(ctx context.Context, at time.Time, events []*outbidv1.Event) (*outbidv1.Batch, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b, err := NewBatch(l.seq+1, at, l.hash, events)
	if err != nil {
		return nil, err
	}
	if err := l.add(ctx, b); err != nil {
		return nil, err
	}
	return b, nil
}

// Acked returns when the newest append that NATS acknowledged began, or zero. No other writer had appended by then.
func (l *JetStream) Acked() time.Time { return timeOf(&l.acked) }

// Stored returns when an append was last known to be stored, or zero. Others may have appended since.
func (l *JetStream) Stored() time.Time { return timeOf(&l.stored) }

func timeOf(p *atomic.Pointer[time.Time]) time.Time {
	if at := p.Load(); at != nil {
		return *at
	}
	return time.Time{}
}

// Import appends a batch of another ledger as it is. It must be the next one of the chain.
func (l *JetStream) Import(ctx context.Context, b *outbidv1.Batch) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := Verify(b, l.seq+1, l.hash); err != nil {
		return err
	}
	return l.add(ctx, b)
}

// add stores the next batch.
func (l *JetStream) add(ctx context.Context, b *outbidv1.Batch) (err error) {
	kept := b
	if len(b.GetEvents()) > l.MaxBatchBytes() {
		if kept, err = l.parts.save(ctx, b); err != nil {
			return err
		}
	}
	data, err := encodeBatch(kept)
	if err != nil {
		return err
	}
	if l.segments.full(l.seq, b.GetTime().AsTime()) {
		l.segments.seal(ctx, l.seq)
	}
	if err := l.store(ctx, b, data); err != nil {
		return err
	}
	l.segments.grow(len(data), b.GetTime().AsTime())
	l.seq, l.hash = b.GetSeq(), b.GetHash()
	if kept != b {
		l.cleanParts(ctx)
	}
	return nil
}

// cleanParts removes parts of large batches that crashes have left. Nothing depends on it.
func (l *JetStream) cleanParts(ctx context.Context) {
	archived, _ := l.segments.archive.last()
	err := l.parts.clean(ctx, l.seq, archived, func(ctx context.Context, seq uint64) ([]byte, error) {
		m, err := l.get(ctx, seq)
		if err != nil {
			return nil, err
		}
		b, err := decodeBatch(seq, m.Data)
		return b.GetHash(), err
	})
	if err != nil {
		l.log.Warn("could not remove parts of batches that were not appended", "error", err)
	}
}

// store publishes a batch until it is known whether it is stored. A missing answer may have been lost with its NATS
// server, so the first attempts are short. Publishing again is safe, because the message names the preceding sequence
// number and is therefore stored at most once.
func (l *JetStream) store(ctx context.Context, b *outbidv1.Batch, data []byte) error {
	told := time.Time{}
	transfer := time.Duration(len(data)) * time.Second / attemptRate
	timeout, longest := min(firstAttempt+transfer, attemptTimeout), min(laterAttempt+8*transfer, attemptTimeout)
	for pause := firstPause; ; pause, timeout = min(2*pause, longestAppendPause), min(2*timeout, longest) {
		began := time.Now()
		again, err := l.publish(ctx, b, data, timeout)
		if err == nil {
			if !again {
				l.acked.Store(&began)
			}
			l.stored.Store(new(time.Now()))
			return nil
		}
		if !retryable(err) {
			return fmt.Errorf("append batch %d to the ledger: %w", b.GetSeq(), err)
		}
		if isOutOfPlace(err) { // another message is there: an earlier attempt, a seal, or the batch of another writer
			stored, readErr := l.fate(ctx, b, timeout)
			switch {
			case stored:
				l.stored.Store(new(time.Now()))
				return nil
			case readErr != nil && !retryable(readErr):
				return readErr
			}
		}
		level := slog.LevelDebug
		if time.Since(told) > tellAgain {
			told, level = time.Now(), slog.LevelWarn
		}
		l.log.Log(ctx, level, "an append to the ledger got no answer; trying again", "batch", b.GetSeq(), "after", time.Since(began), "error", err)
		if waitErr := sleep(ctx, pause); waitErr != nil {
			return fmt.Errorf("append batch %d to the ledger: %w; last try: %w", b.GetSeq(), waitErr, err)
		}
	}
}

// publish is one attempt of store. It reports whether an earlier one had stored the batch. NATS knows that by the message's
// ID for two minutes, and says it before the cluster has elected its own leader, without which nothing can be read.
func (l *JetStream) publish(ctx context.Context, b *outbidv1.Batch, data []byte, timeout time.Duration) (again bool, err error) {
	seq, list := b.GetSeq(), l.segments.known()
	newest := list[len(list)-1]
	if seq == newest.first {
		if err := l.segments.confirm(ctx, newest); err != nil {
			return false, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	ack, err := l.js.PublishMsg(ctx, &nats.Msg{Subject: newest.subject, Data: data},
		jetstream.WithExpectStream(newest.name), jetstream.WithExpectLastSequence(seq-1), jetstream.WithMsgID(hex.EncodeToString(b.GetHash()[:messageID])), jetstream.WithRetryAttempts(0))
	if err != nil {
		return false, err
	}
	if ack.Sequence != seq {
		return false, fmt.Errorf("it was stored as message %d: stream and ledger do not count alike", ack.Sequence)
	}
	return ack.Duplicate, nil
}

// fate reports whether b is in the ledger. The error is ErrConflict if another batch is in its place. If the segment
// was sealed there, fate creates the next one.
func (l *JetStream) fate(ctx context.Context, b *outbidv1.Batch, timeout time.Duration) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	m, err := l.segments.holding(b.GetSeq()).stream.GetMsg(ctx, b.GetSeq())
	if err == nil && isSeal(m) {
		return false, l.segments.extend(ctx)
	}
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
