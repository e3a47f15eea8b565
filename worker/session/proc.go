package session

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"time"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
	"github.com/outbid-dev/outbid/worker/confine"
	"github.com/outbid-dev/outbid/worker/process"
)

// streamGrace is how long the stream of a process that is gone may still deliver messages.
const streamGrace = 2 * time.Second

// phase is the state of a process.
type phase int

const (
	starting phase = iota // or reserved for a trial that is about to be assigned
	idle
	busy
	detached // from its trial, which it has not finished yet
	leaving
)

// proc is one training process.
type proc struct {
	srv     *Server
	spec    Spec
	key     string
	id      string
	in      *confine.Confinement
	process *process.Process
	output  *output
	// attached is closed when the process has presented its secret, and gone when it has ended and its trial was
	// notified.
	attached chan struct{}
	gone     chan struct{}
	// streamed is closed when the stream is over.
	streamed chan struct{}
	wake     chan struct{}
	// telling is held while an event is delivered to the trial.
	telling sync.Mutex

	mu      sync.Mutex
	phase   phase
	streams bool
	trial   *Session
	out     []*outbidv1.AttachResponse
	// rested is closed when a detached process is done with its trial; nil if it is not detached.
	rested chan struct{}
	// idleStop ends the process after it was idle or detached for too long.
	idleStop *time.Timer
}

func secretID(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return string(sum[:])
}

// launch starts a process. Its output before the first trial is attributed to that trial.
func (s *Server) launch(ctx context.Context, spec Spec, key string, first *outbidv1.ForkRef) (_ *proc, err error) {
	secret := rand.Text()
	p := &proc{
		srv: s, spec: spec, key: key, id: secretID(secret), output: newOutput(s.cfg.Output, first),
		attached: make(chan struct{}), gone: make(chan struct{}), streamed: make(chan struct{}),
		wake: make(chan struct{}, 1), in: spec.In,
	}
	if s.cfg.Confine != nil && spec.In == nil {
		if p.in, err = s.cfg.Confine(ctx, spec.Limits); err != nil {
			return nil, err
		}
		defer func() {
			if err != nil {
				err = errors.Join(err, p.in.Close())
			}
		}()
	}
	if spec.Dir == "" {
		spec.Dir = p.in.Home()
	}
	env := append(spec.Env[:len(spec.Env):len(spec.Env)], EnvStream+"="+s.frames.path, EnvSession+"="+secret)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errors.New("the worker is stopping")
	}
	p.process, err = s.cfg.Host.Start(process.Command{
		Argv: spec.Argv, Env: env, Dir: spec.Dir, In: p.in, Output: p.output.line, Mask: spec.Mask,
	})
	if err != nil {
		return nil, err
	}
	s.procs[p.id] = p
	s.served.Go(p.watch)
	return p, nil
}

// awaitAttached waits until a new process has attached, and kills it if it does not.
func (p *proc) awaitAttached(ctx context.Context, timeout time.Duration) error {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	var err error
	select {
	case <-p.attached:
		return nil
	case <-p.gone:
		return p.startError("the process ended before it attached")
	case <-timer.C:
		err = &StartError{outbidv1.FailureKind_FAILURE_KIND_HANG, fmt.Sprintf("the process did not attach within %s", timeout)}
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	p.process.Kill()
	<-p.gone
	return err
}

// startError describes how a process ended before it had a trial. After a signal, another start may succeed.
func (p *proc) startError(what string) error {
	kind := outbidv1.FailureKind_FAILURE_KIND_START
	if p.process.Outcome().Signal != 0 {
		kind = outbidv1.FailureKind_FAILURE_KIND_SIGNAL
	}
	return &StartError{kind, what + ": " + p.detail()}
}

// detail describes in one line how a process ended.
func (p *proc) detail() string {
	outcome := p.process.Outcome()
	cause := p.output.cause()
	if cause == "" || outcome.Signal != 0 {
		return outcome.String()
	}
	return outcome.String() + ": " + cause
}

// reserve takes an idle process for a trial. It returns false if the process is not idle.
func (p *proc) reserve() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.phase != idle {
		return false
	}
	p.phase = starting
	p.idleStop.Stop()
	return true
}

// assign gives a trial to a reserved process. It returns nil if the process is leaving.
func (p *proc) assign(a *outbidv1.TrialAssignment, trial Trial, speed float64) *Session {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.phase != starting {
		return nil
	}
	p.phase = busy
	p.trial = &Session{proc: p, fork: a.GetFork(), trial: trial}
	p.trial.order.Verdict = outbidv1.Verdict_VERDICT_TRAIN
	p.trial.order.UntilStep = a.GetUntilStep()
	p.output.begin(a.GetFork())
	if speed > 0 && speed < 1 {
		p.process.SetSpeed(speed)
	}
	p.send(&outbidv1.AttachResponse{Kind: &outbidv1.AttachResponse_Assignment{Assignment: a}})
	return p.trial
}

// send queues a message for the stream. The caller holds the lock.
func (p *proc) send(m *outbidv1.AttachResponse) {
	p.out = append(p.out, m)
	p.notify()
}

func (p *proc) notify() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// finish removes the trial from the process. The caller holds the lock.
func (p *proc) finish() {
	p.trial = nil
	p.signalRested()
	if p.phase != busy && p.phase != detached {
		return
	}
	if p.phase == detached {
		p.idleStop.Stop()
	}
	p.phase = idle
	if p.spec.Speed > 0 && p.spec.Speed < 1 {
		p.process.SetSpeed(1)
	}
	after, reason := p.srv.cfg.IdleAfter, "it was idle"
	if p.spec.Fresh {
		after, reason = 0, "it was for one trial"
	}
	p.idleStop = time.AfterFunc(after, func() { p.leave(reason) })
}

// leave asks an idle process to exit and kills a detached one. It returns false if the process has a trial or is
// starting, and true if it is leaving already.
func (p *proc) leave(reason string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch p.phase {
	case leaving:
		return true
	case idle:
		p.phase = leaving
		p.idleStop.Stop()
		p.send(&outbidv1.AttachResponse{
			Kind: &outbidv1.AttachResponse_Shutdown{Shutdown: &outbidv1.ProcessShutdown{Reason: reason}},
		})
		p.idleStop = time.AfterFunc(leaveGrace, p.process.Kill)
		return true
	case detached: // it does not read its orders
		p.phase = leaving
		p.process.Kill()
		return true
	default:
		return false
	}
}

// watch waits until a process is gone, and notifies its trial.
func (p *proc) watch() {
	<-p.process.Done()
	p.mu.Lock()
	p.phase = leaving
	streams := p.streams
	if p.idleStop != nil {
		p.idleStop.Stop()
	}
	p.mu.Unlock()
	if streams { // messages that the process sent before it ended come first
		select {
		case <-p.streamed:
		case <-time.After(streamGrace): // a process that left the group keeps the socket open
		}
	}
	p.mu.Lock()
	var trial Trial
	if p.trial != nil {
		trial = p.trial.trial
	}
	p.trial = nil
	p.signalRested()
	p.mu.Unlock()
	if trial != nil {
		trial.Ended(p.failure())
	}
	p.srv.mu.Lock()
	delete(p.srv.procs, p.id)
	p.srv.mu.Unlock()
	if p.spec.In != nil { // the caller closes it
		close(p.gone)
		return
	}
	if err := p.in.Close(); err != nil {
		p.srv.cfg.Logger.Warn("cannot remove the confinement of a training process", "error", err)
	}
	close(p.gone)
}

// failure describes how a process failed its trial.
func (p *proc) failure() *outbidv1.ForkEnded {
	outcome := p.process.Outcome()
	ended := &outbidv1.ForkEnded{
		Outcome: outbidv1.ForkOutcome_FORK_OUTCOME_FAILED,
		Failure: outbidv1.FailureKind_FAILURE_KIND_ERROR,
		Detail:  p.detail(),
	}
	switch {
	case outcome.Signal != 0:
		ended.Failure = outbidv1.FailureKind_FAILURE_KIND_SIGNAL
	case outcome.Code == 0:
		ended.Detail = "the process exited in the middle of the trial, with exit code 0"
	}
	return ended
}
