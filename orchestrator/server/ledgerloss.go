package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/outbid-dev/outbid/orchestrator/bus"
	"github.com/outbid-dev/outbid/orchestrator/ledger"
)

// A store that was truncated, by a disk or a copy, starts without an error, because NATS recovers what it can read. So
// a start compares the ledger with other records: the marks of its end in the data directory and in another stream of
// the same NATS, NATS's own count of messages, and the newest snapshot. Lost batches are given up only if an operator
// requests it.

// ledgerGuard compares the ledger with other records when a server starts, and keeps one of these records.
type ledgerGuard struct {
	cfg *Config
	log *slog.Logger
	nc  *nats.Conn
	end *ledgerEnd
	// notes are stored for later leaders. lost are the batches of the ledger that were given up.
	notes *bus.Notes
	lost  []ledger.Hole
}

// checkLedger returns a *ledger.DamageError if the ledger has lost batches that were not given up.
func (g *ledgerGuard) checkLedger(ctx context.Context, record *ledger.JetStream) error {
	notes, err := bus.OpenNotes(ctx, g.nc, g.cfg.NATS.Replicas)
	if err != nil {
		return err
	}
	g.notes = notes
	if g.cfg.AcceptLedgerLoss { // ignore snapshots beyond the end
		record.Accept(nil)
	}
	if err := g.checkHoles(ctx, record); err != nil {
		return err
	}
	last, err := record.Last(ctx)
	if err != nil {
		return err
	}
	far := g.farMark(ctx)
	for _, known := range []struct {
		mark mark
		when string
	}{{g.end.current(), "when it was last open here"}, {far, "when an orchestrator last led"}} {
		err := known.mark.check(ctx, record, last, known.when)
		damage, lost := errors.AsType[*ledger.DamageError](err)
		switch {
		case err == nil:
		case lost && g.cfg.AcceptLedgerLoss:
			g.log.Error("the ledger has lost its end, which is given up because of --accept-ledger-loss", "ends_at", last, "reason", damage.Reason)
		default:
			return err
		}
	}
	if g.cfg.AcceptLedgerLoss {
		return g.end.reset(last)
	}
	return nil
}

// farMark returns the mark of the ledger's end in NATS. It ignores an unreadable mark.
func (g *ledgerGuard) farMark(ctx context.Context) mark {
	data, err := g.notes.Get(ctx, bus.NoteLedgerEnd)
	if err != nil {
		g.log.Warn("the mark of the ledger's end cannot be read from NATS", "err", err)
	}
	m, _ := parseMark(data)
	return m
}

// checkHoles finds batches that NATS counts but does not have. It gives them up if the configuration says so.
func (g *ledgerGuard) checkHoles(ctx context.Context, record *ledger.JetStream) error {
	holes, err := record.Holes(ctx)
	if err != nil || len(holes) == 0 {
		return err
	}
	if g.lost, err = givenUp(ctx, g.notes); err != nil {
		return err
	}
	if fresh := ledger.Without(holes, g.lost); len(fresh) > 0 {
		if !g.cfg.AcceptLedgerLoss {
			return &ledger.DamageError{Seq: fresh[0].From, Reason: fmt.Sprintf("NATS has lost %s", ledger.HolesText(fresh))}
		}
		g.log.Error("NATS has lost batches of the ledger, which are given up because of --accept-ledger-loss", "lost", ledger.HolesText(fresh))
	} else {
		g.log.Warn("the ledger lacks batches that were given up", "lost", ledger.HolesText(holes))
	}
	g.lost = holes
	data, err := json.Marshal(holes)
	if err != nil {
		return err
	}
	record.Accept(holes)
	return g.notes.Put(ctx, bus.NoteLedgerLoss, data)
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
func (g *ledgerGuard) keepMark(ctx context.Context) error {
	tick := time.NewTicker(markEvery)
	defer tick.Stop()
	var written uint64
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		m := g.end.current()
		if m.seq == written {
			continue
		}
		if err := g.notes.Put(ctx, bus.NoteLedgerEnd, []byte(m.String())); err == nil {
			written = m.seq
		} else if ctx.Err() == nil {
			g.log.Debug("the mark of the ledger's end could not be written to NATS", "err", err)
		}
	}
}
