package ledger

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/outbid-dev/outbid/orchestrator/ledger/archive"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// archiveRate limits how fast Archive reads segments, in bytes per second, so that it does not delay appends.
const archiveRate = 32 << 20

// ArchiveConfig configures Archive.
type ArchiveConfig struct {
	// Location of the object store for OpenStore. It is recorded with each segment.
	Location string
	// Before is the time before which the last batch of a segment must have been decided.
	Before time.Time
	// PieceBytes is the uncompressed size of an object; 0 means archive.DefaultPieceBytes.
	PieceBytes int
}

// Archived counts what Archive moved.
type Archived struct {
	Segments int
	// From and To are the first and the last batch.
	From, To uint64
	// Bytes is the size of the objects.
	Bytes int64
}

// Archive moves sealed segments that precede the newest snapshot and are old enough to an object store. A segment's
// batches are written, read back and compared with the chain of hashes. Then the segment is added to the list of
// archived segments, and after that its stream is deleted. A kill between two steps leaves a ledger that is read
// completely, and the next call continues. Only the leader may call it.
func (l *JetStream) Archive(ctx context.Context, cfg ArchiveConfig) (moved Archived, err error) {
	if err := l.removeArchived(ctx); err != nil {
		return moved, fmt.Errorf("archive the ledger: %w", err)
	}
	for {
		s, end, err := l.archivable(ctx, cfg.Before)
		if err != nil || s == nil {
			return moved, err
		}
		record, err := l.archiveSegment(ctx, s, end, cfg)
		if err != nil {
			return moved, fmt.Errorf("archive stream %s of the ledger: %w", s.name, err)
		}
		moved.Segments, moved.From, moved.To = moved.Segments+1, cmp.Or(moved.From, record.First), record.Last
		for _, p := range record.Pieces {
			moved.Bytes += p.Bytes
		}
	}
}

// archivable returns the oldest segment and its last batch, or nil if it must not be archived yet.
func (l *JetStream) archivable(ctx context.Context, before time.Time) (*segment, uint64, error) {
	list := l.segments.known()
	if len(list) < 2 {
		return nil, 0, nil
	}
	oldest, end := list[0], list[1].first-1
	snapshot, err := l.snapshots.newest(ctx)
	if err != nil || snapshot <= end {
		return nil, 0, err
	}
	m, err := l.get(ctx, end)
	if errors.Is(err, jetstream.ErrMsgNotFound) && after(l.lost(), end) > end { // its loss was accepted
		info, err := oldest.stream.Info(ctx)
		if err != nil || !info.State.LastTime.Before(before) {
			return nil, 0, err
		}
		return oldest, end, nil
	}
	if err != nil {
		return nil, 0, err
	}
	b, err := decodeBatch(end, m.Data)
	if err != nil || !b.GetTime().AsTime().Before(before) {
		return nil, 0, err
	}
	return oldest, end, nil
}

// newest returns the batch of the newest whole snapshot, or 0.
func (s *snapshots) newest(ctx context.Context) (uint64, error) {
	l, err := s.list(ctx)
	if err != nil || len(l.whole) == 0 {
		return 0, err
	}
	return seqOf(l.whole[0])
}

// archiveSegment archives the oldest segment, which ends with batch end.
func (l *JetStream) archiveSegment(ctx context.Context, s *segment, end uint64, cfg ArchiveConfig) (archived, error) {
	store, err := l.stores.at(ctx, cfg.Location)
	if err != nil {
		return archived{}, err
	}
	if err := l.beforeStep("write"); err != nil {
		return archived{}, err
	}
	record := archived{First: s.first, Last: end, Lost: l.lostIn(s.first, end), Store: cfg.Location}
	if record.Pieces, record.Hash, err = l.writePieces(ctx, s, end, store, cmp.Or(cfg.PieceBytes, archive.DefaultPieceBytes)); err != nil {
		return record, err
	}
	if err := l.beforeStep("verify"); err != nil {
		return record, err
	}
	if err := l.verifyArchived(ctx, record); err != nil {
		return record, err
	}
	if err := l.beforeStep("record"); err != nil {
		return record, err
	}
	if err := l.segments.archive.add(ctx, record); err != nil {
		return record, err
	}
	if _, err := l.segments.refresh(ctx); err != nil {
		return record, err
	}
	return record, l.removeArchived(ctx)
}

// beforeStep lets a test stop Archive.
func (l *JetStream) beforeStep(step string) error {
	if l.archiveStep == nil {
		return nil
	}
	return l.archiveStep(step)
}

// lostIn returns the accepted losses between two batches.
func (l *JetStream) lostIn(first, last uint64) (lost []Hole) {
	for _, h := range l.lost() {
		if h.From <= last && h.To >= first {
			lost = append(lost, Hole{max(h.From, first), min(h.To, last)})
		}
	}
	return lost
}

// archivedChain returns the chain at the beginning of the first segment that is not archived.
func (l *JetStream) archivedChain() *chain {
	last, hash := l.segments.archive.last()
	c := &chain{next: last + 1, prev: hash, lost: l.lost()}
	c.any = after(c.lost, last) > last // the end of the archived segment was lost
	c.skip()
	return c
}

// writePieces writes the batches of a segment to the store, and returns the hash of the last one.
func (l *JetStream) writePieces(ctx context.Context, s *segment, end uint64, store archive.Store, limit int) ([]archive.Piece, []byte, error) {
	c := l.archivedChain()
	w := archive.NewWriter(store, limit, func(ctx context.Context, bytes int) error {
		return sleep(ctx, time.Duration(bytes)*time.Second/archiveRate)
	})
	if err := l.readSegment(ctx, s, c, s.first, end, func(b *outbidv1.Batch) error { return w.Add(ctx, b) }); err != nil {
		return nil, nil, err
	}
	if c.next <= end {
		return nil, nil, damaged(c.next, "it is missing from the stream")
	}
	pieces, err := w.Close(ctx)
	return pieces, c.prev, err
}

// verifyArchived reads what was written.
func (l *JetStream) verifyArchived(ctx context.Context, record archived) error {
	c := l.archivedChain()
	if err := l.readPieces(ctx, c, record, record.First, record.Last, func(*outbidv1.Batch) error { return nil }); err != nil {
		return err
	}
	if !bytes.Equal(c.prev, record.Hash) {
		return damaged(record.Last, "its hash in the archive is %x, want %x", c.prev, record.Hash)
	}
	return nil
}

// removeArchived deletes the stream of the last archived segment, and the parts of archived batches.
func (l *JetStream) removeArchived(ctx context.Context) error {
	n := len(l.segments.archive.all())
	if n == 0 {
		return nil
	}
	if err := l.beforeStep("delete"); err != nil {
		return err
	}
	err := patiently(ctx, func(ctx context.Context) error { return l.js.DeleteStream(ctx, l.segments.config.name(n)) })
	if err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
		return fmt.Errorf("delete stream %s, which is archived: %w", l.segments.config.name(n), err)
	}
	if err := l.beforeStep("clean"); err != nil {
		return err
	}
	if err := l.parts.open(ctx, false); err != nil {
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			return nil
		}
		return err
	}
	last, _ := l.segments.archive.last()
	return l.parts.clean(ctx, last, last, nil)
}

// isArchived reports whether a batch is archived.
func (l *JetStream) isArchived(seq uint64) bool {
	last, _ := l.segments.archive.last()
	return seq <= last
}

// readArchive reads from c.next to the last archived batch, or to batch last if that is earlier.
func (l *JetStream) readArchive(ctx context.Context, c *chain, from, last uint64, f func(*outbidv1.Batch) error) error {
	for _, s := range l.segments.archive.all() {
		if c.next > s.Last || c.next > last {
			continue
		}
		if err := l.readPieces(ctx, c, s, from, min(s.Last, last), f); err != nil {
			return err
		}
	}
	return nil
}

// readPieces reads from c.next to batch end of an archived segment.
func (l *JetStream) readPieces(ctx context.Context, c *chain, s archived, from, end uint64, f func(*outbidv1.Batch) error) error {
	store, err := l.stores.at(ctx, s.Store)
	if err != nil {
		return err
	}
	for _, p := range s.Pieces {
		if p.Last < c.next || c.next > end {
			continue
		}
		err := archive.Read(ctx, store, p, func(b *outbidv1.Batch) error {
			if b.GetSeq() < c.next || c.next > end {
				return nil
			}
			if err := c.verifyNext(b); err != nil || b.GetSeq() < from {
				return err
			}
			return f(b)
		})
		if errors.Is(err, archive.ErrDamaged) {
			return damaged(max(c.next, p.First), "%v", err)
		}
		if err != nil {
			return err
		}
	}
	if c.next <= end {
		return damaged(c.next, "it is missing from the archive")
	}
	return nil
}

// stores opens the object stores of archived segments when they are first needed.
type stores struct {
	open func(ctx context.Context, location string) (archive.Store, error)

	mu     sync.Mutex
	opened map[string]archive.Store
}

// at returns the store at a location.
func (s *stores) at(ctx context.Context, location string) (archive.Store, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if store, ok := s.opened[location]; ok {
		return store, nil
	}
	if s.open == nil {
		return nil, errors.New("the oldest batches are in an object store, which this reader was not given")
	}
	store, err := s.open(ctx, location)
	if err != nil {
		return nil, fmt.Errorf("open the archive of the ledger: %w", err)
	}
	if s.opened == nil {
		s.opened = map[string]archive.Store{}
	}
	s.opened[location] = store
	return store, nil
}
