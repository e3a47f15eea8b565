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

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// maxPart is the largest message that holds a part of a batch, in bytes; smaller where the server takes less.
const maxPart = 512 << 10

// parts keeps the events of batches that one message of the ledger cannot hold, because a step decided more than that at
// once or because the server's max_payload is small. The parts are stored first, each on a subject of its own,
// PREFIX.<seq>.<hash>.<part>. The batch follows in the ledger without its events: only then does it exist, whole. Parts
// of a batch that was never appended stay behind after a crash, and are removed when the next big batch is stored.
type parts struct {
	js      jetstream.JetStream
	name    string
	subject string
	config  jetstream.StreamConfig
	// payload returns how many bytes fit one message.
	payload func() int

	mu sync.Mutex
	// stream is nil until it was needed; confirmed says that its settings were written by this process.
	stream    jetstream.Stream
	confirmed bool
}

func newParts(js jetstream.JetStream, name, subject string, replicas int, payload func() int) *parts {
	return &parts{js: js, name: name, subject: subject, payload: payload, config: jetstream.StreamConfig{
		Name: name, Subjects: []string{subject + ".*.*.*"}, Description: "events of batches that one message cannot hold",
		Storage: jetstream.FileStorage, Discard: jetstream.DiscardNew, Replicas: max(replicas, 1),
		MaxMsgs: -1, MaxBytes: -1, MaxMsgsPerSubject: 1, // a part that is sent again replaces itself
		AllowDirect: replicas <= 1, // no replica that could lag behind answers
	}}
}

// prefix returns what the subjects of a batch's parts begin with. The hash keeps two writers of one sequence apart.
func (p *parts) prefix(b *outbidv1.Batch) string {
	return fmt.Sprintf("%s.%020d.%s.", p.subject, b.GetSeq(), hex.EncodeToString(b.GetHash()[:16]))
}

// save stores the events of a batch and returns the batch as the ledger keeps it: without them.
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

// load puts the events back into a batch that is kept in parts. A part that is missing is a *DamageError.
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

// open finds the stream. To write it is made if it is not there, and its settings are written once more by each process:
// a server that was killed while it made a stream ignores it at its next start (see segments).
func (p *parts) open(ctx context.Context, write bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stream != nil && (p.confirmed || !write) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	stream, err := p.js.Stream(ctx, p.name)
	if errors.Is(err, jetstream.ErrStreamNotFound) && write {
		stream, err = p.js.CreateStream(ctx, p.config)
	}
	if err != nil {
		return err
	}
	if err := keepsAll(stream, p.config); err != nil {
		return err
	}
	if write {
		if _, err := p.js.UpdateStream(ctx, stream.CachedInfo().Config); err != nil {
			return err
		}
	}
	p.stream, p.confirmed = stream, write
	return nil
}

// clean removes the parts of batches that were never appended: those whose place another batch has, as hash tells by
// sequence. Nobody can append them any more.
func (p *parts) clean(ctx context.Context, last uint64, hash func(ctx context.Context, seq uint64) ([]byte, error)) error {
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
		kept, err := hash(ctx, seq)
		if err == nil && len(kept) >= 16 && hex.EncodeToString(kept[:16]) != fields[1] {
			err = p.stream.Purge(ctx, jetstream.WithPurgeSubject(prefix+"*"))
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
