package tuner

import (
	"fmt"
	"math"

	"github.com/dustin/go-humanize/english"
)

// ashaPromote is algorithm 2 of the paper (see asha). A trial that reaches a rung is paused. When a device is free,
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
type ashaPromote struct{ *asha }

func (a *ashaPromote) ask(n int) error {
	for ; n > 0; n-- {
		t := a.promotable()
		if t < 0 {
			break
		}
		a.promote(t)
	}
	for ; n > 0 && a.canCreate(); n-- {
		if ok, err := a.add(); err != nil || !ok {
			return err
		}
	}
	return nil
}

// promotable returns the trial to promote next, from the highest rung that has one, or -1.
func (a *ashaPromote) promotable() Trial {
	found, level := Trial(-1), int64(-1)
	for i := range a.Brackets {
		b := &a.Brackets[i]
		for k := b.top() - 1; k >= 0 && b.Rungs[k].Level > level; k-- {
			r := &b.Rungs[k]
			if a.places(r, r.Size) > r.Promoted && r.held > 0 {
				r.best.dropTop(a.waitsIn(i, k))
				found, level = r.best.top().Trial, r.Level
			}
		}
	}
	return found
}

func (a *ashaPromote) waitsIn(bracket, rung int) func(entry) bool {
	return func(e entry) bool {
		r := &a.trials[e.Trial]
		return (r.phase == paused || r.phase == completed) && int(r.rung) == rung && int(r.bracket) == bracket
	}
}

// promote sends a trial, the best waiting one of its rung, to the next rung.
func (a *ashaPromote) promote(t Trial) {
	rec, r := &a.trials[t], a.rung(t)
	r.Promoted++
	r.held--
	reason := fmt.Sprintf("%s: best %d of %d by %s (%.6g), this one takes the %s place", a.whereIs(t),
		a.places(r, r.Size), r.Size, a.metricName(), rec.metric, ordinal(r.Promoted))
	rec.rung++
	a.rung(t).expecting++
	a.train(t, a.rung(t).Level, reason)
}

func (a *ashaPromote) reported(Reported) {}

func (a *ashaPromote) reached(e Reached) error {
	rec, r := &a.trials[e.Trial], a.rung(e.Trial)
	if e.Step < r.Level {
		return tooEarly(e, r.Level)
	}
	rec.metric = e.Metric
	r.expecting--
	r.Size++
	switch {
	case int(rec.rung) == a.Brackets[rec.bracket].top():
		a.end(e.Trial, true, fmt.Sprintf("trained for all its %s", english.Plural(int(e.Step), "step", "")))
	case math.IsNaN(e.Metric):
		a.end(e.Trial, false, fmt.Sprintf("%s: %s is NaN or was not reported", a.whereIs(e.Trial), a.metricName()))
	default:
		a.wait(e.Trial)
	}
	a.finish()
	return nil
}

// wait pauses a trial in the rung that it reached, or promotes it if it takes the next place.
func (a *ashaPromote) wait(t Trial) {
	rec, r := &a.trials[t], a.rung(t)
	rec.phase = paused
	a.addToRankings(t)
	waits := a.waitsIn(int(rec.bracket), int(rec.rung))
	if r.best.dropTop(waits); a.places(r, r.Size) > r.Promoted && r.best.top().Trial == t {
		a.promote(t)
		return
	}
	dropped := a.hopeless(int(rec.bracket), int(rec.rung))
	if dropped != t {
		a.pause(t, fmt.Sprintf("%s: of the %s here %d may go on so far, and %d did", a.whereIs(t), english.Plural(r.Size, "trial", ""),
			a.places(r, r.Size), r.Promoted))
	}
	if dropped >= 0 && a.trials[dropped].phase == paused {
		a.end(dropped, false, fmt.Sprintf("%s: more trials are better by %s (%.6g) than places can come", a.whereIs(dropped),
			a.metricName(), a.trials[dropped].metric))
	}
}

func (a *ashaPromote) addToRankings(t Trial) {
	r := a.rung(t)
	r.best.push(a.entry(t))
	r.worst.push(a.entry(t))
	r.held++
}

// hopeless removes the worst trial of a rung in which more trials wait than can ever be promoted, or returns -1.
func (a *ashaPromote) hopeless(bracket, rung int) Trial {
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
	r.worst.dropTop(a.waitsIn(bracket, rung))
	r.held--
	return a.giveUp(r.worst.pop().Trial)
}

func (a *ashaPromote) handleExit(e Exited, before phase) {
	r := a.rung(e.Trial)
	if before == paused {
		r.held--
	} else {
		r.expecting--
		r.Size++
	}
	a.finish()
}

// isOver reports whether no trial can be promoted any more.
func (a *ashaPromote) isOver() bool {
	if a.canCreate() {
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
func (a *ashaPromote) finish() {
	if !a.isOver() {
		return
	}
	for i := range a.Brackets {
		b := &a.Brackets[i]
		for k := range b.top() {
			r := &b.Rungs[k]
			for r.best.dropTop(a.waitsIn(i, k)) {
				if t := a.giveUp(r.best.pop().Trial); a.trials[t].phase == paused {
					a.end(t, false, fmt.Sprintf("%s: the sweep is done, and %d of the %s here went on", a.where(i, k), r.Promoted,
						english.Plural(r.Size, "trial", "")))
				}
			}
			r.held = 0
		}
	}
}

func (a *ashaPromote) extend(old Settings) error {
	a.quotas = a.allot()
	if high := a.steps; high > MaxSteps(old.Spec.GetTuner()) {
		a.raise(high)
		a.derive()
	}
	a.finish()
	return nil
}

func (a *ashaPromote) status() Status {
	s := Status{Waiting: !a.canCreate() && a.promotable() < 0}
	s.Exhausted = s.Waiting && a.isOver()
	return s
}

// outlook is exact if no trial exits and none reports NaN.
func (a *ashaPromote) outlook() Outlook {
	var o Outlook
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
		bracketOutlook(&o, i, levels, sizes)
	}
	return o
}

func (a *ashaPromote) load(decode func(any) error) error {
	if err := a.asha.load(decode); err != nil {
		return err
	}
	a.derive()
	return nil
}

// derive rebuilds the state that follows from the trials.
func (a *ashaPromote) derive() {
	for i := range a.Brackets {
		for k := range a.Brackets[i].Rungs {
			r := &a.Brackets[i].Rungs[k]
			r.best, r.worst, r.held, r.expecting = bestFirst(), worstFirst(), 0, 0
		}
	}
	for t, rec := range a.trials {
		switch {
		case rec.phase == running:
			a.rung(Trial(t)).expecting++
		case rec.phase == paused, rec.mayContinue(a.Brackets[rec.bracket].top()):
			a.addToRankings(Trial(t))
		}
	}
}
