package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/dustin/go-humanize"
	"google.golang.org/protobuf/proto"

	"github.com/outbid-dev/outbid/orchestrator/ledger"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

const (
	// scrubAfter and scrubEvery are when the whole ledger is read after a start, and how often from then on.
	scrubAfter = time.Minute
	scrubEvery = 24 * time.Hour
	// scrubRate is how fast, in bytes per second, so that nothing else waits for the disk.
	scrubRate = 32 << 20
	// scrubPiece is how much is read between two pauses.
	scrubPiece = 1 << 20
)

// ledgerScrub reads the whole ledger now and then. A start reads no more than it needs, so that damage before the newest snapshot would
// be found only by somebody who needs those batches, when the last good backup may be gone.
type ledgerScrub struct {
	record interface {
		Read(ctx context.Context, from uint64, f func(*outbidv1.Batch) error) error
		Last(ctx context.Context) (uint64, error)
	}
	log *slog.Logger
	// kick begins a scrub now, and the channel that it is given is closed when one has ended.
	kick chan chan struct{}

	mu sync.Mutex
	// upTo is the last batch that was verified, of the ledger as it was when the scrub began, at a time that is zero while it runs.
	upTo, of uint64
	at       time.Time
	bytes    uint64
	damage   error
	lost     []ledger.Hole
}

func newLedgerScrub(record *ledger.JetStream, lost []ledger.Hole, log *slog.Logger) *ledgerScrub {
	return &ledgerScrub{record: record, lost: lost, log: log, kick: make(chan chan struct{})}
}

// run scrubs until ctx ends.
func (l *ledgerScrub) run(ctx context.Context) error {
	timer := time.NewTimer(scrubAfter)
	defer timer.Stop()
	for {
		var done chan struct{}
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case done = <-l.kick:
		}
		l.scrub(ctx, scrubRate)
		if done != nil {
			close(done)
		}
		timer.Reset(scrubEvery)
	}
}

// scrubFresh is how long what a scrub found holds for those who ask for one.
const scrubFresh = time.Minute

// now scrubs now, or waits for the scrub under way, until ctx ends. What was found just now need not be found again.
func (l *ledgerScrub) now(ctx context.Context) {
	l.mu.Lock()
	fresh := !l.at.IsZero() && time.Since(l.at) < scrubFresh
	l.mu.Unlock()
	if fresh {
		return
	}
	done := make(chan struct{})
	select {
	case l.kick <- done:
		select {
		case <-done:
		case <-ctx.Done():
		}
	case <-ctx.Done():
	}
}

// scrub reads the ledger at a rate in bytes per second; 0 for as fast as it can.
func (l *ledgerScrub) scrub(ctx context.Context, rate int) {
	last, err := l.record.Last(ctx)
	if err != nil {
		return // whoever appends says it
	}
	l.mu.Lock()
	l.upTo, l.of, l.at, l.bytes = 0, last, time.Time{}, 0
	l.mu.Unlock()
	began, since := time.Now(), 0
	err = l.record.Read(ctx, 1, func(b *outbidv1.Batch) error {
		size := proto.Size(b)
		l.mu.Lock()
		l.upTo, l.bytes = b.GetSeq(), l.bytes+uint64(size)
		total := l.bytes
		l.mu.Unlock()
		if b.GetSeq() >= last {
			return errRead
		}
		if since += size; rate > 0 && since >= scrubPiece {
			since = 0
			return pause(ctx, time.Until(began.Add(time.Duration(float64(total)/float64(rate)*float64(time.Second)))))
		}
		return nil
	})
	damage, damaged := errors.AsType[*ledger.DamageError](err)
	switch {
	case damaged:
		l.log.Error("the ledger is damaged; this server goes on, and a start that needs the batch will fail: restore it from a backup", "err", damage)
	case err != nil && !errors.Is(err, errRead):
		return // NATS is away, or the server ends
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.at, l.damage = time.Now(), nil
	if damaged {
		l.damage = damage
	}
}

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// damaged reports whether the newest scrub found damage.
func (l *ledgerScrub) damaged() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.damage != nil
}

// check is the doctor's line about the ledger.
func (l *ledgerScrub) check() *outbidv1.Check {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := &outbidv1.Check{Name: "ledger", Ok: l.damage == nil}
	switch {
	case l.damage != nil:
		c.Detail = l.damage.Error()
		c.Fix = "restore the ledger from a backup; this server goes on, and a start that needs the batch will fail"
	case l.of == 0:
		c.Detail = "it is read as a whole a minute after the start, and once a day"
	case l.at.IsZero():
		c.Detail = fmt.Sprintf("batches up to %s of %s are whole so far", humanize.Comma(int64(l.upTo)), humanize.Comma(int64(l.of)))
	default:
		c.Detail = fmt.Sprintf("all batches up to %s (%s) are whole", humanize.Comma(int64(l.of)), humanize.IBytes(l.bytes))
	}
	if len(l.lost) > 0 {
		c.Detail += "; it lacks " + ledger.HolesText(l.lost) + ", which were given up"
	}
	return c
}
