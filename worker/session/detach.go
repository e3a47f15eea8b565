package session

import (
	"context"
	"time"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// A trial may have to end while its process still prepares the first step, for example imports a framework. Then the
// trial has nothing to save, and the process does not read its orders yet. Waiting for the process would take long,
// and killing it would waste the import. So the process is detached from its trial: the worker continues as if the
// process had ended, and the process is warm once it has finished the trial.

// Detach detaches the process from the trial, one of several forks whose Began was not called. The trial does not
// receive further events, the process is ordered to stop it, and over is called when the process has done so or is
// gone. Then the process runs the next trial that can share it. It is killed if no trial can, if another process
// needs its devices first, or after Config.StartTimeout. Detach returns false, and does nothing, if the process is
// just delivering an event or is done with the trial.
func (t *Session) Detach(over func()) bool {
	p := t.proc
	if !p.telling.TryLock() {
		return false
	}
	defer p.telling.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	if !t.isCurrent() {
		return false
	}
	t.trial = detachedTrial{over}
	t.order.Verdict, t.dirty = outbidv1.Verdict_VERDICT_STOP, true
	p.phase, p.rested = detached, make(chan struct{})
	p.idleStop = time.AfterFunc(p.srv.cfg.StartTimeout, p.process.Kill)
	p.notify()
	if p.spec.Fresh {
		p.process.Kill()
	}
	return true
}

// signalRested wakes callers that wait until the process is done with the detached trial. The caller holds the lock.
func (p *proc) signalRested() {
	if p.rested != nil {
		close(p.rested)
		p.rested = nil
	}
}

// awaitDetached waits until a detached process is done with its trial. It returns false if no process is detached.
func (s *Server) awaitDetached(ctx context.Context, key string) (bool, error) {
	s.mu.Lock()
	var rested <-chan struct{}
	for _, p := range s.procs {
		if p.key == key {
			p.mu.Lock()
			if p.phase == detached {
				rested = p.rested
			}
			p.mu.Unlock()
		}
	}
	s.mu.Unlock()
	if rested == nil {
		return false, nil
	}
	select {
	case <-rested:
		return true, nil
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
}

// detachedTrial discards the events of a trial after its process was detached.
type detachedTrial struct{ over func() }

// Reports implements Trial.
func (detachedTrial) Reports([]*outbidv1.Report) {}

// LastReports implements Trial.
func (detachedTrial) LastReports([]*outbidv1.Report) {}

// Saved implements Trial.
func (detachedTrial) Saved(*outbidv1.ProcessSaved) {}

// Began implements Trial.
func (detachedTrial) Began() {}

// Waiting implements Trial.
func (detachedTrial) Waiting() {}

// Reached implements Trial.
func (detachedTrial) Reached(int64) {}

// Note implements Trial.
func (detachedTrial) Note(string) {}

// Ended implements Trial.
func (a detachedTrial) Ended(*outbidv1.ForkEnded) { a.over() }
