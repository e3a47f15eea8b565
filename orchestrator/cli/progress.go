package cli

import (
	"slices"
	"time"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// progress is what a follower knows of a sweep. It is built from updates and holds no clock of its own.
type progress struct {
	sweep  *outbidv1.Sweep
	trials map[int32]*outbidv1.Trial
	// samples of the steps done, for the rate; the newest last.
	samples []sample
	// lost says since when the server does not answer; zero while it does.
	lost time.Time
}

// sample is how many steps were done at a time.
type sample struct {
	at    time.Time
	steps int64
}

// rateWindow is how far back the rate looks: long enough to be calm, short enough to follow a change.
const rateWindow = 15 * time.Second

func newProgress() *progress { return &progress{trials: map[int32]*outbidv1.Trial{}} }

// update takes in what WatchSweep sent.
func (p *progress) update(u *outbidv1.WatchSweepResponse, now time.Time) {
	p.lost = time.Time{}
	if u.GetSweep() != nil {
		p.sweep = u.GetSweep()
	}
	for _, t := range u.GetTrials() {
		// Only those that run are shown; a sweep may have a hundred thousand others.
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

// rate is steps per second over the window; 0 if unknown.
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

// running lists the trials that run, and those whose forks are being consolidated, by number.
func (p *progress) running() []*outbidv1.Trial {
	list := make([]*outbidv1.Trial, 0, len(p.trials))
	for _, t := range p.trials {
		list = append(list, t)
	}
	slices.SortFunc(list, func(a, b *outbidv1.Trial) int { return int(a.GetNumber() - b.GetNumber()) })
	return list
}

// over says whether the sweep has ended.
func (p *progress) over() bool { return sweepOver(p.sweep.GetState()) }

// sweepOver says whether a sweep in that state has ended.
func sweepOver(s outbidv1.SweepState) bool {
	switch s {
	case outbidv1.SweepState_SWEEP_STATE_DONE, outbidv1.SweepState_SWEEP_STATE_STOPPED,
		outbidv1.SweepState_SWEEP_STATE_FAILED:
		return true
	default:
		return false
	}
}

// endCode is the exit code for a sweep's end.
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

// fresh returns the notes that came since the last call.
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
