package asha

import (
	"fmt"
	"math"

	"github.com/dustin/go-humanize/english"

	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/engine"
	"github.com/outbid-dev/outbid/orchestrator/tuner/ladder"
	"github.com/outbid-dev/outbid/orchestrator/tuner/rank"
)

// promoting is algorithm 2 of the paper. A trial that reaches a rung is paused. When a device is free,
// get_job searches from the top rung down for a trial to promote, and otherwise adds a trial to the bottom rung.
//
// In algorithm 2 a trial is promotable while it is among the best floor(|rung|/eta) of its rung and was not promoted.
// Taken literally, a rung can promote all its trials, if each is better than those before it. Here a rung promotes at
// most floor(|rung|/eta) trials in total. The best waiting trial takes the next place, and it is always among the best
// floor(|rung|/eta). The rungs therefore hold floor(n/eta^k) trials in the end, as in the synchronous algorithm. A good
// trial that arrives after worse ones were promoted waits for the next place.
//
// A trial that is promoted when it reaches a rung continues on its device, without a pause and a resume. With a trial
// limit, a trial ends early if more trials are ahead of it than there can ever be places. NaN is worst and never
// promoted; a trial that exits counts as worst.
type promoting struct{ *asha }

func (a *promoting) Ask(n int) error {
	for ; n > 0; n-- {
		t := a.promotable()
		if t < 0 {
			break
		}
		a.promote(t)
	}
	for ; n > 0 && a.CanCreate(); n-- {
		if ok, err := a.add(); err != nil || !ok {
			return err
		}
	}
	return nil
}

// promotable returns the trial to promote next, from the highest rung that has one, or -1.
func (a *promoting) promotable() tuner.Trial {
	found, level := tuner.Trial(-1), int64(-1)
	for i := range a.Brackets {
		b := &a.Brackets[i]
		for k := b.top() - 1; k >= 0 && b.Rungs[k].Level > level; k-- {
			r := &b.Rungs[k]
			if a.places(r, r.Size) > r.Promoted && r.held > 0 {
				r.best.DropTop(a.waitsIn(i, k))
				found, level = r.best.Top().Trial, r.Level
			}
		}
	}
	return found
}

func (a *promoting) waitsIn(bracket, rung int) func(rank.Entry) bool {
	return func(e rank.Entry) bool {
		r := &a.Trials[e.Trial]
		return (r.Phase == engine.Paused || r.Phase == engine.Completed) && int(r.Rung) == rung && int(r.Bracket) == bracket
	}
}

// promote sends a trial, the best waiting one of its rung, to the next rung.
func (a *promoting) promote(t tuner.Trial) {
	rec, r := &a.Trials[t], a.rung(t)
	r.Promoted++
	r.held--
	reason := fmt.Sprintf("%s: best %d of %d by %s (%.6g), this one takes the %s place", a.whereIs(t),
		a.places(r, r.Size), r.Size, a.MetricName(), rec.Metric, rank.Ordinal(r.Promoted))
	rec.Rung++
	a.rung(t).expecting++
	a.Train(t, a.rung(t).Level, reason)
}

func (a *promoting) Reported(tuner.Reported) {}

func (a *promoting) Reached(e tuner.Reached) error {
	rec, r := &a.Trials[e.Trial], a.rung(e.Trial)
	if e.Step < r.Level {
		return engine.TooEarly(e, r.Level)
	}
	rec.Metric = e.Metric
	r.expecting--
	r.Size++
	switch {
	case int(rec.Rung) == a.Brackets[rec.Bracket].top():
		a.End(e.Trial, true, fmt.Sprintf("trained for all its %s", english.Plural(int(e.Step), "step", "")))
	case math.IsNaN(e.Metric):
		a.End(e.Trial, false, fmt.Sprintf("%s: %s is NaN or was not reported", a.whereIs(e.Trial), a.MetricName()))
	default:
		a.wait(e.Trial)
	}
	a.finish()
	return nil
}

// wait pauses a trial in the rung that it reached, or promotes it if it takes the next place.
func (a *promoting) wait(t tuner.Trial) {
	rec, r := &a.Trials[t], a.rung(t)
	rec.Phase = engine.Paused
	a.addToRankings(t)
	waits := a.waitsIn(int(rec.Bracket), int(rec.Rung))
	if r.best.DropTop(waits); a.places(r, r.Size) > r.Promoted && r.best.Top().Trial == t {
		a.promote(t)
		return
	}
	dropped := a.hopeless(int(rec.Bracket), int(rec.Rung))
	if dropped != t {
		a.Pause(t, fmt.Sprintf("%s: of the %s here %d may go on so far, and %d did", a.whereIs(t), english.Plural(r.Size, "trial", ""),
			a.places(r, r.Size), r.Promoted))
	}
	if dropped >= 0 && a.Trials[dropped].Phase == engine.Paused {
		a.End(dropped, false, fmt.Sprintf("%s: more trials are better by %s (%.6g) than places can come", a.whereIs(dropped),
			a.MetricName(), a.Trials[dropped].Metric))
	}
}

func (a *promoting) addToRankings(t tuner.Trial) {
	r := a.rung(t)
	r.best.Push(a.Entry(t))
	r.worst.Push(a.Entry(t))
	r.held++
}

// hopeless removes the worst trial of a rung in which more trials wait than can ever be promoted, or returns -1.
func (a *promoting) hopeless(bracket, rung int) tuner.Trial {
	if a.quotas == nil {
		return -1
	}
	b := &a.Brackets[bracket]
	size := a.quotas[bracket]
	for k := range rung {
		size = a.places(&b.Rungs[k], size)
	}
	r := &b.Rungs[rung]
	if r.held <= a.places(r, size)-r.Promoted {
		return -1
	}
	r.worst.DropTop(a.waitsIn(bracket, rung))
	r.held--
	return a.GiveUp(r.worst.Pop().Trial)
}

func (a *promoting) HandleExit(e tuner.Exited, before engine.Phase) {
	r := a.rung(e.Trial)
	if before == engine.Paused {
		r.held--
	} else {
		r.expecting--
		r.Size++
	}
	a.finish()
}

// isOver reports whether no trial can be promoted any more.
func (a *promoting) isOver() bool {
	if a.CanCreate() {
		return false
	}
	for i := range a.Brackets {
		b := &a.Brackets[i]
		for k := range b.top() {
			if r := &b.Rungs[k]; r.expecting > 0 || r.held > 0 && a.places(r, r.Size) > r.Promoted {
				return false
			}
		}
	}
	return true
}

// finish ends the waiting trials once no further place can become free. Only trials that waited for the places of
// trials that exited or reported NaN are left then.
func (a *promoting) finish() {
	if !a.isOver() {
		return
	}
	for i := range a.Brackets {
		b := &a.Brackets[i]
		for k := range b.top() {
			r := &b.Rungs[k]
			for r.best.DropTop(a.waitsIn(i, k)) {
				if t := a.GiveUp(r.best.Pop().Trial); a.Trials[t].Phase == engine.Paused {
					a.End(t, false, fmt.Sprintf("%s: the sweep is done, and %d of the %s here went on", a.where(i, k), r.Promoted,
						english.Plural(r.Size, "trial", "")))
				}
			}
			r.held = 0
		}
	}
}

func (a *promoting) Extend(old tuner.Settings) error {
	a.quotas = a.allot()
	if high := a.Steps; high > tuner.MaxSteps(old.Spec.GetTuner()) {
		a.raise(high)
		a.derive()
	}
	a.finish()
	return nil
}

func (a *promoting) Status() tuner.Status {
	s := tuner.Status{Waiting: !a.CanCreate() && a.promotable() < 0}
	s.Exhausted = s.Waiting && a.isOver()
	return s
}

// Outlook is exact if no trial exits and none reports NaN.
func (a *promoting) Outlook() tuner.Outlook {
	var o tuner.Outlook
	for i := range a.Brackets {
		b := &a.Brackets[i]
		sizes, levels := make([]int, len(b.Rungs)), make([]int64, len(b.Rungs))
		n := 0
		if a.quotas != nil {
			n = a.quotas[i]
		}
		o.Trials += n
		for k := range b.Rungs {
			sizes[k], levels[k] = n, b.Rungs[k].Level
			n = a.places(&b.Rungs[k], n)
		}
		ladder.AddOutlook(&o, i, levels, sizes)
	}
	return o
}

func (a *promoting) Load(decode func(any) error) error {
	if err := a.asha.Load(decode); err != nil {
		return err
	}
	a.derive()
	return nil
}

// derive rebuilds the state that follows from the trials.
func (a *promoting) derive() {
	for i := range a.Brackets {
		for k := range a.Brackets[i].Rungs {
			r := &a.Brackets[i].Rungs[k]
			r.best, r.worst, r.held, r.expecting = rank.BestFirst(), rank.WorstFirst(), 0, 0
		}
	}
	for t, rec := range a.Trials {
		switch {
		case rec.Phase == engine.Running:
			a.rung(tuner.Trial(t)).expecting++
		case rec.Phase == engine.Paused, rec.MayContinue(a.Brackets[rec.Bracket].top()):
			a.addToRankings(tuner.Trial(t))
		}
	}
}
