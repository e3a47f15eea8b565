package tuner

import (
	"fmt"
	"math"
	"slices"

	"github.com/dustin/go-humanize/english"
)

func (h *halving) ask(n int) error {
	for n > 0 && len(h.Queue) > 0 {
		p := h.Queue[0]
		h.Queue = h.Queue[1:]
		if h.trials[p.Trial].phase != ready {
			continue
		}
		h.ready--
		r := h.trials[p.Trial]
		b := &h.Brackets[r.bracket]
		h.train(p.Trial, b.Rungs[r.rung].Level, h.promoted(b, p))
		n--
	}
	for b := h.fill(); n > 0 && b != nil; b = h.fill() {
		first := b.Rungs[0].Level
		reason := fmt.Sprintf("%s: trial %d of %d", b.where(0), b.Created+1, b.N)
		_, ok, err := h.create(record{bracket: int32(h.next)}, first, b.Label, reason)
		if err != nil || !ok {
			return err
		}
		b.Created++
		b.Rungs[0].In++
		n--
	}
	return nil
}

func (h *halving) reported(Reported) {}

func (h *halving) reached(e Reached) error {
	rec := &h.trials[e.Trial]
	b := &h.Brackets[rec.bracket]
	k := int(rec.rung)
	if e.Step < b.Rungs[k].Level {
		return tooEarly(e, b.Rungs[k].Level)
	}
	rec.metric = e.Metric
	b.Rungs[k].Here++
	if k == b.top() {
		h.end(e.Trial, true, fmt.Sprintf("trained for all its %s", english.Plural(int(e.Step), "step", "")))
		return nil
	}
	out := e.Trial
	if !math.IsNaN(e.Metric) {
		rec.phase = paused
		out = h.admit(e.Trial)
	}
	if out == e.Trial {
		h.end(out, false, h.dropped(b, k, e.Metric))
	}
	h.decideRungs(int(rec.bracket), e.Trial)
	if rec.phase == paused {
		r := &b.Rungs[k]
		h.pause(e.Trial, fmt.Sprintf("%s: the best %d of %d go on; %d are not here yet", b.where(k), b.promotions(k),
			max(r.In, b.sizes()[k]), max(r.In, b.sizes()[k])-r.Here))
	}
	if out >= 0 && out != e.Trial && h.trials[out].phase == paused {
		h.end(out, false, h.dropped(b, k, h.trials[out].metric))
	}
	return nil
}

// admit adds a trial to the ranking of its rung. It returns the trial that no longer has a place, or -1 if all have
// one.
func (h *halving) admit(t Trial) Trial {
	rec := h.trials[t]
	b := &h.Brackets[rec.bracket]
	r := &b.Rungs[rec.rung]
	r.worst.push(h.entry(t))
	r.held++
	if r.held <= b.promotions(int(rec.rung)) {
		return -1
	}
	r.worst.dropTop(h.waitsIn(rec.bracket, rec.rung))
	r.held--
	return h.giveUp(r.worst.pop().Trial)
}

// waitsIn returns a filter for a rung's ranking that rejects entries of trials that exited or moved on.
func (h *halving) waitsIn(bracket int32, rung uint8) func(entry) bool {
	return func(e entry) bool {
		r := &h.trials[e.Trial]
		return (r.phase == paused || r.phase == completed) && r.rung == rung && r.bracket == bracket
	}
}

func (h *halving) handleExit(e Exited, before phase) {
	rec := h.trials[e.Trial]
	r := &h.Brackets[rec.bracket].Rungs[rec.rung]
	if before == paused {
		r.held--
	} else {
		r.Here++
	}
	if before == ready {
		h.ready--
	}
	h.decideRungs(int(rec.bracket), -1)
}

// decideRungs decides the rungs of a bracket that can be decided. here is the trial that just reached one, or -1. That
// trial still has its device, so if it is promoted it continues at once.
func (h *halving) decideRungs(bracket int, here Trial) {
	b := &h.Brackets[bracket]
	if b.N == 0 {
		return
	}
	for k := range b.top() {
		if b.Rungs[k].Decided || !b.complete(k) {
			continue
		}
		b.Rungs[k].Decided = true
		for rank, e := range h.winners(int32(bracket), uint8(k)) {
			rec := &h.trials[e.Trial]
			rec.rung++
			b.Rungs[k+1].In++
			p := promotion{Trial: e.Trial, Rank: rank + 1}
			if e.Trial == here {
				h.train(here, b.Rungs[k+1].Level, h.promoted(b, p))
				continue
			}
			rec.phase = ready
			h.ready++
			h.Queue = append(h.Queue, p)
		}
	}
}

// winners removes and returns the best trials of a rung's ranking, best first. The ranking contains only trials that
// have a place.
func (h *halving) winners(bracket int32, rung uint8) []entry {
	r := &h.Brackets[bracket].Rungs[rung]
	waits := h.waitsIn(bracket, rung)
	list := slices.DeleteFunc(r.worst.items, func(e entry) bool { return !waits(e) })
	slices.SortFunc(list, compareEntries)
	r.worst.items, r.held = nil, 0
	return list
}

// where describes a rung in reasons.
func (b *bracket) where(rung int) string {
	return fmt.Sprintf("bracket %d, rung %d at step %d", b.Label, rung, b.Rungs[rung].Level)
}

// promoted explains why a trial was promoted. The trial's rung is already the next one.
func (h *halving) promoted(b *bracket, p promotion) string {
	rec := h.trials[p.Trial]
	k := int(rec.rung) - 1
	return fmt.Sprintf("%s: best %d of %d by %s (%.6g), this one is %s", b.where(k), b.promotions(k), b.Rungs[k].In,
		h.metricName(), rec.metric, ordinal(p.Rank))
}

// dropped explains why a trial ends at a rung.
func (h *halving) dropped(b *bracket, rung int, metric float64) string {
	size, keeps := b.sizes()[rung], b.promotions(rung)
	switch {
	case math.IsNaN(metric):
		return fmt.Sprintf("%s: %s is NaN or was not reported", b.where(rung), h.metricName())
	case keeps == 0:
		return fmt.Sprintf("%s: %s is less than eta = %d, so none goes on", b.where(rung), english.Plural(size, "trial", ""), b.Eta)
	default:
		return fmt.Sprintf("%s: only the best %d of %d go on and as many are better by %s (%.6g)", b.where(rung), keeps,
			size, h.metricName(), metric)
	}
}
