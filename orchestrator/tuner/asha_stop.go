package tuner

import (
	"fmt"
	"math"

	"github.com/dustin/go-humanize/english"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// ashaStop is the stop-only form of asynchronous successive halving: no trial is paused. At a rung, a trial continues
// if it is among the best floor(m/eta) of the m trials that reached the rung so far, including itself, and ends if not.
// The paper does not have this form. It is the rule that Ray Tune's AsyncHyperBandScheduler and the stopping type of
// Syne Tune's ASHA apply with a quantile of the metrics. As there, the first eta-1 trials of a rung continue, because
// otherwise the first trials of every sweep would end at the first rung.
//
// A trial that was among the best of a few continues even if better ones follow, so more than 1/eta of a rung can
// continue. NaN ends a trial; a trial that exits counts as worst.
type ashaStop struct {
	*asha
	// expected is the outlook of the spec that was rehearsed.
	expected  Outlook
	rehearsed *outbidv1.SweepSpec
}

func (a *ashaStop) ask(n int) error {
	for n > 0 && len(a.Queue) > 0 {
		t := a.Queue[0]
		a.Queue = a.Queue[1:]
		if a.trials[t].phase != ready {
			continue
		}
		a.advance(t, fmt.Sprintf("the sweep was extended to %s", english.Plural(int(a.steps), "step", "")))
		n--
	}
	for ; n > 0 && a.canCreate(); n-- {
		if ok, err := a.add(); err != nil || !ok {
			return err
		}
	}
	return nil
}

func (a *ashaStop) advance(t Trial, reason string) {
	a.rung(t).Promoted++
	a.trials[t].rung++
	a.train(t, a.rung(t).Level, reason)
}

func (a *ashaStop) reported(Reported) {}

func (a *ashaStop) reached(e Reached) error {
	rec, r := &a.trials[e.Trial], a.rung(e.Trial)
	if e.Step < r.Level {
		return tooEarly(e, r.Level)
	}
	rec.metric = e.Metric
	among := a.record(r, e.Trial)
	where := a.whereIs(e.Trial)
	switch {
	case int(rec.rung) == a.Brackets[rec.bracket].top():
		a.end(e.Trial, true, fmt.Sprintf("trained for all its %s", english.Plural(int(e.Step), "step", "")))
	case math.IsNaN(e.Metric):
		a.end(e.Trial, false, fmt.Sprintf("%s: %s is NaN or was not reported", where, a.metricName()))
	case r.Size < int(a.eta):
		a.advance(e.Trial, fmt.Sprintf("%s: only %d got here, too few to judge", where, r.Size))
	case among:
		a.advance(e.Trial, fmt.Sprintf("%s: among the best %d of %d by %s (%.6g)", where, len(r.Top), r.Size,
			a.metricName(), e.Metric))
	default:
		a.end(e.Trial, false, fmt.Sprintf("%s: not among the best %d of %d by %s (%.6g)", where, r.Size/int(a.eta), r.Size,
			a.metricName(), e.Metric))
	}
	return nil
}

// record records a trial in its rung and reports whether it is among the best floor(Size/eta).
func (a *ashaStop) record(r *ashaRung, t Trial) bool {
	r.Size++
	top, rest := heapOf(behind, r.Top), heapOf(ahead, r.Rest)
	e := a.entry(t)
	if !math.IsNaN(e.Cost) {
		top.push(e)
		rest.push(top.pop())
	}
	for top.len() < r.Size/int(a.eta) && rest.len() > 0 {
		top.push(rest.pop())
	}
	r.Top, r.Rest = top.items, rest.items
	return !math.IsNaN(e.Cost) && top.len() > 0 && !ahead(top.top(), e)
}

func (a *ashaStop) handleExit(e Exited, before phase) {
	if before == running {
		a.rung(e.Trial).Size++
	}
}

// extend resumes the best trials that completed the previously last rung.
func (a *ashaStop) extend(old Settings) error {
	a.quotas = a.allot()
	if a.steps <= MaxSteps(old.Spec.GetTuner()) {
		return nil
	}
	tops := make([]int, len(a.Brackets))
	for i := range tops {
		tops[i] = a.Brackets[i].top()
	}
	a.raise(a.steps)
	lists := make([]ranking, len(a.Brackets))
	for i := range lists {
		lists[i] = bestFirst()
	}
	for t, r := range a.trials {
		if r.phase == completed && int(r.rung) == tops[r.bracket] && !math.IsNaN(r.metric) {
			lists[r.bracket].push(a.entry(Trial(t)))
		}
	}
	for i := range lists {
		r := &a.Brackets[i].Rungs[tops[i]]
		for n := a.places(r, r.Size); n > 0 && lists[i].len() > 0; n-- {
			t := lists[i].pop().Trial
			a.trials[t].phase = ready
			a.Queue = append(a.Queue, t)
		}
	}
	return nil
}

func (a *ashaStop) status() Status {
	idle := !a.canCreate() && len(a.Queue) == 0
	return Status{Waiting: idle, Exhausted: idle}
}

// outlook rehearses the sweep on random metrics, because the number of trials that continue depends on their order. A
// closed form does not exist: trials do not reach the higher rungs in random order.
func (a *ashaStop) outlook() Outlook {
	if a.rehearsed != a.spec {
		// The outlook is unknown without a trial limit, and for a spec that New rejects.
		a.expected = Outlook{}
		if a.limit() > 0 {
			if fresh, err := newOf(ashaKind(), Settings{Spec: a.spec}); err == nil {
				a.expected, _ = rehearse(fresh, a.limit())
			}
		}
		a.rehearsed = a.spec
	}
	return a.expected
}
