// Package ledger implements the append-only log of events, which is the only authority on past events. A batch is
// appended as a whole or not at all. It names its sequence number and contains the hash of the previous batch, so
// that two writers cannot both succeed, and damage is detected on load and reported.
package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Ledger appends and reads batches. It supports one writer at a time; Read may run concurrently with Append.
type Ledger interface {
	// Append stores events as the batch after the last one that this ledger has seen, and returns it once it is
	// durable. ErrConflict means that another writer has appended: this writer is deposed and must start again from
	// Read.
	Append(ctx context.Context, at time.Time, events []*outbidv1.Event) (*outbidv1.Batch, error)
	// Read calls f for every batch from sequence number from (1 is the first) to the last one, in order and verified.
	// A *DamageError names the first batch that is missing or does not match its hash.
	Read(ctx context.Context, from uint64, f func(*outbidv1.Batch) error) error
	// SaveSnapshot stores a snapshot of the state after batch seq. Older ones are removed once it is durable.
	SaveSnapshot(ctx context.Context, seq uint64, snapshot []byte) error
	// LoadSnapshot returns the newest readable snapshot, or nil.
	LoadSnapshot(ctx context.Context) (seq uint64, snapshot []byte, err error)
	// SaveChanges stores the changes between the batches since and seq. A snapshot of batch since, or changes up to it,
	// must be stored.
	SaveChanges(ctx context.Context, since, seq uint64, changes []byte) error
	// LoadChanges returns the readable changes that follow a snapshot of batch since, each since the one before.
	LoadChanges(ctx context.Context, since uint64) (changes [][]byte, err error)
	// Resume sets the position of the writer after Read: the last sequence number and its hash.
	Resume(seq uint64, hash []byte)
	// Last returns the sequence number of the last batch, or 0.
	Last(ctx context.Context) (uint64, error)
}

// ErrConflict means that another writer has appended.
var ErrConflict = errors.New("another server has written to the ledger")

// DamageError means that a batch is damaged.
type DamageError struct {
	Seq    uint64
	Reason string
}

// Error implements error.
func (e *DamageError) Error() string {
	return fmt.Sprintf("ledger batch %d is damaged: %s", e.Seq, e.Reason)
}
