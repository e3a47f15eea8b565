package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/outbid-dev/outbid/orchestrator/bus"
	"github.com/outbid-dev/outbid/orchestrator/ledger"
)

// A store that was truncated, by a disk or a copy, starts without an error, because NATS recovers what it can read. So
// a start compares the ledger with other records: the marks of its end in the data directory and in another stream of
// the same NATS, NATS's own count of messages, and the newest snapshot. Lost batches are given up only if an operator
// requests it.

// checkLedger returns a *ledger.DamageError if the ledger has lost batches that were not given up.
func (s *Server) checkLedger(ctx context.Context, record *ledger.JetStream) error {
	notes, err := bus.OpenNotes(ctx, s.nc, s.cfg.NATS.Replicas)
	if err != nil {
		return err
	}
	s.notes = notes
	if s.cfg.AcceptLedgerLoss { // ignore snapshots beyond the end
		record.Accept(nil)
	}
	if err := s.checkHoles(ctx, record); err != nil {
		return err
	}
	last, err := record.Last(ctx)
	if err != nil {
		return err
	}
	far := s.farMark(ctx)
	for _, known := range []struct {
		mark mark
		when string
	}{{s.reports.end.current(), "when it was last open here"}, {far, "when an orchestrator last led"}} {
		err := known.mark.check(ctx, record, last, known.when)
		damage, lost := errors.AsType[*ledger.DamageError](err)
		switch {
		case err == nil:
		case lost && s.cfg.AcceptLedgerLoss:
			s.log.Error("the ledger has lost its end, which is given up because of --accept-ledger-loss", "ends_at", last, "reason", damage.Reason)
		default:
			return err
		}
	}
	if s.cfg.AcceptLedgerLoss {
		return s.reports.end.reset(last)
	}
	return nil
}

// farMark returns the mark of the ledger's end in NATS. It ignores an unreadable mark.
func (s *Server) farMark(ctx context.Context) mark {
	data, err := s.notes.Get(ctx, bus.NoteLedgerEnd)
	if err != nil {
		s.log.Warn("the mark of the ledger's end cannot be read from NATS", "err", err)
	}
	m, _ := parseMark(data)
	return m
}

// checkHoles finds batches that NATS counts but does not have. It gives them up if the configuration says so.
func (s *Server) checkHoles(ctx context.Context, record *ledger.JetStream) error {
	holes, err := record.Holes(ctx)
	if err != nil || len(holes) == 0 {
		return err
	}
	if s.lost, err = givenUp(ctx, s.notes); err != nil {
		return err
	}
	if fresh := ledger.Without(holes, s.lost); len(fresh) > 0 {
		if !s.cfg.AcceptLedgerLoss {
			return &ledger.DamageError{Seq: fresh[0].From, Reason: fmt.Sprintf("NATS has lost %s", ledger.HolesText(fresh))}
		}
		s.log.Error("NATS has lost batches of the ledger, which are given up because of --accept-ledger-loss", "lost", ledger.HolesText(fresh))
	} else {
		s.log.Warn("the ledger lacks batches that were given up", "lost", ledger.HolesText(holes))
	}
	s.lost = holes
	data, err := json.Marshal(holes)
	if err != nil {
		return err
	}
	record.Accept(holes)
	return s.notes.Put(ctx, bus.NoteLedgerLoss, data)
}

// givenUp returns the batches of the ledger that were given up.
func givenUp(ctx context.Context, notes *bus.Notes) ([]ledger.Hole, error) {
	data, err := notes.Get(ctx, bus.NoteLedgerLoss)
	if err != nil || len(data) == 0 {
		return nil, err
	}
	var lost []ledger.Hole
	if err := json.Unmarshal(data, &lost); err != nil {
		return nil, fmt.Errorf("read the list of given-up batches: %w", err)
	}
	return lost, nil
}

// acceptGivenUp makes a ledger that is only read accept that these batches are missing.
func acceptGivenUp(ctx context.Context, nc *nats.Conn, record *ledger.JetStream) error {
	notes, err := bus.OpenNotes(ctx, nc, 0)
	if err != nil {
		return err
	}
	lost, err := givenUp(ctx, notes)
	if err == nil && len(lost) > 0 {
		record.Accept(lost)
	}
	return err
}

// markEvery is how often the mark of the ledger's end is written to NATS if the ledger has grown.
const markEvery = 2 * time.Second

// keepMark writes the mark of the ledger's end to NATS, separately from the loop: it may lag behind, and does not delay
// appends.
func (s *Server) keepMark(ctx context.Context) error {
	tick := time.NewTicker(markEvery)
	defer tick.Stop()
	var written uint64
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		m := s.reports.end.current()
		if m.seq == written {
			continue
		}
		if err := s.notes.Put(ctx, bus.NoteLedgerEnd, []byte(m.String())); err == nil {
			written = m.seq
		} else if ctx.Err() == nil {
			s.log.Debug("the mark of the ledger's end could not be written to NATS", "err", err)
		}
	}
}
