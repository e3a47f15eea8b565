package control

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/outbid-dev/outbid/orchestrator/ledger"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// roundsBlock is how many batches are read at a time in a search for rounds.
const roundsBlock = 256

// errEnough ends a read of the ledger early.
var errEnough = errors.New("enough was read")

// roundReader reads rounds from memory, and older ones from the ledger.
type roundReader struct {
	ledger ledger.Ledger
	views  *views
	recent *recent
	// table describes the kinds of events that are read from the ledger.
	table state.Table
}

// round returns one round from the ledger. 0 means the newest that granted or revoked something.
func (rr *roundReader) round(ctx context.Context, number uint64) (*outbidv1.Round, error) {
	if number == 0 {
		newest, err := rr.list(ctx, 0, "", 1)
		if err == nil && len(newest) == 0 {
			err = fmt.Errorf("%w: the policy has not decided anything yet", state.ErrNotFound)
		}
		if err != nil {
			return nil, err
		}
		return newest[0], nil
	}
	var found *outbidv1.Round
	from := rr.recent.newest(func(r *outbidv1.Round) bool {
		if r.GetRound() == number {
			found = proto.CloneOf(r)
		}
		return r.GetRound() > number
	})
	if found != nil {
		return found, nil
	}
	return rr.olderRound(ctx, number, min(from, rr.last()+1)-1)
}

// olderRound searches the ledger for a round up to a batch. Rounds are in ascending order, so it bisects down to one
// block.
func (rr *roundReader) olderRound(ctx context.Context, number, high uint64) (*outbidv1.Round, error) {
	low, last := uint64(1), high
	for high > low+roundsBlock {
		middle := low + (high-low)/2
		r, err := rr.firstRound(ctx, middle, high)
		switch {
		case err != nil:
			return nil, err
		case r == nil || r.GetRound() > number:
			high = middle
		default:
			low = r.GetSeq()
		}
		if r.GetRound() == number {
			return r, nil
		}
	}
	for {
		r, err := rr.firstRound(ctx, low, last)
		if err != nil {
			return nil, err
		}
		if r == nil || r.GetRound() > number {
			return nil, fmt.Errorf("%w: there is no round %d", state.ErrNotFound, number)
		}
		if r.GetRound() == number {
			return r, nil
		}
		low = r.GetSeq() + 1
	}
}

// list returns at most limit rounds that granted or revoked something, newest first, from before a round, or the
// newest if before is 0. With a sweep, it returns only those that concern it.
func (rr *roundReader) list(ctx context.Context, before uint64, sweep string, limit int) ([]*outbidv1.Round, error) {
	var found []*outbidv1.Round
	wanted := func(r *outbidv1.Round) bool {
		return (before == 0 || r.GetRound() < before) && len(r.GetDecisions()) > 0 && takesPart(r, sweep)
	}
	from := rr.recent.newest(func(r *outbidv1.Round) bool {
		if wanted(r) {
			found = append(found, proto.CloneOf(r))
		}
		return len(found) < limit
	})
	for high := min(from, rr.last()+1) - 1; high > 0 && len(found) < limit; {
		low := uint64(1)
		if high > roundsBlock {
			low = high - roundsBlock + 1
		}
		var block []*outbidv1.Round
		err := rr.readRounds(ctx, low, high, func(r *outbidv1.Round) error {
			if wanted(r) {
				block = append(block, r)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		slices.Reverse(block)
		found = append(found, block...)
		high = low - 1
	}
	return found[:min(len(found), limit)], nil
}

func takesPart(r *outbidv1.Round, sweep string) bool {
	return sweep == "" ||
		slices.ContainsFunc(r.GetDecisions(), func(d *outbidv1.Decision) bool { return d.GetSweep() == sweep }) ||
		slices.ContainsFunc(r.GetAuction().GetBidders(), func(b *outbidv1.Bidder) bool { return b.GetSweep() == sweep })
}

// last returns the sequence number of the newest batch.
func (rr *roundReader) last() uint64 { return rr.views.load().Seq }

// firstRound returns the first round between two batches, inclusive, or nil.
func (rr *roundReader) firstRound(ctx context.Context, low, high uint64) (*outbidv1.Round, error) {
	var first *outbidv1.Round
	err := rr.readRounds(ctx, low, high, func(r *outbidv1.Round) error {
		first = r
		return errEnough
	})
	return first, err
}

func (rr *roundReader) readRounds(ctx context.Context, low, high uint64, f func(*outbidv1.Round) error) error {
	err := rr.ledger.Read(ctx, low, func(b *outbidv1.Batch) error {
		if b.GetSeq() > high {
			return errEnough
		}
		events, err := ledger.Decode(b)
		if err != nil {
			return err
		}
		for _, r := range roundsOf(rr.table, b, events) {
			if err := f(r); err != nil {
				return err
			}
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

// roundsOf returns the rounds of a batch with their decisions, which are the events that follow them.
func roundsOf(table state.Table, b *outbidv1.Batch, events []*outbidv1.Event) []*outbidv1.Round {
	var rounds []*outbidv1.Round
	deciding := false
	for _, e := range events {
		if begun := table.Round(e); begun != nil {
			rounds, deciding = append(rounds, &outbidv1.Round{
				Round: begun.GetRound(), Time: b.GetTime(), Seq: b.GetSeq(), Policy: begun.GetPolicy(), Reason: begun.GetReason(),
				Auction: begun.GetAuction(),
			}), true
			continue
		}
		if !deciding {
			continue
		}
		d, more := table.Decision(e)
		if deciding = more; d != nil {
			r := rounds[len(rounds)-1]
			r.Decisions = append(r.Decisions, d)
		}
	}
	return rounds
}
