// Package ledger is the append-only record of events: the only truth. A batch is appended whole or not at all, names
// the sequence it follows, and carries the hash of the batch before, so that two writers cannot both succeed and
// damage is found at load and named, never skipped.
package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Ledger appends and reads batches. It is used by one writer at a time; Read may run beside Append.
type Ledger interface {
	// Append stores events as the batch after the last one this ledger saw, and returns it once it is durable.
	// ErrConflict means that somebody else has written: this writer is deposed and must start again from Read.
	Append(ctx context.Context, at time.Time, events []*outbidv1.Event) (*outbidv1.Batch, error)
	// Read calls f for every batch from sequence from (1 is the first) to the last one, in order, verified.
	// *DamageError names the first batch that is missing or does not fit its hash.
	Read(ctx context.Context, from uint64, f func(*outbidv1.Batch) error) error
	// SaveSnapshot stores a snapshot of the state after batch seq; older ones are dropped once it is durable.
	SaveSnapshot(ctx context.Context, seq uint64, snapshot []byte) error
	// LoadSnapshot returns the newest readable snapshot, or nil if there is none.
	LoadSnapshot(ctx context.Context) (seq uint64, snapshot []byte, err error)
	// Resume tells the ledger where its writer stands, after Read: the last sequence and its hash.
	Resume(seq uint64, hash []byte)
	// Last returns the sequence of the last batch, 0 if there is none.
	Last(ctx context.Context) (uint64, error)
}

// ErrConflict says that another writer has appended.
var ErrConflict = errors.New("another orchestrator has written to the ledger")

// DamageError says which batch cannot be trusted and why.
type DamageError struct {
	Seq    uint64
	Reason string
}

// Error implements error.
func (e *DamageError) Error() string {
	return fmt.Sprintf("ledger batch %d is damaged: %s", e.Seq, e.Reason)
}
