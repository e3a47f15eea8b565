package cli

import (
	"slices"
	"time"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// progress is a follower's view of a sweep. It is built from updates and does not read a clock.
type progress struct {
	sweep  *outbidv1.Sweep
	trials map[int32]*outbidv1.Trial
	// samples of the steps done, for the rate; the newest is last.
	samples []sample
	// lost is when the server stopped answering, or zero while it answers.
	lost time.Time
}

// sample is the number of steps done at a time.
type sample struct {
	at    time.Time
	steps int64
}

// rateWindow is the period of the rate: long enough to be stable, short enough to follow changes.
const rateWindow = 15 * time.Second

func newProgress() *progress { return &progress{trials: map[int32]*outbidv1.Trial{}} }

// update applies a message of WatchSweep.
func (p *progress) update(u *outbidv1.WatchSweepResponse, now time.Time) {
	p.lost = time.Time{}
	if u.GetSweep() != nil {
		p.sweep = u.GetSweep()
	}
	for _, t := range u.GetTrials() {
		// Keep only running trials; a sweep may have a hundred thousand others.
		if t.GetState() == outbidv1.TrialState_TRIAL_STATE_RUNNING || t.GetRound() != nil {
			p.trials[t.GetNumber()] = t
		} else {
			delete(p.trials, t.GetNumber())
		}
	}
	p.samples = append(p.samples, sample{now, p.sweep.GetSteps()})
	for len(p.samples) > 2 && now.Sub(p.samples[1].at) >= rateWindow {
		p.samples = p.samples[1:]
	}
}

// rate returns steps per second over the window, or 0 if unknown.
func (p *progress) rate() float64 {
	if len(p.samples) < 2 {
		return 0
	}
	first, last := p.samples[0], p.samples[len(p.samples)-1]
	seconds := last.at.Sub(first.at).Seconds()
	if seconds < 0.5 {
		return 0
	}
	return max(0, float64(last.steps-first.steps)/seconds)
}

// running returns the running trials, and those whose forks are being averaged, by number.
func (p *progress) running() []*outbidv1.Trial {
	list := make([]*outbidv1.Trial, 0, len(p.trials))
	for _, t := range p.trials {
		list = append(list, t)
	}
	slices.SortFunc(list, func(a, b *outbidv1.Trial) int { return int(a.GetNumber() - b.GetNumber()) })
	return list
}

// over reports whether the sweep has ended.
func (p *progress) over() bool { return sweepOver(p.sweep.GetState()) }

// sweepOver reports whether a sweep in that state has ended.
func sweepOver(s outbidv1.SweepState) bool {
	switch s {
	case outbidv1.SweepState_SWEEP_STATE_DONE, outbidv1.SweepState_SWEEP_STATE_STOPPED,
		outbidv1.SweepState_SWEEP_STATE_FAILED:
		return true
	default:
		return false
	}
}

// endCode returns the exit code for a sweep's end.
func endCode(s outbidv1.SweepState) int {
	switch s {
	case outbidv1.SweepState_SWEEP_STATE_DONE:
		return exitOK
	case outbidv1.SweepState_SWEEP_STATE_STOPPED:
		return exitStopped
	default:
		return exitFailed
	}
}

// finished counts the trials that have ended.
func finished(c *outbidv1.TrialCounts) int32 {
	return c.GetCompleted() + c.GetStopped() + c.GetFailed() + c.GetCancelled()
}

// noteLog remembers which notes were shown, so that each is shown once.
type noteLog struct {
	last *outbidv1.SweepNote
}

// fresh returns the notes that are new since the last call.
func (n *noteLog) fresh(notes []*outbidv1.SweepNote) []*outbidv1.SweepNote {
	from := 0
	for i, note := range notes {
		if n.last != nil && note.GetText() == n.last.GetText() && note.GetTime().AsTime().Equal(n.last.GetTime().AsTime()) {
			from = i + 1
		}
	}
	if len(notes) > 0 {
		n.last = notes[len(notes)-1]
	}
	return notes[from:]
}
