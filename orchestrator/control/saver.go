package control

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/ledger"
	"github.com/outbid-dev/outbid/orchestrator/state"
)

// saver saves snapshots of the core while the loop runs: of the whole state if it is small, and otherwise of the
// changes since the newest one. Once the changes are large, it merges them into a snapshot of the whole state. Only the
// loop's goroutine calls it.
type saver struct {
	ledger  ledger.Ledger
	history History
	logger  *slog.Logger
	// every is the minimum number of events between two snapshots, and events their number since the latest.
	every, events int
	// slot is full while a snapshot is being written, and merging while changes are being merged. life ends merging.
	slot, merging chan struct{}
	life          context.Context //nolint:containedctx // of a goroutine that no call waits for
	end           context.CancelFunc
	writing       sync.WaitGroup

	mu sync.Mutex
	// latest identifies the state of the newest stored snapshot, or is nil.
	latest *state.Saved
	// whole is the size of the newest stored snapshot of the whole state, and changes that of the changes since then.
	whole, changes int
}

func newSaver(cfg Config) *saver {
	life, end := context.WithCancel(context.Background())
	return &saver{
		ledger: cfg.Ledger, history: cfg.History, logger: cfg.Logger, every: cfg.SnapshotEvery,
		slot: make(chan struct{}, 1), merging: make(chan struct{}, 1), life: life, end: end,
	}
}

// restored continues from the snapshot of a restored core, after which events were read.
func (s *saver) restored(core *Core, events int) {
	s.events, s.latest, s.whole, s.changes = events, core.loaded, core.loadedWhole, core.loadedChanges
}

// maybe saves a snapshot after enough events since the last one. Freezing the whole state takes time in proportion to
// the number of trials, and freezing changes takes time in proportion to the tuners that run. Encoding, saving and merging
// run concurrently with the loop.
func (s *saver) maybe(core *Core) {
	if s.events < s.every {
		return
	}
	trials, live := core.countTrials()
	if s.events < live/2 {
		return
	}
	if core.Deciding() {
		core.HoldRound() // the snapshot is made before the next round
		return
	}
	select {
	case s.slot <- struct{}{}:
	default:
		return // the previous snapshot is still being written
	}
	since := s.since(trials)
	frozen, err := core.FreezeSince(since)
	if err != nil {
		<-s.slot
		s.logger.Error("could not make a snapshot", "err", err)
		return
	}
	s.events = 0
	s.writing.Go(func() {
		err := s.save(frozen, since, snapshotTimeout)
		<-s.slot
		if err != nil {
			s.logger.Error("could not save a snapshot", "err", err)
			return
		}
		s.maybeMerge()
	})
}

// snapshotTimeout limits the saving of a snapshot while the loop runs, and finalTimeout that of the last one, which
// the loop's end waits for.
const (
	snapshotTimeout = 2 * time.Minute
	finalTimeout    = 10 * time.Second
)

// since identifies the state since which a snapshot must have the changes, or returns nil if it must have everything,
// because there are few trials or no snapshot is stored.
func (s *saver) since(trials int) *state.Saved {
	if 2*trials <= s.every {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.latest
}

// save saves a snapshot, of the changes since another one unless that is nil. It flushes the history before, because a
// restart will not read that part of the ledger again.
func (s *saver) save(frozen Frozen, since *state.Saved, timeout time.Duration) error {
	data, err := frozen.Encode()
	if err != nil {
		return err
	}
	if err := s.history.Flush(); err != nil {
		return fmt.Errorf("flushing the history: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	seq := frozen.saved.Seq()
	if since == nil {
		err = s.ledger.SaveSnapshot(ctx, seq, data)
	} else {
		err = s.ledger.SaveChanges(ctx, since.Seq(), seq, data)
	}
	if err != nil {
		s.logger.Warn("could not save the snapshot; the next restart reads more of the ledger", "seq", seq, "err", err)
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.latest = frozen.saved; since == nil {
		s.whole, s.changes = len(data), 0
	} else {
		s.changes += len(data)
	}
	return nil
}

// maybeMerge merges the stored changes into a snapshot of the whole state once they are half as large, so that reading both
// does not take much longer. It reads the stored snapshots, not the core. Older versions read only snapshots of the whole state.
func (s *saver) maybeMerge() {
	s.mu.Lock()
	due := 2*s.changes > s.whole
	s.mu.Unlock()
	if !due {
		return
	}
	select {
	case s.merging <- struct{}{}:
	default:
		return
	}
	defer func() { <-s.merging }()
	if err := s.merge(); err != nil && s.life.Err() == nil {
		s.logger.Warn("could not merge changes into a snapshot", "err", err)
	}
}

func (s *saver) merge() error {
	ctx, cancel := context.WithTimeout(s.life, snapshotTimeout)
	defer cancel()
	stored, err := loadLayers(ctx, s.ledger)
	if err != nil || stored == nil || stored.changes == 0 {
		return err
	}
	data, err := stored.layers.encode()
	if err != nil {
		return err
	}
	seq, merged := stored.layers.head.GetSeq(), stored.changes
	if err := s.ledger.SaveSnapshot(ctx, seq, data); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.whole, s.changes = len(data), max(0, s.changes-merged)
	return nil
}

// last saves a snapshot so that the next start is fast. Nothing must be written at the same time: see wait.
func (s *saver) last(core *Core) error {
	if s.events == 0 {
		return s.history.Flush()
	}
	trials, _ := core.countTrials()
	since := s.since(trials)
	frozen, err := core.FreezeSince(since)
	if err != nil {
		return err
	}
	return s.save(frozen, since, finalTimeout)
}

// wait waits until what is being written is stored, except for a merge, which it ends.
func (s *saver) wait() {
	s.end()
	s.writing.Wait()
}
