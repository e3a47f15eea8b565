package program

import (
	"errors"
	"os"
	"strconv"
	"time"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
	"github.com/outbid-dev/outbid/worker/health"
	"github.com/outbid-dev/outbid/worker/process"
)

// run starts the program again each time the trial continues.
func (r *Run) run(a *attempt) {
	defer r.cancel(nil)
	for {
		ended := r.attend(a)
		if ended == nil {
			var err error
			if a, err = r.launch(); err == nil {
				continue
			}
			kind := outbidv1.FailureKind_FAILURE_KIND_START
			if health.OfNode(err) {
				kind = outbidv1.FailureKind_FAILURE_KIND_NODE
			}
			ended = failed(kind, err.Error())
		}
		ended.Step = r.step
		r.trial.Ended(ended)
		return
	}
}

func failed(kind outbidv1.FailureKind, detail string) *outbidv1.ForkEnded {
	return &outbidv1.ForkEnded{
		Outcome: outbidv1.ForkOutcome_FORK_OUTCOME_FAILED, Failure: kind, Detail: detail,
	}
}

func ended(outcome outbidv1.ForkOutcome) *outbidv1.ForkEnded {
	return &outbidv1.ForkEnded{Outcome: outcome}
}

// attend follows one start of the program to its end and decides what comes next: nil to start it again.
func (r *Run) attend(a *attempt) *outbidv1.ForkEnded {
	tick := time.NewTicker(r.spec.Poll)
	defer tick.Stop()
	for running := true; running; {
		select {
		case now := <-tick.C:
			r.packer.check(now)
		case err := <-r.packer.finished():
			r.packer.finish(err)
		case <-a.process.Done():
			running = false
		}
		if err := r.readReports(a, !running); err != nil {
			a.process.Kill()
			<-a.process.Done()
			r.packer.wait()
			return failed(outbidv1.FailureKind_FAILURE_KIND_ERROR, errors.Join(err, a.reports.close()).Error())
		}
		r.overrun(a)
	}
	r.packer.wait() // checkpoints that the program named before it ended
	r.mu.Lock()
	r.current = nil
	verdict, killed := r.verdict, r.killed
	r.mu.Unlock()
	r.trained += time.Since(r.began)
	if err := a.reports.close(); err != nil {
		r.spec.Logger.Warn("cannot close the report file", "error", err)
	}
	outcome := a.process.Outcome()
	ordered := verdict != outbidv1.Verdict_VERDICT_TRAIN
	if killed || !outcome.OK() && !a.overran && !ordered {
		return r.failure(outcome)
	}
	if r.spec.follows() && !ordered && a.until > 0 {
		return r.follow()
	}
	if outcome.Signal == 0 && verdict != outbidv1.Verdict_VERDICT_STOP {
		r.saveFinal(a.out)
		r.packer.wait()
	}
	if ordered {
		return ended(outbidv1.ForkOutcome_FORK_OUTCOME_ORDERED)
	}
	if a.until > 0 && r.step >= a.until {
		return r.reached()
	}
	return ended(outbidv1.ForkOutcome_FORK_OUTCOME_FINISHED)
}

// readReports handles the program's new reports. While they wait to be sent, the program is held if it has reported much
// more.
func (r *Run) readReports(a *attempt, last bool) error {
	defer a.reports.throttle.watch()()
	if last {
		a.reports.throttle.release()
	}
	err := a.reports.read(r.ctx, last)
	if err == nil {
		r.flush()
		r.read, r.readAll = a.reports.throttle.position(), last
		r.offerCopies(last)
	}
	return err
}

// overrun asks a program to stop that continues beyond its target.
func (r *Run) overrun(a *attempt) {
	r.mu.Lock()
	until := r.until // the newest target: if it has moved, the program may continue
	r.mu.Unlock()
	if a.overran || until <= 0 || r.step <= until {
		return
	}
	a.overran, a.until = true, until
	a.process.Stop(r.spec.Grace)
}

// reached reports that the target is reached and waits for the answer: nil to continue training.
func (r *Run) reached() *outbidv1.ForkEnded {
	told := false
	for {
		r.mu.Lock()
		verdict, until, killed := r.verdict, r.until, r.killed
		r.mu.Unlock()
		switch {
		case killed:
			return failed(outbidv1.FailureKind_FAILURE_KIND_SIGNAL, "killed")
		case verdict != outbidv1.Verdict_VERDICT_TRAIN:
			return ended(outbidv1.ForkOutcome_FORK_OUTCOME_ORDERED)
		case until == 0 || until > r.step:
			return nil
		}
		if !told {
			told = true
			r.trial.Reached(r.step)
		}
		<-r.wake
	}
}

func (r *Run) failure(outcome process.Outcome) *outbidv1.ForkEnded {
	r.tailMu.Lock()
	cause := r.tail.Cause()
	r.tailMu.Unlock()
	if outcome.Signal != 0 {
		return failed(outbidv1.FailureKind_FAILURE_KIND_SIGNAL, outcome.String())
	}
	detail := outcome.String()
	if cause != "" {
		detail += ": " + cause
	}
	return failed(outbidv1.FailureKind_FAILURE_KIND_ERROR, detail)
}

// saveFinal offers the checkpoint in OUTBID_CHECKPOINT_OUT, if there is one.
func (r *Run) saveFinal(path string) {
	if r.savedPath == path && r.inStep == r.step {
		return // the last report named it
	}
	there := r.spec.In.As(func() error { _, err := os.Stat(path); return err })
	if errors.Is(there, os.ErrNotExist) {
		return
	}
	r.save(named{path: path, step: r.step, metric: r.metric})
}

// packed handles the end of a checkpoint's copy. It keeps a link to the copy as the next start checkpoint.
func (r *Run) packed(c *pack, err error) {
	if err == nil {
		err = errors.Join(os.Link(c.to, c.to+".in"), os.Rename(c.to, c.to+".ckpt")) // neither is ever written again
	}
	if err != nil {
		if r.ctx.Err() == nil {
			r.note("the checkpoint of step " + strconv.FormatInt(c.step, 10) + " was not saved: " + err.Error())
		}
		return
	}
	r.unlabelled = append(r.unlabelled, c)
	r.offerCopies(r.readAll)
}
