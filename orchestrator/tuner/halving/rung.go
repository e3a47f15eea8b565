package halving

import (
	"fmt"
	"math"
	"slices"

	"github.com/dustin/go-humanize/english"

	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/engine"
	"github.com/outbid-dev/outbid/orchestrator/tuner/rank"
)

// Ask implements engine.Rules.
func (h *Rules) Ask(n int) error {
	for n > 0 && len(h.Queue) > 0 {
		p := h.Queue[0]
		h.Queue = h.Queue[1:]
		if h.Trials[p.Trial].Phase != engine.Ready {
			continue
		}
		h.ready--
		r := h.Trials[p.Trial]
		b := &h.Brackets[r.Bracket]
		h.Train(p.Trial, b.Rungs[r.Rung].Level, h.promoted(b, p))
		n--
	}
	for b := h.fill(); n > 0 && b != nil; b = h.fill() {
		first := b.Rungs[0].Level
		reason := fmt.Sprintf("%s: trial %d of %d", b.where(0), b.Created+1, b.N)
		_, ok, err := h.Create(engine.Record{Bracket: int32(h.next)}, first, b.Label, reason)
		if err != nil || !ok {
			return err
		}
		b.Created++
		b.Rungs[0].In++
		n--
	}
	return nil
}

// Reported implements engine.Rules.
func (h *Rules) Reported(tuner.Reported) {}

// Reached implements engine.Rules.
func (h *Rules) Reached(e tuner.Reached) error {
	rec := &h.Trials[e.Trial]
	b := &h.Brackets[rec.Bracket]
	k := int(rec.Rung)
	if e.Step < b.Rungs[k].Level {
		return engine.TooEarly(e, b.Rungs[k].Level)
	}
	rec.Metric = e.Metric
	b.Rungs[k].Here++
	if k == b.top() {
		h.End(e.Trial, true, fmt.Sprintf("trained for all its %s", english.Plural(int(e.Step), "step", "")))
		return nil
	}
	out := e.Trial
	if !math.IsNaN(e.Metric) {
		rec.Phase = engine.Paused
		out = h.admit(e.Trial)
	}
	if out == e.Trial {
		h.End(out, false, h.dropped(b, k, e.Metric))
	}
	h.decideRungs(int(rec.Bracket), e.Trial)
	if rec.Phase == engine.Paused {
		r := &b.Rungs[k]
		h.Pause(e.Trial, fmt.Sprintf("%s: the best %d of %d go on; %d are not here yet", b.where(k), b.promotions(k),
			max(r.In, b.sizes()[k]), max(r.In, b.sizes()[k])-r.Here))
	}
	if out >= 0 && out != e.Trial && h.Trials[out].Phase == engine.Paused {
		h.End(out, false, h.dropped(b, k, h.Trials[out].Metric))
	}
	return nil
}

// admit adds a trial to the ranking of its rung. It returns the trial that no longer has a place, or -1 if all have
// one.
func (h *Rules) admit(t tuner.Trial) tuner.Trial {
	rec := h.Trials[t]
	b := &h.Brackets[rec.Bracket]
	r := &b.Rungs[rec.Rung]
	r.worst.Push(h.Entry(t))
	r.held++
	if r.held <= b.promotions(int(rec.Rung)) {
		return -1
	}
	r.worst.DropTop(h.waitsIn(rec.Bracket, rec.Rung))
	r.held--
	return h.GiveUp(r.worst.Pop().Trial)
}

// waitsIn returns a filter for a rung's ranking that rejects entries of trials that exited or moved on.
func (h *Rules) waitsIn(bracket int32, rung uint8) func(rank.Entry) bool {
	return func(e rank.Entry) bool {
		r := &h.Trials[e.Trial]
		return (r.Phase == engine.Paused || r.Phase == engine.Completed) && r.Rung == rung && r.Bracket == bracket
	}
}

// HandleExit implements engine.Rules.
func (h *Rules) HandleExit(e tuner.Exited, before engine.Phase) {
	rec := h.Trials[e.Trial]
	r := &h.Brackets[rec.Bracket].Rungs[rec.Rung]
	if before == engine.Paused {
		r.held--
	} else {
		r.Here++
	}
	if before == engine.Ready {
		h.ready--
	}
	h.decideRungs(int(rec.Bracket), -1)
}

// decideRungs decides the rungs of a bracket that can be decided. here is the trial that just reached one, or -1. That
// trial still has its device, so if it is promoted it continues at once.
func (h *Rules) decideRungs(bracket int, here tuner.Trial) {
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
			rec := &h.Trials[e.Trial]
			rec.Rung++
			b.Rungs[k+1].In++
			p := promotion{Trial: e.Trial, Rank: rank + 1}
			if e.Trial == here {
				h.Train(here, b.Rungs[k+1].Level, h.promoted(b, p))
				continue
			}
			rec.Phase = engine.Ready
			h.ready++
			h.Queue = append(h.Queue, p)
		}
	}
}

// winners removes and returns the best trials of a rung's ranking, best first. The ranking contains only trials that
// have a place.
func (h *Rules) winners(bracket int32, rung uint8) []rank.Entry {
	r := &h.Brackets[bracket].Rungs[rung]
	waits := h.waitsIn(bracket, rung)
	list := slices.DeleteFunc(r.worst.Items, func(e rank.Entry) bool { return !waits(e) })
	slices.SortFunc(list, rank.Compare)
	r.worst.Items, r.held = nil, 0
	return list
}

// where describes a rung in reasons.
func (b *Bracket) where(rung int) string {
	return fmt.Sprintf("bracket %d, rung %d at step %d", b.Label, rung, b.Rungs[rung].Level)
}

// promoted explains why a trial was promoted. The trial's rung is already the next one.
func (h *Rules) promoted(b *Bracket, p promotion) string {
	rec := h.Trials[p.Trial]
	k := int(rec.Rung) - 1
	return fmt.Sprintf("%s: best %d of %d by %s (%.6g), this one is %s", b.where(k), b.promotions(k), b.Rungs[k].In,
		h.MetricName(), rec.Metric, rank.Ordinal(p.Rank))
}

// dropped explains why a trial ends at a rung.
func (h *Rules) dropped(b *Bracket, rung int, metric float64) string {
	size, keeps := b.sizes()[rung], b.promotions(rung)
	switch {
	case math.IsNaN(metric):
		return fmt.Sprintf("%s: %s is NaN or was not reported", b.where(rung), h.MetricName())
	case keeps == 0:
		return fmt.Sprintf("%s: %s is less than eta = %d, so none goes on", b.where(rung), english.Plural(size, "trial", ""), b.Eta)
	default:
		return fmt.Sprintf("%s: only the best %d of %d go on and as many are better by %s (%.6g)", b.where(rung), keeps,
			size, h.MetricName(), metric)
	}
}
