package session

import (
	"net"
	"sync"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/limits"
	"github.com/outbid-dev/outbid/orchestrator/sanitize"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// strayGrace is how long a process may live after its stream has ended.
const strayGrace = 5 * time.Second

// attach serves the process at the other end of a stream until the stream ends.
func (s *Server) attach(st *frameStream, from net.Addr) {
	first, err := st.Recv()
	if err != nil {
		return
	}
	s.mu.Lock()
	p := s.procs[secretID(first.GetHello().GetSession())]
	s.mu.Unlock()
	if p == nil || !p.isOwnUser(from) || !p.attach() {
		return // only a process that the worker started can attach, and only once
	}
	defer close(p.streamed)
	if addr, ok := from.(peerAddr); ok {
		addr.conn.attached()
	}
	var sender sync.WaitGroup
	over := make(chan struct{})
	sender.Go(func() { p.sendAll(st, over) })
	close(p.attached)
	for {
		m, err := st.Recv()
		if err != nil {
			break
		}
		p.handle(m, st.EndFollows())
	}
	close(over)
	st.HangUp()
	sender.Wait()
	time.AfterFunc(strayGrace, p.process.Kill) // without a stream the process is useless
}

func (p *proc) attach() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.streams || p.phase == leaving {
		return false
	}
	p.streams = true
	return true
}

// sendAll sends queued messages until the stream is over. Directives are desired state: only the newest one is sent.
func (p *proc) sendAll(st *frameStream, over <-chan struct{}) {
	for {
		select {
		case <-p.wake:
		case <-over:
			return
		}
		p.mu.Lock()
		out := p.out
		p.out = nil
		if t := p.trial; t != nil {
			if d := t.due(); d != nil {
				out = append(out, d)
			}
		}
		p.mu.Unlock()
		for _, m := range out {
			if st.Send(m) != nil {
				return // the receiving side detects the error too
			}
		}
	}
}

// handle handles a message of the process. endFollows says that the end of its trial comes next. Messages about an
// ended trial are dropped.
func (p *proc) handle(m *outbidv1.AttachRequest, endFollows bool) {
	p.telling.Lock()
	defer p.telling.Unlock()
	p.mu.Lock()
	t := p.trial
	p.mu.Unlock()
	if t == nil {
		return
	}
	switch k := m.GetKind().(type) {
	case *outbidv1.AttachRequest_Reports:
		switch {
		case !t.matches(k.Reports.GetFork()):
		case endFollows:
			t.trial.LastReports(k.Reports.GetReports())
		default:
			t.trial.Reports(k.Reports.GetReports())
		}
	case *outbidv1.AttachRequest_Saved:
		if t.matches(k.Saved.GetFork()) {
			t.trial.Saved(k.Saved)
		}
	case *outbidv1.AttachRequest_Began:
		if t.matches(k.Began.GetFork()) {
			t.trial.Began()
		}
	case *outbidv1.AttachRequest_Waiting:
		if t.matches(k.Waiting.GetFork()) {
			t.trial.Waiting()
		}
	case *outbidv1.AttachRequest_Reached:
		if t.matches(k.Reached.GetFork()) {
			t.trial.Reached(k.Reached.GetStep())
		}
	case *outbidv1.AttachRequest_Ended:
		if t.matches(k.Ended.GetFork()) {
			p.mu.Lock()
			p.finish()
			p.mu.Unlock()
			t.trial.Ended(endOf(k.Ended))
		}
	}
}

func endOf(e *outbidv1.ProcessEnded) *outbidv1.ForkEnded {
	ended := &outbidv1.ForkEnded{Outcome: outbidv1.ForkOutcome_FORK_OUTCOME_FINISHED, Step: e.GetStep(), Pruned: e.GetPruned()}
	switch {
	case e.GetError() != "":
		ended.Outcome = outbidv1.ForkOutcome_FORK_OUTCOME_FAILED
		ended.Failure = outbidv1.FailureKind_FAILURE_KIND_ERROR
		ended.PeerLost = e.GetPeerLost()
		ended.Detail = sanitize.Line(e.GetError(), limits.Detail)
	case e.GetOrdered():
		ended.Outcome = outbidv1.ForkOutcome_FORK_OUTCOME_ORDERED
	}
	return ended
}

// Session is one trial in a process. Its methods do nothing once the trial has ended or the process was detached from
// it.
type Session struct {
	proc  *proc
	fork  *outbidv1.ForkRef
	trial Trial

	// The following fields are guarded by the process's lock.
	order outbidv1.Directive
	dirty bool
	// refusedConn is set once the trial got a note that its process opens too many connections.
	refusedConn bool
}

func (t *Session) matches(ref *outbidv1.ForkRef) bool {
	return ref.GetLeaseId() == t.fork.GetLeaseId() && ref.GetTrial() == t.fork.GetTrial() &&
		ref.GetSweep() == t.fork.GetSweep()
}

// isCurrent reports whether the process runs the trial. The caller holds the process's lock.
func (t *Session) isCurrent() bool { return t.proc.trial == t && t.proc.phase == busy }

// due returns a message with the newest directive, or nil if it was sent already. The caller holds the lock.
func (t *Session) due() *outbidv1.AttachResponse {
	if !t.dirty {
		return nil
	}
	d := &outbidv1.Directive{
		Fork: t.fork, Verdict: t.order.GetVerdict(), UntilStep: t.order.GetUntilStep(), Reason: t.order.GetReason(),
		AckedSeq: t.order.GetAckedSeq(), Save: t.order.GetSave(),
	}
	t.dirty, t.order.Save = false, false
	return &outbidv1.AttachResponse{Kind: &outbidv1.AttachResponse_Directive{Directive: d}}
}

func (t *Session) update(change func(d *outbidv1.Directive)) {
	t.proc.mu.Lock()
	defer t.proc.mu.Unlock()
	if !t.isCurrent() {
		return
	}
	change(&t.order)
	t.dirty = true
	t.proc.notify()
}

// Direct orders what the trial should do from now on.
func (t *Session) Direct(verdict outbidv1.Verdict, untilStep int64, reason string) {
	t.update(func(d *outbidv1.Directive) { d.Verdict, d.UntilStep, d.Reason = verdict, untilStep, reason })
}

// Acked records the last report that the orchestrator has decided on. It is sent with the current directive.
func (t *Session) Acked(seq uint64) {
	t.update(func(d *outbidv1.Directive) { d.AckedSeq = seq })
}

// Save orders a checkpoint now; the trial continues.
func (t *Session) Save() { t.update(func(d *outbidv1.Directive) { d.Save = true }) }

// SaveDone answers a checkpoint of the process.
func (t *Session) SaveDone(step int64, failure string) {
	t.sendDone(&outbidv1.SaveDone{Fork: t.fork, Step: step, Error: failure})
}

// ShardDone answers a shard of the process.
func (t *Session) ShardDone(done *outbidv1.SaveDone) { t.sendDone(done) }

func (t *Session) sendDone(done *outbidv1.SaveDone) {
	t.proc.mu.Lock()
	defer t.proc.mu.Unlock()
	if !t.isCurrent() {
		return
	}
	t.proc.send(&outbidv1.AttachResponse{Kind: &outbidv1.AttachResponse_SaveDone{SaveDone: done}})
}

// Kill kills the process of the trial. The trial's Ended is called later.
func (t *Session) Kill() {
	t.proc.mu.Lock()
	mine := t.isCurrent()
	t.proc.mu.Unlock()
	if mine {
		t.proc.process.Kill()
	}
}
