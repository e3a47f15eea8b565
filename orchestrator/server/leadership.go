package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/bus"
	"github.com/outbid-dev/outbid/orchestrator/state"
)

// leadership is the lead of a server among the servers of its NATS.
type leadership struct {
	*natsLink
	lead        *bus.Leadership
	openArchive storeOpener
	// acked and stored are those of the ledger; nil before it is open.
	acked, stored func() time.Time
	// leading is lead for concurrent readers while the server opens.
	leading atomic.Pointer[bus.Leadership]
}

// takeLead waits until this server leads. A server that runs NATS itself leads at once, because the previous leader
// used the previous NATS.
// If NATS does not answer or accept writes, the server waits for it.
func (ld *leadership) takeLead(ctx context.Context) error {
	if ld.embedded != nil {
		return ld.campaign(ctx)
	}
	waits := natsWait{log: ld.log}
	for {
		reconnects := ld.nc.Stats().Reconnects
		err := ld.tryLead(ctx)
		unreachable, ok := errors.AsType[*UnreachableError](err)
		if ctx.Err() != nil || !ok && (err == nil || ld.nc.Stats().Reconnects == reconnects) {
			return err
		}
		why := "the connection was lost meanwhile"
		if ok {
			why = unreachable.Msg
		}
		waits.tell(why)
	}
}

// tryLead waits until this server leads, or fails after LeadWait unless it is a standby.
func (ld *leadership) tryLead(ctx context.Context) error {
	leader, err := bus.CurrentLeader(ctx, ld.nc)
	if ld.cfg.Standby {
		if err != nil {
			return ld.campaign(ctx)
		}
		ld.log.Info("standing by until the leader is gone", "leader", leader.ID, "term", leader.Term)
		return ld.standBy(ctx)
	}
	if err == nil && isDeadLocalProcess(leader) {
		ld.log.Info("the previous leader is dead; this server leads once its lease has expired", "leader", leader.ID,
			"pid", leader.PID)
	}
	wait, cancel := context.WithTimeout(ctx, ld.cfg.LeadWait)
	defer cancel()
	err = ld.campaign(wait)
	if err == nil || ctx.Err() != nil || wait.Err() == nil {
		return err
	}
	if leader, lookErr := bus.CurrentLeader(ctx, ld.nc); lookErr == nil {
		return ld.leadTaken(leader, err)
	}
	why := ld.whyNoWrites(err)
	if why == "" {
		why = fmt.Sprintf("NATS at %s took longer than %s to elect it", ld.natsURL, ld.cfg.LeadWait)
	}
	return &UnreachableError{Msg: "this server cannot lead: " + why, Err: err}
}

// standBy waits until this server leads, or can no longer take over because a newer version has written to the ledger.
func (ld *leadership) standBy(ctx context.Context) error {
	able, give := context.WithCancelCause(ctx)
	defer give(nil)
	defer ld.followLedger(ctx, give)()
	err := ld.campaign(able)
	if cause := context.Cause(able); errors.Is(cause, state.ErrNewer) {
		return fmt.Errorf("this standby can no longer take over: %w", cause)
	}
	return err
}

// campaign waits until this server leads, or ctx ends.
func (ld *leadership) campaign(ctx context.Context) error {
	// The leadership ends with its context, which must outlive ctx: it is given up last.
	held, release := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, release)
	host, _ := os.Hostname() // only lets the next leader detect that this process is dead
	lead, err := bus.Campaign(held, ld.nc, bus.Candidate{
		ID: ld.cfg.Name, Host: host, PID: os.Getpid(), Force: ld.embedded != nil, Patience: ld.cfg.Lease,
		Waits: ld.embedded == nil, Replicas: ld.cfg.NATS.Replicas, Logger: ld.log,
	})
	if !stop() {
		release()
		return errors.Join(context.Cause(ctx), err)
	}
	if err != nil {
		release()
		return err
	}
	ld.lead = lead
	ld.leading.Store(lead)
	ld.onClose(func() error {
		defer release()
		if lead.Lapsed() { // NATS is unavailable, or was for too long
			return nil
		}
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		if err := lead.Resign(ctx); err != nil {
			ld.log.Warn("the lead could not be given up; the next leader waits until it expires", "err", err)
		}
		return nil
	})
	return nil
}

// lapsed returns why this server no longer leads although no other server has taken over.
func (ld *leadership) lapsed() error {
	why := ld.whyNoWrites(ld.lead.Cause())
	if why == "" {
		why = fmt.Sprintf("NATS at %s did not answer for a while", ld.natsURL)
	}
	return fmt.Errorf("%s, so this server no longer leads and has stopped; restart it once that is fixed: nothing is lost",
		why)
}

// leads reports whether this process leads now.
func (ld *leadership) leads() bool {
	lead := ld.leading.Load()
	if lead == nil {
		return false
	}
	select {
	case <-lead.Lost():
		return false
	default:
		return true
	}
}

// term returns the term of this process's lead, or 0 if it never led.
func (ld *leadership) term() float64 {
	if lead := ld.leading.Load(); lead != nil {
		return float64(lead.Term())
	}
	return 0
}

// isDeadLocalProcess reports whether a leader was a process of this machine that no longer exists.
func isDeadLocalProcess(l bus.Leader) bool {
	host, err := os.Hostname()
	if err != nil || l.PID <= 0 || l.Host != host {
		return false
	}
	return errors.Is(syscall.Kill(l.PID, 0), syscall.ESRCH)
}

// leadTaken returns the error for a server that could not become the leader: another server leads, or NATS does not
// accept writes.
func (ld *leadership) leadTaken(l bus.Leader, cause error) error {
	if why := ld.whyNoWrites(cause); why != "" {
		return &UnreachableError{Msg: "this server cannot lead: " + why, Err: cause}
	}
	if isDeadLocalProcess(l) {
		return fmt.Errorf("the lead of process %d on this machine, which is dead, could not be taken over: %w", l.PID, cause)
	}
	return badField("Standby", "server %s%s leads since %s: stop it first, or start this one as a standby to take over when it is gone", l.ID,
		describeProcess(l), l.Since.Local().Format(time.DateTime))
}

// describeProcess describes a leader's process.
func describeProcess(l bus.Leader) string {
	if l.PID == 0 {
		return ""
	}
	return fmt.Sprintf(" (process %d on %s)", l.PID, l.Host)
}
