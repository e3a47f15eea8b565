package ledger

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// line is a batch as JSON on one line, for people and for replay. It omits what can be computed: the previous hash is
// that of the previous line.
type line struct {
	Seq    uint64            `json:"seq"`
	Time   time.Time         `json:"time"`
	Hash   string            `json:"hash"`
	Events []json.RawMessage `json:"events"`
}

// WriteLine writes a batch with readable events as JSON on one line. Equal batches give equal bytes.
func WriteLine(w io.Writer, b *outbidv1.Batch) error {
	events, err := Decode(b)
	if err != nil {
		return err
	}
	l := line{Seq: b.GetSeq(), Time: b.GetTime().AsTime(), Hash: hex.EncodeToString(b.GetHash())}
	for _, e := range events {
		text, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(e)
		if err != nil {
			return fmt.Errorf("write ledger batch %d: %w", b.GetSeq(), err)
		}
		// protojson inserts spaces at random, so that its bytes are not stable.
		var compact bytes.Buffer
		if err := json.Compact(&compact, text); err != nil {
			return fmt.Errorf("write ledger batch %d: %w", b.GetSeq(), err)
		}
		l.Events = append(l.Events, compact.Bytes())
	}
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	return encoder.Encode(l)
}

// Lines is a read-only ledger that WriteLine wrote.
type Lines struct {
	open func() (io.ReadCloser, error)
}

// NewLines returns the ledger in the file that open opens for each Read.
func NewLines(open func() (io.ReadCloser, error)) *Lines { return &Lines{open: open} }

// ErrReadOnly means that a ledger was opened for reading only.
var ErrReadOnly = errors.New("this ledger can only be read")

// Read implements Ledger. A line that does not match its hash is a *DamageError.
func (l *Lines) Read(ctx context.Context, from uint64, f func(*outbidv1.Batch) error) error {
	r, err := l.open()
	if err != nil {
		return err
	}
	defer r.Close()
	in := bufio.NewReader(r)
	var prev []byte
	for seq := uint64(1); ; seq++ {
		text, err := in.ReadBytes('\n')
		if len(bytes.TrimSpace(text)) == 0 {
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err == nil {
				return damaged(seq, "its line is empty")
			}
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("read ledger batch %d: %w", seq, err)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		b, err := parseLine(seq, prev, text)
		if err != nil {
			return err
		}
		prev = b.GetHash()
		if seq < from {
			continue
		}
		if err := f(b); err != nil {
			return err
		}
	}
}

// parseLine decodes the line of batch seq, which follows a batch with hash prev.
func parseLine(seq uint64, prev, text []byte) (*outbidv1.Batch, error) {
	var l line
	if err := json.Unmarshal(text, &l); err != nil {
		return nil, damaged(seq, "its line is not JSON: %v", err)
	}
	if l.Seq != seq {
		return nil, damaged(seq, "its line says that it is batch %d", l.Seq)
	}
	events := make([]*outbidv1.Event, len(l.Events))
	for i, raw := range l.Events {
		events[i] = new(outbidv1.Event)
		if err := protojson.Unmarshal(raw, events[i]); err != nil {
			return nil, damaged(seq, "its event %d cannot be read: %v", i, err)
		}
	}
	b, err := NewBatch(seq, l.Time, prev, events)
	if err != nil {
		return nil, damaged(seq, "%v", err)
	}
	if got := hex.EncodeToString(b.GetHash()); got != l.Hash {
		return nil, damaged(seq, "its line has hash %s, but it says %s", got, l.Hash)
	}
	return b, nil
}

// Append implements Ledger.
func (l *Lines) Append(context.Context, time.Time, []*outbidv1.Event) (*outbidv1.Batch, error) {
	return nil, ErrReadOnly
}

// SaveSnapshot implements Ledger.
func (l *Lines) SaveSnapshot(context.Context, uint64, []byte) error { return ErrReadOnly }

// LoadSnapshot implements Ledger. It returns no snapshot.
func (l *Lines) LoadSnapshot(context.Context) (uint64, []byte, error) { return 0, nil, nil }

// Resume implements Ledger.
func (l *Lines) Resume(uint64, []byte) {}

// Last implements Ledger.
func (l *Lines) Last(ctx context.Context) (uint64, error) {
	last := uint64(0)
	err := l.Read(ctx, 1, func(b *outbidv1.Batch) error { last = b.GetSeq(); return nil })
	return last, err
}

// SaveChanges implements Ledger.
func (l *Lines) SaveChanges(context.Context, uint64, uint64, []byte) error { return ErrReadOnly }

// LoadChanges implements Ledger. It returns none.
func (l *Lines) LoadChanges(context.Context, uint64) ([][]byte, error) { return nil, nil }
