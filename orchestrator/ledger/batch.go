package ledger

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// defaultMaxBatchBytes is the space for events in a message of the embedded server, without the time and the hashes.
const defaultMaxBatchBytes = 8<<20 - batchOverhead

// MaxBatchBytes returns how many bytes of encoded events fit one message of l. A larger batch takes several messages,
// so a writer should append several batches instead if it can.
func MaxBatchBytes(l Ledger) int {
	if bounded, ok := l.(interface{ MaxBatchBytes() int }); ok {
		return bounded.MaxBatchBytes()
	}
	return defaultMaxBatchBytes
}

// NewBatch encodes events as batch seq, which follows a batch with hash prev; prev is nil for the first batch.
func NewBatch(seq uint64, at time.Time, prev []byte, events []*outbidv1.Event) (*outbidv1.Batch, error) {
	if len(events) == 0 {
		return nil, fmt.Errorf("ledger batch %d: no events", seq)
	}
	// Equal events give equal bytes, so that two runs with the same seed have the same hash.
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(&outbidv1.Events{Events: events})
	if err != nil {
		return nil, fmt.Errorf("encode ledger batch %d: %w", seq, err)
	}
	b := &outbidv1.Batch{Seq: seq, Time: timestamppb.New(at), PrevHash: bytes.Clone(prev), Events: data}
	if err := b.GetTime().CheckValid(); err != nil {
		return nil, fmt.Errorf("encode ledger batch %d: %w", seq, err)
	}
	b.Hash = Hash(b)
	return b, nil
}

// Hash returns the SHA-256 of the previous hash, the sequence number, the time and the encoded events.
func Hash(b *outbidv1.Batch) []byte {
	var head [20]byte
	binary.BigEndian.PutUint64(head[0:], b.GetSeq())
	binary.BigEndian.PutUint64(head[8:], uint64(b.GetTime().GetSeconds()))
	binary.BigEndian.PutUint32(head[16:], uint32(b.GetTime().GetNanos()))
	h := sha256.New()
	h.Write(b.GetPrevHash())
	h.Write(head[:])
	h.Write(b.GetEvents())
	return h.Sum(nil)
}

// Verify returns a *DamageError if b is not batch seq following a batch with hash prev.
func Verify(b *outbidv1.Batch, seq uint64, prev []byte) error {
	if err := verifyAlone(b, seq); err != nil {
		return err
	}
	if !bytes.Equal(b.GetPrevHash(), prev) {
		return damaged(seq, "it does not follow the batch before: hash %x, want %x", b.GetPrevHash(), prev)
	}
	return nil
}

func verifyAlone(b *outbidv1.Batch, seq uint64) error {
	if b.GetSeq() != seq {
		return damaged(seq, "it says that it is batch %d", b.GetSeq())
	}
	if n := len(b.GetPrevHash()); (seq == 1 && n != 0) || (seq > 1 && n != sha256.Size) {
		return damaged(seq, "the hash of the batch before has %d bytes", n)
	}
	if want := Hash(b); !bytes.Equal(b.GetHash(), want) {
		return damaged(seq, "its content has hash %x, but it says %x", want, b.GetHash())
	}
	return nil
}

// Decode returns the events of a batch. An error is a *DamageError.
func Decode(b *outbidv1.Batch) ([]*outbidv1.Event, error) {
	events := new(outbidv1.Events)
	if err := proto.Unmarshal(b.GetEvents(), events); err != nil {
		return nil, damaged(b.GetSeq(), "its events cannot be decoded: %v", err)
	}
	return events.GetEvents(), nil
}

func encodeBatch(b *outbidv1.Batch) ([]byte, error) {
	data, err := proto.Marshal(b)
	if err != nil {
		return nil, fmt.Errorf("encode ledger batch %d: %w", b.GetSeq(), err)
	}
	return data, nil
}

// decodeBatch decodes what is stored as batch seq. It does not verify the batch, whose events may be stored in parts.
func decodeBatch(seq uint64, data []byte) (*outbidv1.Batch, error) {
	b := new(outbidv1.Batch)
	if err := proto.Unmarshal(data, b); err != nil {
		return nil, damaged(seq, "it cannot be decoded: %v", err)
	}
	return b, nil
}

func damaged(seq uint64, format string, args ...any) *DamageError {
	return &DamageError{Seq: seq, Reason: fmt.Sprintf(format, args...)}
}

// chain checks that each batch of a run continues the previous one.
type chain struct {
	next uint64
	prev []byte
	// any is set if the next batch may follow any hash, because the previous one is not read.
	any bool
	// lost are the batches whose loss was accepted.
	lost []Hole
}

// skip skips lost batches.
func (c *chain) skip() {
	if next := after(c.lost, c.next); next != c.next {
		c.next, c.any = next, true
	}
}

func (c *chain) verifyNext(b *outbidv1.Batch) error {
	if c.any {
		c.prev, c.any = b.GetPrevHash(), false
	}
	if err := Verify(b, c.next, c.prev); err != nil {
		return err
	}
	c.next, c.prev = c.next+1, b.GetHash()
	c.skip()
	return nil
}
