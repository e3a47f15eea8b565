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
	return (&attempt{fork: f, training: t, told: f.orders.startedWith()}).follow()
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

// attempt is a fork while its training code runs.
type attempt struct {
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
func (a *attempt) follow() *outbidv1.ForkEnded {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	gone := a.ctx.Done()
	for {
		a.obey()
		for _, e := range a.events.takeEvents() {
			a.handle(e)
		}
		a.endRejected()
		a.announce()
		a.checkSilence()
		if a.end != nil && (a.upload.idle() || !a.savesMatter()) {
			return a.end
		}
		timer.Reset(a.next())
		select {
		case <-a.wake:
		case <-timer.C:
		case <-gone:
			gone = nil
			a.upload.stop()
			a.kill()
		}
	}
}

// obey passes the newest order to the training code.
func (a *attempt) obey() {
	o := a.orders.ordered()
	if o.same(a.told) || a.end != nil {
		return
	}
	ending := o.verdict != outbidv1.Verdict_VERDICT_TRAIN
	if ending && a.told.verdict != o.verdict {
		grace := stopGrace
		if o.verdict == outbidv1.Verdict_VERDICT_PAUSE {
			grace = a.orders.pauseGrace(a.cfg.DrainTimeout)
			a.messages.pace.grantPause()
		} else {
			a.upload.stop()
			a.messages.pace.release()
		}
		a.deadline, a.grace = time.Now().Add(grace), grace
		a.setPhase("ending")
	}
	a.told = o
	if a.detachLate() {
		a.detached = true
		a.end = &outbidv1.ForkEnded{Outcome: outbidv1.ForkOutcome_FORK_OUTCOME_ORDERED, Detail: "it had not begun its first step"}
		return
	}
	if a.waits && !ending && (o.until == 0 || o.until > a.reached) {
		a.waits = false
		a.activity.touch()
	}
	a.training.Direct(o.verdict, o.until, o.reason)
}

// detachLate reports whether the fork is one of several forks of a trial and has to pause before its first step. Then it
// has nothing to save, and the other forks need not wait for it. Its process is detached, so that the fork of the
// next fork slot can use what it has imported by then.
func (a *attempt) detachLate() bool {
	code, ok := a.training.(detachable)
	if !ok || a.told.verdict != outbidv1.Verdict_VERDICT_PAUSE || a.body.GetPart() == nil {
		return false
	}
	return a.activity.beforeTraining(func() bool { return code.Detach(a.files.clear) })
}

func (a *attempt) handle(event any) {
	switch e := event.(type) {
	case savedEvent:
		a.upload.offer(e.saved)
	case reachedEvent:
		a.reached, a.waits, a.announced = e.step, true, false
		a.activity.reach(e.step)
	case endedEvent:
		a.end = e.ended
	}
}

// announce reports that the target was reached, once its checkpoint is in the store.
func (a *attempt) announce() {
	o := a.orders.ordered()
	if !a.waits || a.announced || !a.upload.idle() || a.end != nil {
		return
	}
	if o.verdict == outbidv1.Verdict_VERDICT_TRAIN && (o.until == 0 || o.until > a.reached) {
		a.waits = false // its next target is on the way to the training code
		return
	}
	a.announced = true
	a.messages.queueMessage(&outbidv1.UplinkMessage{Kind: &outbidv1.UplinkMessage_Reached{Reached: &outbidv1.ForkReached{Step: a.reached}}})
}

// savesMatter reports whether the fork has to wait for checkpoints that are not stored yet.
func (a *attempt) savesMatter() bool {
	return a.ctx.Err() == nil && a.orders.ordered().verdict != outbidv1.Verdict_VERDICT_STOP
}

// isExcused reports whether the process has a reason to be silent. Only rank 0 of a gang says anything.
func (a *attempt) isExcused() bool {
	return a.body.GetGang().GetFirstRank() > 0 || a.waits || a.activity.isExcused() || !a.upload.idle()
}

// checkSilence ends a process that hangs or does not obey.
func (a *attempt) checkSilence() {
	if a.end != nil || a.killed {
		return
	}
	if !a.deadline.IsZero() && !time.Now().Before(a.deadline) && a.upload.idle() {
		if a.told.verdict == outbidv1.Verdict_VERDICT_PAUSE {
			a.messages.note("warning", fmt.Sprintf("did not save and end within %s of being told to pause; it will continue from its last "+
				"checkpoint", a.grace))
		}
		a.end = &outbidv1.ForkEnded{
			Outcome: outbidv1.ForkOutcome_FORK_OUTCOME_ORDERED, Detail: "killed: it did not end when it was ordered to",
		}
		a.killAndWait()
		return
	}
	hang := a.body.GetHangTimeout().AsDuration()
	if hang > 0 && !a.isExcused() && a.activity.silent() >= hang {
		a.end = fail(outbidv1.FailureKind_FAILURE_KIND_HANG, "sent nothing for %s", hang).ended()
		a.killAndWait()
	}
}

// endRejected ends a fork that the worker has rejected as failed, whether or not its process still runs.
func (a *attempt) endRejected() {
	why := a.rejection()
	if why == nil || a.failed {
		return
	}
	a.failed = true
	if a.end != nil { // the process ended by itself first
		a.end = why.ended()
		return
	}
	a.end = why.ended()
	a.killAndWait()
}

// kill ends the process. Its exit arrives as an event.
func (a *attempt) kill() {
	if !a.killed && a.end == nil {
		a.killed = true
		a.messages.pace.release()
		a.training.Kill()
	}
}

// killAndWait ends the process and preserves a.end. It still handles the process's last events.
func (a *attempt) killAndWait() {
	verdict := a.end
	a.killed = true
	a.messages.pace.release()
	a.training.Kill()
	for {
		for _, e := range a.events.takeEvents() {
			if _, ended := e.(endedEvent); ended {
				a.end = verdict
				return
			}
			a.handle(e)
		}
		<-a.wake
	}
}

// next returns how long to wait at most.
func (a *attempt) next() time.Duration {
	next := time.Hour
	if a.end != nil || a.killed {
		return next
	}
	if !a.deadline.IsZero() {
		if !a.upload.idle() {
			return next // the end of the upload wakes the loop
		}
		next = min(next, max(time.Until(a.deadline), time.Millisecond))
	}
	if hang := a.body.GetHangTimeout().AsDuration(); hang > 0 {
		if a.isExcused() {
			return min(next, hang)
		}
		next = min(next, max(hang-a.activity.silent(), time.Millisecond))
	}
	return next
}
