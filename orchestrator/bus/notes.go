package bus

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Notes are small values that orchestrators of one NATS leave for those that lead after them, in the bucket of the leader's lease.
type Notes struct{ kv jetstream.KeyValue }

// The names of notes.
const (
	// NoteLedgerEnd says how far the ledger was seen to reach.
	NoteLedgerEnd = "ledger-end"
	// NoteLedgerLoss says which batches of the ledger are lost and were given up.
	NoteLedgerLoss = "ledger-loss"
)

// OpenNotes opens the notes of a NATS, or makes the bucket with so many replicas.
func OpenNotes(ctx context.Context, nc *nats.Conn, replicas int) (*Notes, error) {
	kv, err := leaderBucket(ctx, nc, replicas)
	if err != nil {
		return nil, fmt.Errorf("open bucket %s: %w", LeaderBucket, err)
	}
	return &Notes{kv}, nil
}

// Get returns a note, or nil if there is none.
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

// Put leaves a note in place of the one before.
func (n *Notes) Put(ctx context.Context, name string, value []byte) error {
	if _, err := n.kv.Put(ctx, name, value); err != nil {
		return fmt.Errorf("write the note %s of bucket %s: %w", name, LeaderBucket, err)
	}
	return nil
}
