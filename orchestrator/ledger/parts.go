package ledger

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/outbid-dev/outbid/orchestrator/bus"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// maxPart is the maximum size in bytes of a message with a part of a batch. It is smaller if the server's limit is.
const maxPart = 512 << 10

// parts stores the events of batches that do not fit one message of the ledger, because a step decided a lot at once
// or because the server's max_payload is small. The parts are stored first, each with a separate subject,
// PREFIX.<seq>.<hash>.<part>. The batch follows in the ledger without its events, and does not exist before that. After
// a crash, parts of a batch that was never appended remain, and are removed when the next large batch is stored.
type parts struct {
	js      jetstream.JetStream
	name    string
	subject string
	config  jetstream.StreamConfig
	// payload returns how many bytes fit one message.
	payload func() int

	mu sync.Mutex
	// stream is nil until it is needed. confirmed reports that this process has written its settings.
	stream    jetstream.Stream
	confirmed bool
}

func newParts(js jetstream.JetStream, name, subject string, replicas int, payload func() int) *parts {
	return &parts{js: js, name: name, subject: subject, payload: payload, config: jetstream.StreamConfig{
		Name: name, Subjects: []string{subject + ".*.*.*"}, Description: "events of batches that one message cannot hold",
		Storage: jetstream.FileStorage, Discard: jetstream.DiscardNew, Replicas: max(replicas, 1),
		MaxMsgs: -1, MaxBytes: -1, MaxMsgsPerSubject: 1, // a part that is sent again replaces itself
		AllowDirect: replicas <= 1, // a replica that lags behind must not answer
	}}
}

// prefix returns the prefix of the subjects of a batch's parts. The hash distinguishes two writers of one sequence
// number.
func (p *parts) prefix(b *outbidv1.Batch) string {
	return fmt.Sprintf("%s.%020d.%s.", p.subject, b.GetSeq(), hex.EncodeToString(b.GetHash()[:16]))
}

// save stores the events of a batch, and returns the batch without them for the ledger.
func (p *parts) save(ctx context.Context, b *outbidv1.Batch) (*outbidv1.Batch, error) {
	kept := &outbidv1.Batch{Seq: b.GetSeq(), Time: b.GetTime(), PrevHash: b.GetPrevHash(), Hash: b.GetHash()}
	if err := patiently(ctx, func(ctx context.Context) error { return p.open(ctx, true) }); err != nil {
		return nil, fmt.Errorf("store batch %d in parts: stream %s: %w", b.GetSeq(), p.name, err)
	}
	prefix := p.prefix(b)
	for part := range slices.Chunk(b.GetEvents(), min(maxPart, p.payload())) {
		err := patiently(ctx, func(ctx context.Context) error {
			_, err := p.js.Publish(ctx, prefix+strconv.Itoa(int(kept.GetParts())), part, jetstream.WithExpectStream(p.name))
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("store part %d of batch %d: %w", kept.GetParts(), b.GetSeq(), err)
		}
		kept.Parts++
	}
	return kept, nil
}

// load adds the events to a batch that is stored in parts. A missing part is a *DamageError.
func (p *parts) load(ctx context.Context, b *outbidv1.Batch) error {
	if b.GetParts() == 0 {
		return nil
	}
	if len(b.GetHash()) < 16 {
		return damaged(b.GetSeq(), "its hash has %d bytes", len(b.GetHash()))
	}
	if err := p.open(ctx, false); err != nil {
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			return damaged(b.GetSeq(), "stream %s, which holds its events, is missing", p.name)
		}
		return fmt.Errorf("read the ledger: stream %s: %w", p.name, err)
	}
	var events bytes.Buffer
	prefix := p.prefix(b)
	for i := range b.GetParts() {
		m, err := p.get(ctx, prefix+strconv.Itoa(int(i)))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return damaged(b.GetSeq(), "part %d of %d is missing from stream %s", i+1, b.GetParts(), p.name)
		}
		if err != nil {
			return fmt.Errorf("read the ledger: part %d of batch %d: %w", i+1, b.GetSeq(), err)
		}
		events.Write(m.Data)
	}
	b.Events, b.Parts = events.Bytes(), 0
	return nil
}

func (p *parts) get(ctx context.Context, subject string) (*jetstream.RawStreamMsg, error) {
	return asking(ctx, func(ctx context.Context) (*jetstream.RawStreamMsg, error) {
		return p.stream.GetLastMsgForSubject(ctx, subject)
	})
}

// open opens the stream. For writing it creates the stream if it is missing, and each process writes its settings
// again, because a server that was killed while it created a stream ignores the stream at its next start (see
// segments).
func (p *parts) open(ctx context.Context, write bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stream != nil && (p.confirmed || !write) {
		return nil
	}
	var stream jetstream.Stream
	var err error
	if write {
		stream, err = bus.MakeStream(ctx, p.js, p.config)
	} else {
		stream, err = p.stored(ctx)
	}
	if err != nil {
		return err
	}
	if err := keepsAll(stream, p.config); err != nil {
		return err
	}
	if write {
		if _, err := bus.UpdateStream(ctx, p.js, stream.CachedInfo().Config); err != nil {
			return err
		}
	}
	p.stream, p.confirmed = stream, write
	return nil
}

// stored returns the stream if it exists.
func (p *parts) stored(ctx context.Context) (jetstream.Stream, error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	return p.js.Stream(ctx, p.name)
}

// clean removes the parts of batches up to archived, and those of batches that were never appended, because the ledger
// has another hash at their sequence number. No writer can append them any more.
func (p *parts) clean(ctx context.Context, last, archived uint64, hash func(ctx context.Context, seq uint64) ([]byte, error)) error {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	info, err := p.stream.Info(ctx, jetstream.WithSubjectFilter(p.subject+".>"))
	if err != nil {
		return err
	}
	checked := map[string]bool{}
	var errs []error
	for subject := range info.State.Subjects {
		prefix := subject[:strings.LastIndex(subject, ".")+1]
		if checked[prefix] {
			continue
		}
		checked[prefix] = true
		fields := strings.Split(strings.TrimPrefix(prefix, p.subject+"."), ".")
		seq, err := strconv.ParseUint(fields[0], 10, 64)
		if err != nil || seq > last {
			continue
		}
		var kept []byte
		if seq > archived {
			kept, err = hash(ctx, seq)
		}
		if seq <= archived || err == nil && len(kept) >= 16 && hex.EncodeToString(kept[:16]) != fields[1] {
			err = p.stream.Purge(ctx, jetstream.WithPurgeSubject(prefix+"*"))
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
