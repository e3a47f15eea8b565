package server

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/bus"
	"github.com/outbid-dev/outbid/orchestrator/control"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

const (
	// natsAgain is the pause between two attempts to connect to NATS.
	natsAgain = 500 * time.Millisecond
	// natsTold is the time between two log messages about a NATS that is away.
	natsTold = 30 * time.Second
	// natsAway is how long the leader's lease must have been overdue before this is logged.
	natsAway = 3 * time.Second
	// startTries is how often a start that failed without an answer from NATS is tried while NATS answers.
	startTries = 3
)

// natsWait logs that the server waits for NATS.
type natsWait struct {
	log   *slog.Logger
	since time.Time
	told  time.Time
}

// tell logs why the server waits, the first time and then from time to time.
func (w *natsWait) tell(why string) {
	now := time.Now()
	if w.since.IsZero() {
		w.since = now
	}
	if now.Sub(w.told) < natsTold {
		return
	}
	w.told = now
	w.log.Warn("waiting for NATS; nothing acknowledged is lost", "why", why, "since", now.Sub(w.since).Round(time.Second))
}

// over logs that NATS is back if tell has logged that it was away.
func (w *natsWait) over() {
	if !w.told.IsZero() {
		w.log.Info("NATS is back", "away", time.Since(w.since).Round(time.Millisecond))
	}
	*w = natsWait{log: w.log}
}

// awaits reports whether a start that failed is to be tried again, because NATS does not answer.
func (ld *leadership) awaits(ctx context.Context, err error, try int) bool {
	if ld.embedded != nil || ld.nc == nil || ctx.Err() != nil || !bus.IsAway(err) {
		return false
	}
	why := ld.whyNoWrites(err)
	if why == "" && try >= startTries {
		return false
	}
	ld.log.Warn("the start failed because NATS did not answer; starting again", "error", err, "why", why)
	return true
}

// watchNATS logs why the leader's lease cannot be renewed until ctx ends.
func (ld *leadership) watchNATS(ctx context.Context) error {
	if ld.embedded != nil {
		<-ctx.Done()
		return nil
	}
	waits := natsWait{log: ld.log}
	for pause(ctx, time.Second) == nil {
		overdue, err := ld.lead.Overdue()
		if overdue < natsAway {
			waits.over()
			continue
		}
		if time.Since(waits.told) >= natsTold {
			why := ld.whyNoWrites(err)
			if why == "" {
				why = err.Error()
			}
			waits.tell(why)
		}
	}
	return nil
}

// appendPatience is how long an append to the ledger is retried; 0 is the default. A NATS in this process does not come
// back by itself.
func (ld *leadership) appendPatience() time.Duration {
	if ld.embedded != nil {
		return 0
	}
	return control.Endless
}

// confirm returns once no other server can lead yet. None can use a NATS in this process.
func (ld *leadership) confirm(ctx context.Context) error {
	if ld.embedded != nil {
		return nil
	}
	return ld.lead.Confirm(ctx)
}

// away returns why this server cannot answer: its lease has expired for longer than the patience, and the ledger has stored
// nothing since. Once it has, commands show whether another server leads.
func (ld *leadership) away() string {
	if ld.embedded != nil || ld.lead.Acts() || time.Since(ld.stored()) < ld.cfg.Lease {
		return ""
	}
	return fmt.Sprintf("this server waits for NATS at %s: use the leader if there is another, or retry in a moment; nothing is lost", ld.natsURL)
}

// overlap is how long an earlier leader may have given orders after this one began.
func (ld *leadership) overlap() time.Duration {
	if ld.embedded != nil {
		return 0
	}
	return ld.cfg.Lease
}

// mayOrder passes orders to send. A leader whose lease has expired gives none: another may lead, whose workers it would
// keep. Workers miss them like lost orders. No other had taken over when the ledger acknowledged an append.
func (ld *leadership) mayOrder(send func(*outbidv1.Orders) error) func(*outbidv1.Orders) error {
	return func(o *outbidv1.Orders) error {
		if !ld.lead.Acts() && time.Since(ld.acked()) >= ld.cfg.Lease {
			return nil
		}
		return send(o)
	}
}
