package load

import (
	"sync"
	"time"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// fork is a stub of a trial's training under one lease. Its worker's lock protects it.
type fork struct {
	worker  *worker
	ref     *outbidv1.ForkRef
	metric  string
	version uint64
	// until is the step to reach, or 0, and step the last step.
	until, step int64
	seq         uint64
	ended       bool
	// delivered is set once its end is in the ledger.
	delivered bool
	// place is its place in the ring plus one, or 0. The ring's lock protects it.
	place int
}

func (f *fork) phase() string {
	if f.ended {
		return "ending"
	}
	return "running"
}

// assign starts or directs a fork.
func (w *worker) assign(as *outbidv1.Assignment, now time.Time) {
	lease := as.GetFork().GetLeaseId()
	f := w.forks[lease]
	if f == nil {
		body := as.GetBody()
		if body == nil {
			return
		}
		f = &fork{worker: w, ref: as.GetFork(), metric: body.GetMetric(), step: body.GetStart().GetStep()}
		w.forks[lease] = f
		w.say(f, &outbidv1.UplinkMessage{Kind: &outbidv1.UplinkMessage_Began{Began: &outbidv1.ForkBegan{FromStep: f.step}}}, now)
	}
	if as.GetVersion() <= f.version {
		return
	}
	f.version, f.until, w.news = as.GetVersion(), as.GetUntilStep(), true
	switch {
	case f.ended:
	case as.GetVerdict() != outbidv1.Verdict_VERDICT_TRAIN:
		w.end(f, outbidv1.ForkOutcome_FORK_OUTCOME_ORDERED, now)
	case f.until > 0 && f.step >= f.until:
		w.say(f, reached(f.step), now)
	default:
		w.running.add(f)
	}
}

// end ends a fork. A stub saves no checkpoint, so a paused trial starts again.
func (w *worker) end(f *fork, how outbidv1.ForkOutcome, now time.Time) {
	if f.ended {
		return
	}
	f.ended, w.news = true, true
	w.running.remove(f)
	w.say(f, &outbidv1.UplinkMessage{Kind: &outbidv1.UplinkMessage_Ended{Ended: &outbidv1.ForkEnded{Outcome: how, Step: f.step}}}, now)
}

func reached(step int64) *outbidv1.UplinkMessage {
	return &outbidv1.UplinkMessage{Kind: &outbidv1.UplinkMessage_Reached{Reached: &outbidv1.ForkReached{Step: step}}}
}

// report takes a step of a fork and reports it.
func (w *worker) report(f *fork, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if f.ended || w.nc == nil || f.until > 0 && f.step >= f.until {
		return
	}
	f.step++
	f.seq++
	w.say(f, &outbidv1.UplinkMessage{Kind: &outbidv1.UplinkMessage_Report{Report: &outbidv1.Report{
		Seq: f.seq, Step: f.step, Metrics: map[string]float64{f.metric: 1 / float64(f.step)}, TrainSeconds: float64(f.seq),
	}}}, now)
	switch {
	case f.until > 0 && f.step == f.until:
		w.running.remove(f)
		w.say(f, reached(f.step), now)
	case f.until == 0 && w.steps > 0 && f.step >= w.steps:
		w.end(f, outbidv1.ForkOutcome_FORK_OUTCOME_FINISHED, now)
	}
	w.send(now)
}

// ring has the forks that may report, in turn.
type ring struct {
	mu    sync.Mutex
	forks []*fork
	at    int
}

func (r *ring) add(f *fork) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if f.place == 0 {
		r.forks = append(r.forks, f)
		f.place = len(r.forks)
	}
}

func (r *ring) remove(f *fork) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if f.place == 0 {
		return
	}
	last := r.forks[len(r.forks)-1]
	r.forks[f.place-1], last.place = last, f.place
	r.forks[len(r.forks)-1] = nil
	r.forks, f.place = r.forks[:len(r.forks)-1], 0
}

// next returns the fork whose turn it is, or nil if the ring is empty.
func (r *ring) next() *fork {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.forks) == 0 {
		return nil
	}
	r.at = (r.at + 1) % len(r.forks)
	return r.forks[r.at]
}
