package performancecurve

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/dustin/go-humanize/english"

	"github.com/outbid-dev/outbid/orchestrator/curve"
	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/ladder"
	"github.com/outbid-dev/outbid/orchestrator/tuner/rank"
	"github.com/outbid-dev/outbid/orchestrator/tuner/saturate"
)

// A rankRung is the rank rule's state of a rung: the best of its costs and the worst 1/eta.
type rankRung struct {
	Size        int
	Best, Worst []rank.Entry
	// Recent are the newest costs, against which the place of a new cost is measured.
	Recent []float64
}

// maxRecent is the number of recent costs that a rung keeps.
const maxRecent = 256

// place returns the share of the recent costs that are better than cost, and adds cost to them. It returns NaN for the
// first cost.
func (r *rankRung) place(cost float64) float64 {
	better := 0.0
	for _, other := range r.Recent {
		switch {
		case other < cost:
			better++
		case other == cost:
			better += 0.5
		}
	}
	share := better / float64(len(r.Recent))
	if len(r.Recent) >= maxRecent {
		r.Recent = slices.Delete(r.Recent, 0, len(r.Recent)-maxRecent+1)
	}
	r.Recent = append(r.Recent, cost)
	return share
}

// record records a trial and reports whether it is outside the worst floor(Size/eta) of the rung.
func (r *rankRung) record(e rank.Entry, eta int) bool {
	r.Size++
	best, worst := rank.HeapOf(rank.Behind, r.Best), rank.HeapOf(rank.Ahead, r.Worst)
	if !math.IsNaN(e.Cost) {
		best.Push(e)
		worst.Push(best.Pop())
	}
	for best.Len() < r.Size-r.Size/eta && worst.Len() > 0 {
		best.Push(worst.Pop())
	}
	r.Best, r.Worst = best.Items, worst.Items
	return !math.IsNaN(e.Cost) && best.Len() > 0 && !rank.Ahead(best.Top(), e)
}

// judge decides whether a trial continues, pauses or ends.
func (p *performance) judge(w *watched, e tuner.Reached) {
	rank, fails := p.rank(w, e)
	why, forecast := p.forecast(w, e.Step)
	at := fmt.Sprintf("step %d: ", e.Step)
	switch {
	case e.Step < p.Grace:
		p.trainOn(w, at+fmt.Sprintf("none is stopped before step %d", p.Grace))
	case w.Kept:
		p.trainOn(w, at+"kept, so that forecasts are checked on trials like it")
	case !forecast:
		// The rank rule decides instead of the forecast, for the reason why.
		p.endOrKeep(w, fails, at+why+": "+rank)
	case w.Chance < p.poor() && !p.worthMore(w):
		p.endOrKeep(w, true, at+"poor: "+why)
	default:
		p.keepSlotOrYield(w, at, why)
	}
}

// endOrKeep ends a trial if ends is set, except for a random share that is kept for calibration.
func (p *performance) endOrKeep(w *watched, ends bool, reason string) {
	if ends && rand.New(rand.NewPCG(p.Configs.Root, keepStream+uint64(w.Trial))).Float64() < p.keepShare() {
		w.Kept = true
		reason += "; kept, so that forecasts are checked on trials like it"
	}
	if ends && !w.Kept {
		p.stop(w, reason)
		return
	}
	p.trainOn(w, reason)
}

func (p *performance) trainOn(w *watched, reason string) { p.Train(w.Trial, p.next(w.Step), reason) }

// forecast updates the trial's Chance and Sure, and keeps the forecast for checking. It reports whether the forecast
// may decide; text describes the forecast, or why it may not decide.
func (p *performance) forecast(w *watched, step int64) (text string, decides bool) {
	c, ok := curve.Fit(w.Points, p.Maximise)
	if !ok {
		return fmt.Sprintf("%s are too few to forecast", english.Plural(len(w.Points), "point", "")), false
	}
	c.Place = w.Place
	end := c.At(p.Steps, &p.Known)
	w.Sure = p.sureCost(end)
	goal, what := p.goal(w)
	w.Chance = 1
	if !math.IsNaN(goal) {
		w.Chance = end.Beats(p.Cost(goal))
		if _, fixed := p.target(); fixed {
			w.Chance = c.Reach(p.Cost(goal), p.Steps, &p.Known)
		}
	}
	if step >= w.NextClaim {
		w.NextClaim = saturate.Times(2, step)
		if w.NextClaim < p.Steps {
			w.Claims = append(w.Claims, c.At(w.NextClaim, &p.Known).Claim())
		}
		w.Claims = append(w.Claims, end.Claim())
	}
	if why := p.whyUncalibrated(); why != "" {
		return why, false
	}
	low, high := end.Interval(curve.Nominal)
	text = fmt.Sprintf("%s %.4g at step %d, from %.4g to %.4g at 90 %%", p.MetricName(), end.Median(), p.Steps, low, high)
	if !math.IsNaN(goal) {
		text += fmt.Sprintf("; a chance of %.2g to beat %.6g (%s)", w.Chance, p.Cost(goal), what)
	}
	return text, true
}

// sureness is the probability that a live trial reaches the value that it sets as the goal of the others. A median
// would not do: the best of many medians is that of the trial with the most uncertain forecast.
const sureness = 0.75

// sureCost returns the cost that a trial will beat with probability sureness.
func (p *performance) sureCost(f curve.Forecast) float64 {
	if p.Maximise {
		return -f.Quantile(1 - sureness)
	}
	return f.Quantile(sureness)
}

// whyUncalibrated explains why forecasts may not decide, or returns "" if they may.
func (p *performance) whyUncalibrated() string {
	if p.Known.Holds() {
		return ""
	}
	share, n := p.Known.Coverage()
	if n < curve.LeastResults {
		return fmt.Sprintf("not calibrated (%d of %d forecasts were checked)", n, curve.LeastResults)
	}
	return fmt.Sprintf("not calibrated (90 %% intervals held %.0f %% of %d)", 100*share, n)
}

// target returns the metric's value that the user wants to reach.
func (p *performance) target() (value float64, fixed bool) {
	l := p.Spec.GetLimits()
	return l.GetTarget(), l != nil && l.Target != nil
}

// goal returns the cost that a trial must beat and a description of it. The cost is NaN if it is not known yet.
func (p *performance) goal(w *watched) (cost float64, what string) {
	if target, fixed := p.target(); fixed {
		return p.Cost(target), "the target"
	}
	best, whose := math.NaN(), rank.Entry{Cost: math.Inf(1), Trial: math.MaxInt32}
	if p.Completed > 0 {
		best, whose = p.Best.Cost, p.Best
	}
	forecast := false
	for _, other := range p.live {
		if e := (rank.Entry{Cost: other.Sure, Trial: other.Trial}); other != w && !math.IsNaN(e.Cost) && rank.Ahead(e, whose) {
			best, whose, forecast = e.Cost, e, true
		}
	}
	if forecast {
		return best, fmt.Sprintf("forecast of trial %d", whose.Trial)
	}
	return best, fmt.Sprintf("trial %d", whose.Trial)
}

// rung returns the step of the k-th rung of the rank rule.
func (p *performance) rung(k int) int64 { return saturate.Times(p.Grace, saturate.Power(p.eta(), k)) }

// rank records a trial in the rungs that it passed and reports whether the rank rule would end it. The first eta-1
// trials of a rung pass because there are too few to compare with.
func (p *performance) rank(w *watched, e tuner.Reached) (text string, fails bool) {
	rec := &p.Trials[w.Trial]
	text = "goes on to the next rung"
	if math.IsNaN(e.Metric) {
		return p.MetricName() + " was not reported yet", false
	}
	for k := int(rec.Rung); k < ladder.MaxRungs && p.rung(k) <= e.Step; k++ {
		rec.Rung = uint8(k + 1)
		for len(p.Rungs) <= k {
			p.Rungs = append(p.Rungs, rankRung{})
		}
		r, where := &p.Rungs[k], fmt.Sprintf("the rung of step %d", p.rung(k))
		w.Place = r.place(p.Cost(e.Metric))
		passes := r.record(rank.Entry{Cost: p.Cost(e.Metric), Trial: w.Trial}, int(p.eta()))
		switch worst := r.Size / int(p.eta()); {
		case worst == 0:
			text = fmt.Sprintf("only %d got to %s, too few to rank", r.Size, where)
		case passes:
			text = fmt.Sprintf("not among the worst %d of %d at %s", worst, r.Size, where)
		default:
			text = fmt.Sprintf("among the worst %d of %d at %s", worst, r.Size, where)
		}
		fails = !passes
	}
	return text, fails
}
