package session

import (
	"context"
	"time"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// A trial that is told to end while its process is still busy with what comes before the first step, such as the import of a
// framework, has nothing to save, and its process does not listen yet. To wait for it takes long, and to kill it throws the
// import away. So the process is detached from its trial: the worker goes on as if it had ended, and the process is warm once it has.

// Detach detaches the process from the trial, one of a round of forks of which Began was not told. The trial hears nothing more, what runs is told to stop, and
// over is called when that has ended or the process is gone. The process then runs the next trial that can share it; it is killed
// if there can be none, if another needs its devices before, or after Config.StartTimeout. Detach returns false, and does
// nothing, if the process is telling something, would not tell when the trial began, or is done with it.
func (t *Session) Detach(over func()) bool {
	p := t.proc
	if !p.telling.TryLock() {
		return false
	}
	defer p.telling.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	if !t.current() || !p.tellsBegin {
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

// rest tells who waits that the process is done with the trial that it was detached from. The caller holds the lock.
func (p *proc) rest() {
	if p.rested != nil {
		close(p.rested)
		p.rested = nil
	}
}

// awaitDetached waits until a detached process is done with its trial; false if there is no such process.
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

// detachedTrial hears for nobody what a detached process still says of its trial.
type detachedTrial struct{ over func() }

// Reports implements Trial.
func (detachedTrial) Reports([]*outbidv1.Report) {}

// LastReports implements Trial.
func (detachedTrial) LastReports([]*outbidv1.Report) {}

// Saved implements Trial.
func (detachedTrial) Saved(*outbidv1.ProcessSaved) {}

// Began implements Trial.
func (detachedTrial) Began() {}

// Reached implements Trial.
func (detachedTrial) Reached(int64) {}

// Note implements Trial.
func (detachedTrial) Note(string) {}

// Ended implements Trial.
func (a detachedTrial) Ended(*outbidv1.ForkEnded) { a.over() }
