package control

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/ledger"
)

// saver saves snapshots of the core while the loop runs. Only the loop's goroutine uses it.
type saver struct {
	ledger  ledger.Ledger
	history History
	logger  *slog.Logger
	// every is the minimum number of events between two snapshots, and events their number since the latest.
	every, events int
	// slot is full while a snapshot is being written.
	slot    chan struct{}
	writing sync.WaitGroup
}

// maybe saves a snapshot after enough events since the last one. Freezing takes time in proportion to the
// number of trials, so more trials require more events. Encoding and saving run concurrently with the loop.
func (s *saver) maybe(core *Core) {
	if s.events < max(s.every, 2*core.countTrials()) {
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
	frozen, err := core.Freeze()
	if err != nil {
		<-s.slot
		s.logger.Error("could not make a snapshot", "err", err)
		return
	}
	s.events = 0
	s.writing.Go(func() {
		defer func() { <-s.slot }()
		if err := s.save(frozen, snapshotTimeout); err != nil {
			s.logger.Error("could not save a snapshot", "err", err)
		}
	})
}

// snapshotTimeout limits the saving of a snapshot while the loop runs, and finalTimeout that of the last one, which
// the loop's end waits for.
const (
	snapshotTimeout = 2 * time.Minute
	finalTimeout    = 10 * time.Second
)

// save saves a snapshot after flushing the history, because a restart will not read that part of the ledger
// again.
func (s *saver) save(frozen Frozen, timeout time.Duration) error {
	data, err := frozen.Encode()
	if err != nil {
		return err
	}
	if err := s.history.Flush(); err != nil {
		return fmt.Errorf("flushing the history: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	if err := s.ledger.SaveSnapshot(ctx, frozen.seq, data); err != nil {
		s.logger.Warn("could not save the snapshot; the next restart reads more of the ledger", "seq", frozen.seq, "err", err)
	}
	return nil
}

// last saves a snapshot so that the next start is fast.
func (s *saver) last(core *Core) error {
	if s.events == 0 {
		return s.history.Flush()
	}
	frozen, err := core.Freeze()
	if err != nil {
		return err
	}
	return s.save(frozen, finalTimeout)
}
