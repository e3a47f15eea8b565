package ledger

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Memory is a ledger in memory, for simulation and tests. It stores batches encoded, so that they cannot be changed.
type Memory struct {
	record *record
	mu     sync.Mutex
	seq    uint64
	hash   []byte
}

// record is shared by the writers.
type record struct {
	mu       sync.Mutex
	batches  [][]byte
	snapSeq  uint64
	snapshot []byte
	changes  []memoryChanges
}

// memoryChanges are what changed between two batches.
type memoryChanges struct {
	since, seq uint64
	data       []byte
}

// NewMemory returns an empty ledger.
func NewMemory() *Memory { return &Memory{record: new(record)} }

// Another returns another writer at the beginning of the same record, like a restarted or a second server.
func (m *Memory) Another() *Memory { return &Memory{record: m.record} }

// MaxBatchBytes returns the limit of the embedded server, so that a simulation splits batches in the same way.
func (m *Memory) MaxBatchBytes() int { return defaultMaxBatchBytes }

// Append implements Ledger.
func (m *Memory) Append(ctx context.Context, at time.Time, events []*outbidv1.Event) (*outbidv1.Batch, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("append to the ledger: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	b, err := NewBatch(m.seq+1, at, m.hash, events)
	if err != nil {
		return nil, err
	}
	data, err := encodeBatch(b)
	if err != nil {
		return nil, err
	}
	m.record.mu.Lock()
	defer m.record.mu.Unlock()
	if m.seq != uint64(len(m.record.batches)) {
		return nil, ErrConflict
	}
	m.record.batches = append(m.record.batches, data)
	m.seq, m.hash = b.GetSeq(), b.GetHash()
	return b, nil
}

// Read implements Ledger.
func (m *Memory) Read(ctx context.Context, from uint64, f func(*outbidv1.Batch) error) error {
	m.record.mu.Lock()
	batches := m.record.batches
	m.record.mu.Unlock()
	from = max(from, 1)
	if last := uint64(len(batches)); from > last+1 {
		return missingTail(last, from)
	}
	c := chain{next: max(from-1, 1), any: from > 2}
	for i := c.next; i <= uint64(len(batches)); i++ {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("read the ledger: %w", err)
		}
		b := new(outbidv1.Batch)
		if err := proto.Unmarshal(batches[i-1], b); err != nil {
			return damaged(i, "it cannot be decoded: %v", err)
		}
		if err := c.verifyNext(b); err != nil {
			return err
		}
		if i < from {
			continue
		}
		if err := f(b); err != nil {
			return err
		}
	}
	return nil
}

func missingTail(last, from uint64) error {
	return damaged(last+1, "it is missing, though batch %d was written once: the ledger has lost its end", from-1)
}

// SaveSnapshot implements Ledger.
func (m *Memory) SaveSnapshot(ctx context.Context, seq uint64, snapshot []byte) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("save snapshot: %w", err)
	}
	m.record.mu.Lock()
	defer m.record.mu.Unlock()
	if last := uint64(len(m.record.batches)); seq > last {
		return fmt.Errorf("save snapshot: of batch %d, but the last one is %d", seq, last)
	}
	if seq >= m.record.snapSeq {
		m.record.snapSeq, m.record.snapshot = seq, bytes.Clone(snapshot)
		m.record.changes = slices.DeleteFunc(slices.Clone(m.record.changes), func(c memoryChanges) bool { return c.seq <= seq })
	}
	return nil
}

// LoadSnapshot implements Ledger.
func (m *Memory) LoadSnapshot(ctx context.Context) (uint64, []byte, error) {
	if err := ctx.Err(); err != nil {
		return 0, nil, fmt.Errorf("load snapshot: %w", err)
	}
	m.record.mu.Lock()
	defer m.record.mu.Unlock()
	return m.record.snapSeq, bytes.Clone(m.record.snapshot), nil
}

// SaveChanges implements Ledger.
func (m *Memory) SaveChanges(ctx context.Context, since, seq uint64, changes []byte) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("save changes: %w", err)
	}
	m.record.mu.Lock()
	defer m.record.mu.Unlock()
	if last := uint64(len(m.record.batches)); seq > last || since >= seq {
		return fmt.Errorf("save changes: from batch %d to %d, but the last one is %d", since, seq, last)
	}
	m.record.changes = append(m.record.changes, memoryChanges{since, seq, bytes.Clone(changes)})
	return nil
}

// LoadChanges implements Ledger.
func (m *Memory) LoadChanges(ctx context.Context, since uint64) (changes [][]byte, err error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("load changes: %w", err)
	}
	m.record.mu.Lock()
	defer m.record.mu.Unlock()
	for _, c := range m.record.changes {
		if c.since == since {
			changes, since = append(changes, bytes.Clone(c.data)), c.seq
		}
	}
	return changes, nil
}

// Resume implements Ledger.
func (m *Memory) Resume(seq uint64, hash []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seq, m.hash = seq, bytes.Clone(hash)
}

// Last implements Ledger.
func (m *Memory) Last(ctx context.Context) (uint64, error) {
	if err := ctx.Err(); err != nil {
		return 0, fmt.Errorf("ask for the last batch: %w", err)
	}
	m.record.mu.Lock()
	defer m.record.mu.Unlock()
	return uint64(len(m.record.batches)), nil
}

// NewMemoryOf returns a ledger that has the given encoded batches.
func NewMemoryOf(batches [][]byte) *Memory { return &Memory{record: &record{batches: batches}} }
