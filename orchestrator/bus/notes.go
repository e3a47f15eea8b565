package bus

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Notes are small values for later leaders, stored in the bucket of the leader's lease.
type Notes struct{ kv jetstream.KeyValue }

// The names of notes.
const (
	// NoteLedgerEnd is the last known batch of the ledger.
	NoteLedgerEnd = "ledger-end"
	// NoteLedgerLoss lists the lost batches of the ledger that were given up.
	NoteLedgerLoss = "ledger-loss"
)

// OpenNotes opens the notes, or creates the bucket with the given number of replicas.
func OpenNotes(ctx context.Context, nc *nats.Conn, replicas int) (*Notes, error) {
	kv, err := leaderBucket(ctx, nc, replicas, nil)
	if err != nil {
		return nil, fmt.Errorf("open bucket %s: %w", LeaderBucket, err)
	}
	return &Notes{kv}, nil
}

// Get returns a note, or nil if it does not exist.
func (n *Notes) Get(ctx context.Context, name string) ([]byte, error) {
	entry, err := n.kv.Get(ctx, name)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the note %s of bucket %s: %w", name, LeaderBucket, err)
	}
	return entry.Value(), nil
}

// Put replaces a note.
func (n *Notes) Put(ctx context.Context, name string, value []byte) error {
	if _, err := n.kv.Put(ctx, name, value); err != nil {
		return fmt.Errorf("write the note %s of bucket %s: %w", name, LeaderBucket, err)
	}
	return nil
}
