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
	// scrubAfter is when the whole ledger is first read after a start, and scrubEvery how often afterwards.
	scrubAfter = time.Minute
	scrubEvery = 24 * time.Hour
	// scrubRate limits the scrub in bytes per second, so that it does not delay other disk accesses.
	scrubRate = 32 << 20
	// scrubPiece is how many bytes are read between two pauses.
	scrubPiece = 1 << 20
)

// ledgerScrub reads the whole ledger regularly. A start reads only the necessary part, so damage before the newest
// snapshot would otherwise be found only when those batches are needed, perhaps after the last good backup is gone.
type ledgerScrub struct {
	record interface {
		Read(ctx context.Context, from uint64, f func(*outbidv1.Batch) error) error
		Last(ctx context.Context) (uint64, error)
	}
	log *slog.Logger
	// kick starts a scrub at once. The channel sent to it is closed when a scrub has ended.
	kick chan chan struct{}

	mu sync.Mutex
	// upTo is the last verified batch, of the number of batches at the start of the scrub. at is the end of the scrub,
	// or zero while it runs.
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

// scrubFresh is how long a result is reused for requested scrubs.
const scrubFresh = time.Minute

// now starts a scrub and waits for its end, or for that of a running one, until ctx ends. It does nothing after a
// recent scrub.
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

// scrub reads the ledger at a rate in bytes per second; 0 means no limit.
func (l *ledgerScrub) scrub(ctx context.Context, rate int) {
	last, err := l.record.Last(ctx)
	if err != nil {
		return // appends report the same error
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
		l.log.Error("the ledger is damaged; this server continues, but a start that needs the batch will fail: restore it from a backup", "err", damage)
	case err != nil && !errors.Is(err, errRead):
		return // NATS is unavailable, or the server is stopping
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

// check returns the doctor's check of the ledger.
func (l *ledgerScrub) check() *outbidv1.Check {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := &outbidv1.Check{Name: "ledger", Ok: l.damage == nil}
	switch {
	case l.damage != nil:
		c.Detail = l.damage.Error()
		c.Fix = "restore the ledger from a backup; this server continues, but a start that needs the batch will fail"
	case l.of == 0:
		c.Detail = "it will be verified a minute after the start, and then once a day"
	case l.at.IsZero():
		c.Detail = fmt.Sprintf("batches up to %s of %s are valid so far", humanize.Comma(int64(l.upTo)), humanize.Comma(int64(l.of)))
	default:
		c.Detail = fmt.Sprintf("all batches up to %s (%s) are valid", humanize.Comma(int64(l.of)), humanize.IBytes(l.bytes))
	}
	if len(l.lost) > 0 {
		c.Detail += "; it lacks " + ledger.HolesText(l.lost) + ", which were given up"
	}
	return c
}
