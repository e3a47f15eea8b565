package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// live starts the training code and follows it to its end.
func (f *fork) live() *outbidv1.ForkEnded {
	began := time.Now()
	t, err := f.prepare()
	f.telemetry.trace("start", began, f.body.GetStart().GetStep(), err)
	if err != nil {
		return f.notStarted(err)
	}
	f.activity.touch()
	f.link.attach(t)
	f.setPhase("running")
	f.messages.sendBegan()
	return (&life{fork: f, training: t, told: f.orders.startedWith()}).follow()
}

// prepare starts the training code, unless the fork has to end before it runs.
func (f *fork) prepare() (training, error) {
	if f.ctx.Err() != nil || f.orders.ordered().verdict != outbidv1.Verdict_VERDICT_TRAIN {
		return nil, errUnwanted
	}
	ctx, cancel := context.WithCancelCause(f.ctx)
	defer cancel(nil)
	type result struct {
		t   training
		err error
	}
	started := make(chan result, 1)
	go func() {
		t, err := f.start(ctx, f)
		started <- result{t, err}
	}()
	for {
		if f.orders.ordered().verdict != outbidv1.Verdict_VERDICT_TRAIN {
			cancel(errUnwanted)
		}
		select {
		case r := <-started:
			if r.err == nil {
				poke(f.wake) // an order may have come meanwhile
			}
			return r.t, r.err
		case <-f.wake:
		}
	}
}

func (f *fork) notStarted(err error) *outbidv1.ForkEnded {
	if f.orders.ordered().verdict != outbidv1.Verdict_VERDICT_TRAIN || f.ctx.Err() != nil {
		return &outbidv1.ForkEnded{Outcome: outbidv1.ForkOutcome_FORK_OUTCOME_ORDERED}
	}
	if failure := (*failure)(nil); errors.As(err, &failure) {
		return failure.ended()
	}
	return fail(kindOf(err), "%s (node %s)", oneLine(err), f.cfg.Node).ended()
}

// life is a fork while its training code runs.
type life struct {
	*fork
	training training
	// told is the order that the training code has.
	told order
	// If waits is set, the training code waits at step reached for an order. announced is set once the orchestrator
	// was notified.
	reached   int64
	waits     bool
	announced bool
	end       *outbidv1.ForkEnded
	// deadline is when the code must have ended; zero without an order to end. grace is how long it had.
	deadline time.Time
	grace    time.Duration
	killed   bool
	// failed is set once end holds the failure that the worker rejected the fork with.
	failed bool
}

// follow returns when the training code has ended and its checkpoints are in the store.
func (l *life) follow() *outbidv1.ForkEnded {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	gone := l.ctx.Done()
	for {
		l.obey()
		for _, e := range l.events.takeEvents() {
			l.handle(e)
		}
		l.endRejected()
		l.announce()
		l.checkSilence()
		if l.end != nil && (l.upload.idle() || !l.savesMatter()) {
			return l.end
		}
		timer.Reset(l.next())
		select {
		case <-l.wake:
		case <-timer.C:
		case <-gone:
			gone = nil
			l.upload.stop()
			l.kill()
		}
	}
}

// obey passes the newest order to the training code.
func (l *life) obey() {
	o := l.orders.ordered()
	if o.same(l.told) || l.end != nil {
		return
	}
	ending := o.verdict != outbidv1.Verdict_VERDICT_TRAIN
	if ending && l.told.verdict != o.verdict {
		grace := stopGrace
		if o.verdict == outbidv1.Verdict_VERDICT_PAUSE {
			grace = l.orders.pauseGrace(l.cfg.DrainTimeout)
			l.messages.pace.grantPause()
		} else {
			l.upload.stop()
			l.messages.pace.release()
		}
		l.deadline, l.grace = time.Now().Add(grace), grace
		l.setPhase("ending")
	}
	l.told = o
	if l.detachLate() {
		l.detached = true
		l.end = &outbidv1.ForkEnded{Outcome: outbidv1.ForkOutcome_FORK_OUTCOME_ORDERED, Detail: "it had not begun its first step"}
		return
	}
	if l.waits && !ending && (o.until == 0 || o.until > l.reached) {
		l.waits = false
		l.activity.touch()
	}
	l.training.Direct(o.verdict, o.until, o.reason)
}

// detachLate reports whether the fork is one of several forks of a trial and has to pause before its first step. Then it
// has nothing to save, and the other forks need not wait for it. Its process is detached, so that the fork of the
// next fork slot can use what it has imported by then.
func (l *life) detachLate() bool {
	code, ok := l.training.(detachable)
	if !ok || l.told.verdict != outbidv1.Verdict_VERDICT_PAUSE || l.body.GetPart() == nil {
		return false
	}
	return l.activity.beforeTraining(func() bool { return code.Detach(l.files.clear) })
}

func (l *life) handle(event any) {
	switch e := event.(type) {
	case savedEvent:
		l.upload.offer(e.saved)
	case reachedEvent:
		l.reached, l.waits, l.announced = e.step, true, false
		l.activity.reach(e.step)
	case endedEvent:
		l.end = e.ended
	}
}

// announce reports that the target was reached, once its checkpoint is in the store.
func (l *life) announce() {
	o := l.orders.ordered()
	if !l.waits || l.announced || !l.upload.idle() || l.end != nil {
		return
	}
	if o.verdict == outbidv1.Verdict_VERDICT_TRAIN && (o.until == 0 || o.until > l.reached) {
		l.waits = false // its next target is on the way to the training code
		return
	}
	l.announced = true
	l.messages.queueMessage(&outbidv1.UplinkMessage{Kind: &outbidv1.UplinkMessage_Reached{Reached: &outbidv1.ForkReached{Step: l.reached}}})
}

// savesMatter reports whether the fork has to wait for checkpoints that are not stored yet.
func (l *life) savesMatter() bool {
	return l.ctx.Err() == nil && l.orders.ordered().verdict != outbidv1.Verdict_VERDICT_STOP
}

// isExcused reports whether the process has a reason to be silent. Only rank 0 of a gang says anything.
func (l *life) isExcused() bool {
	return l.body.GetGang().GetFirstRank() > 0 || l.waits || l.activity.isExcused() || !l.upload.idle()
}

// checkSilence ends a process that hangs or does not obey.
func (l *life) checkSilence() {
	if l.end != nil || l.killed {
		return
	}
	if !l.deadline.IsZero() && !time.Now().Before(l.deadline) && l.upload.idle() {
		if l.told.verdict == outbidv1.Verdict_VERDICT_PAUSE {
			l.messages.note("warning", fmt.Sprintf("did not save and end within %s of being told to pause; it will continue from its last "+
				"checkpoint", l.grace))
		}
		l.end = &outbidv1.ForkEnded{
			Outcome: outbidv1.ForkOutcome_FORK_OUTCOME_ORDERED, Detail: "killed: it did not end when it was ordered to",
		}
		l.killAndWait()
		return
	}
	hang := l.body.GetHangTimeout().AsDuration()
	if hang > 0 && !l.isExcused() && l.activity.silent() >= hang {
		l.end = fail(outbidv1.FailureKind_FAILURE_KIND_HANG, "sent nothing for %s", hang).ended()
		l.killAndWait()
	}
}

// endRejected ends a fork that the worker has rejected as failed, whether or not its process still runs.
func (l *life) endRejected() {
	why := l.rejection()
	if why == nil || l.failed {
		return
	}
	l.failed = true
	if l.end != nil { // the process ended by itself first
		l.end = why.ended()
		return
	}
	l.end = why.ended()
	l.killAndWait()
}

// kill ends the process. Its exit arrives as an event.
func (l *life) kill() {
	if !l.killed && l.end == nil {
		l.killed = true
		l.messages.pace.release()
		l.training.Kill()
	}
}

// killAndWait ends the process and preserves l.end. It still handles the process's last events.
func (l *life) killAndWait() {
	verdict := l.end
	l.killed = true
	l.messages.pace.release()
	l.training.Kill()
	for {
		for _, e := range l.events.takeEvents() {
			if _, ended := e.(endedEvent); ended {
				l.end = verdict
				return
			}
			l.handle(e)
		}
		<-l.wake
	}
}

// next returns how long to wait at most.
func (l *life) next() time.Duration {
	next := time.Hour
	if l.end != nil || l.killed {
		return next
	}
	if !l.deadline.IsZero() {
		if !l.upload.idle() {
			return next // the end of the upload wakes the loop
		}
		next = min(next, max(time.Until(l.deadline), time.Millisecond))
	}
	if hang := l.body.GetHangTimeout().AsDuration(); hang > 0 {
		if l.isExcused() {
			return min(next, hang)
		}
		next = min(next, max(hang-l.activity.silent(), time.Millisecond))
	}
	return next
}
