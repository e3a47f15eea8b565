package asha

import (
	"fmt"
	"math"

	"github.com/dustin/go-humanize/english"

	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/engine"
	"github.com/outbid-dev/outbid/orchestrator/tuner/rank"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// stopping is the stop-only form of asynchronous successive halving: no trial is paused. At a rung, a trial continues
// if it is among the best floor(m/eta) of the m trials that reached the rung so far, including itself, and ends if not.
// The paper does not have this form. It is the rule that Ray Tune's AsyncHyperBandScheduler and the stopping type of
// Syne Tune's ASHA apply with a quantile of the metrics. As there, the first eta-1 trials of a rung continue, because
// otherwise the first trials of every sweep would end at the first rung.
//
// A trial that was among the best of a few continues even if better ones follow, so more than 1/eta of a rung can
// continue. NaN ends a trial; a trial that exits counts as worst.
type stopping struct {
	*asha
	// expected is the outlook of the spec that was rehearsed.
	expected  tuner.Outlook
	rehearsed *outbidv1.SweepSpec
}

func (a *stopping) Ask(n int) error {
	for n > 0 && len(a.Queue) > 0 {
		t := a.Queue[0]
		a.Queue = a.Queue[1:]
		if a.Trials[t].Phase != engine.Ready {
			continue
		}
		a.advance(t, fmt.Sprintf("the sweep was extended to %s", english.Plural(int(a.Steps), "step", "")))
		n--
	}
	for ; n > 0 && a.CanCreate(); n-- {
		if ok, err := a.add(); err != nil || !ok {
			return err
		}
	}
	return nil
}

func (a *stopping) advance(t tuner.Trial, reason string) {
	a.rung(t).Promoted++
	a.Trials[t].Rung++
	a.Train(t, a.rung(t).Level, reason)
}

func (a *stopping) Reported(tuner.Reported) {}

func (a *stopping) Reached(e tuner.Reached) error {
	rec, r := &a.Trials[e.Trial], a.rung(e.Trial)
	if e.Step < r.Level {
		return engine.TooEarly(e, r.Level)
	}
	rec.Metric = e.Metric
	among := a.record(r, e.Trial)
	where := a.whereIs(e.Trial)
	switch {
	case int(rec.Rung) == a.Brackets[rec.Bracket].top():
		a.End(e.Trial, true, fmt.Sprintf("trained for all its %s", english.Plural(int(e.Step), "step", "")))
	case math.IsNaN(e.Metric):
		a.End(e.Trial, false, fmt.Sprintf("%s: %s is NaN or was not reported", where, a.MetricName()))
	case r.Size < int(a.eta):
		a.advance(e.Trial, fmt.Sprintf("%s: only %d got here, too few to judge", where, r.Size))
	case among:
		a.advance(e.Trial, fmt.Sprintf("%s: among the best %d of %d by %s (%.6g)", where, len(r.Top), r.Size,
			a.MetricName(), e.Metric))
	default:
		a.End(e.Trial, false, fmt.Sprintf("%s: not among the best %d of %d by %s (%.6g)", where, r.Size/int(a.eta), r.Size,
			a.MetricName(), e.Metric))
	}
	return nil
}

// record records a trial in its rung and reports whether it is among the best floor(Size/eta).
func (a *stopping) record(r *rung, t tuner.Trial) bool {
	r.Size++
	top, rest := rank.HeapOf(rank.Behind, r.Top), rank.HeapOf(rank.Ahead, r.Rest)
	e := a.Entry(t)
	if !math.IsNaN(e.Cost) {
		top.Push(e)
		rest.Push(top.Pop())
	}
	for top.Len() < r.Size/int(a.eta) && rest.Len() > 0 {
		top.Push(rest.Pop())
	}
	r.Top, r.Rest = top.Items, rest.Items
	return !math.IsNaN(e.Cost) && top.Len() > 0 && !rank.Ahead(top.Top(), e)
}

func (a *stopping) HandleExit(e tuner.Exited, before engine.Phase) {
	if before == engine.Running {
		a.rung(e.Trial).Size++
	}
}

// Extend resumes the best trials that completed the previously last rung.
func (a *stopping) Extend(old tuner.Settings) error {
	a.quotas = a.allot()
	if a.Steps <= tuner.MaxSteps(old.Spec.GetTuner()) {
		return nil
	}
	tops := make([]int, len(a.Brackets))
	for i := range tops {
		tops[i] = a.Brackets[i].top()
	}
	a.raise(a.Steps)
	lists := make([]rank.Ranking, len(a.Brackets))
	for i := range lists {
		lists[i] = rank.BestFirst()
	}
	for t, r := range a.Trials {
		if r.Phase == engine.Completed && int(r.Rung) == tops[r.Bracket] && !math.IsNaN(r.Metric) {
			lists[r.Bracket].Push(a.Entry(tuner.Trial(t)))
		}
	}
	for i := range lists {
		r := &a.Brackets[i].Rungs[tops[i]]
		for n := a.places(r, r.Size); n > 0 && lists[i].Len() > 0; n-- {
			t := lists[i].Pop().Trial
			a.Trials[t].Phase = engine.Ready
			a.Queue = append(a.Queue, t)
		}
	}
	return nil
}

func (a *stopping) Status() tuner.Status {
	idle := !a.CanCreate() && len(a.Queue) == 0
	return tuner.Status{Waiting: idle, Exhausted: idle}
}

// Outlook rehearses the sweep on random metrics, because the number of trials that continue depends on their order. A
// closed form does not exist: trials do not reach the higher rungs in random order.
func (a *stopping) Outlook() tuner.Outlook {
	if a.rehearsed != a.Spec {
		// The outlook is unknown without a trial limit, and for a spec that New rejects.
		a.expected = tuner.Outlook{}
		if a.Limit() > 0 {
			if fresh, err := engine.New(Kind(), tuner.Settings{Spec: a.Spec}); err == nil {
				a.expected, _ = engine.Rehearse(fresh, a.Limit())
			}
		}
		a.rehearsed = a.Spec
	}
	return a.expected
}
