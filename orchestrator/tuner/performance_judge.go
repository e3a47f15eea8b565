package tuner

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/curve"
)

// A rankRung is what the rank rule knows of a rung: the best of the costs seen there, and the worst 1/eta.
type rankRung struct {
	Size        int
	Best, Worst []entry
	// Recent are the newest costs, which a new one's place is told by.
	Recent []float64
}

// maxRecent bounds the costs that a rung keeps for places.
const maxRecent = 256

// place is the share of the recent costs that are better than a new one, which joins them; NaN if it is the first.
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

// see counts a trial in and reports whether it is not among the worst floor(Size/eta) of the rung.
func (r *rankRung) see(e entry, eta int) bool {
	r.Size++
	best, worst := ranking{behind, r.Best}, ranking{ahead, r.Worst}
	if !math.IsNaN(e.Cost) {
		best.push(e)
		worst.push(best.pop())
	}
	for best.len() < r.Size-r.Size/eta && worst.len() > 0 {
		best.push(worst.pop())
	}
	r.Best, r.Worst = best.items, worst.items
	return !math.IsNaN(e.Cost) && best.len() > 0 && !ahead(best.top(), e)
}

// judge says whether a trial at a look goes on, pauses or ends.
func (p *performance) judge(w *watched, e Reached) {
	rank, fails := p.rank(w, e)
	why, forecast := p.forecast(w, e.Step)
	at := fmt.Sprintf("step %d: ", e.Step)
	switch {
	case e.Step < p.Grace:
		p.goOn(w, at+fmt.Sprintf("none is stopped before step %d", p.Grace))
	case w.Kept:
		p.goOn(w, at+"kept, so that forecasts are checked on trials like it")
	case !forecast:
		// Rank rules stand in, and why says why.
		p.obey(w, fails, at+why+": "+rank)
	case w.Chance < p.poor() && !p.worthMore(w):
		p.obey(w, true, at+"poor: "+why)
	default:
		p.share(w, at, why)
	}
}

// obey ends a trial, or not. Some that should end are kept.
func (p *performance) obey(w *watched, ends bool, reason string) {
	if ends && rand.New(rand.NewPCG(p.configs.root, keepStream+uint64(w.Trial))).Float64() < p.keep() {
		w.Kept = true
		reason += "; kept, so that forecasts are checked on trials like it"
	}
	if ends && !w.Kept {
		p.stop(w, reason)
		return
	}
	p.goOn(w, reason)
}

func (p *performance) goOn(w *watched, reason string) { p.train(w.Trial, p.next(w.Step), reason) }

// forecast puts the trial's chance and what it is sure of up to date, and keeps what it claims. It reports whether the forecast
// may decide; text says what it is, or why not.
func (p *performance) forecast(w *watched, step int64) (text string, decides bool) {
	c, ok := curve.Fit(w.Points, p.maximise)
	if !ok {
		return fmt.Sprintf("%s are too few to forecast", count(len(w.Points), "point")), false
	}
	c.Place = w.Place
	end := c.At(p.steps(), &p.Known)
	w.Sure = p.sure(end)
	goal, what := p.goal(w)
	w.Chance = 1
	if !math.IsNaN(goal) {
		w.Chance = end.Beats(p.cost(goal))
		if _, fixed := p.target(); fixed {
			w.Chance = c.Reach(p.cost(goal), p.steps(), &p.Known)
		}
	}
	if step >= w.NextClaim {
		w.NextClaim = times(2, step)
		if w.NextClaim < p.steps() {
			w.Claims = append(w.Claims, c.At(w.NextClaim, &p.Known).Claim())
		}
		w.Claims = append(w.Claims, end.Claim())
	}
	if why := p.mistrust(); why != "" {
		return why, false
	}
	low, high := end.Interval(curve.Nominal)
	text = fmt.Sprintf("%s %.4g at step %d, from %.4g to %.4g at 90 %%", p.metricName(), end.Median(), p.steps(), low, high)
	if !math.IsNaN(goal) {
		text += fmt.Sprintf("; a chance of %.2g to beat %.6g (%s)", w.Chance, p.cost(goal), what)
	}
	return text, true
}

// sureness is the chance with which a live trial gets to what it sets as the goal of the others. Medians would not do:
// the best of many medians is that of the trial whose forecast is wildest.
const sureness = 0.75

// sure is the cost that a trial will beat with that chance.
func (p *performance) sure(f curve.Forecast) float64 {
	if p.maximise {
		return -f.Quantile(1 - sureness)
	}
	return f.Quantile(sureness)
}

// mistrust says why forecasts may not decide, "" if they may.
func (p *performance) mistrust() string {
	if p.Known.Holds() {
		return ""
	}
	share, n := p.Known.Coverage()
	if n < curve.LeastResults {
		return fmt.Sprintf("not calibrated (%d of %d forecasts were checked)", n, curve.LeastResults)
	}
	return fmt.Sprintf("not calibrated (90 %% intervals held %.0f %% of %d)", 100*share, n)
}

// target is what the user wants to reach.
func (p *performance) target() (value float64, fixed bool) {
	l := p.spec.GetLimits()
	return l.GetTarget(), l != nil && l.Target != nil
}

// goal is the cost that a trial has to beat, and whose it is; NaN if there is none yet.
func (p *performance) goal(w *watched) (cost float64, what string) {
	if target, fixed := p.target(); fixed {
		return p.cost(target), "the target"
	}
	best, whose := math.NaN(), entry{Cost: math.Inf(1), Trial: math.MaxInt32}
	if p.Completed > 0 {
		best, whose = p.Best.Cost, p.Best
	}
	forecast := false
	for _, other := range p.live {
		if e := (entry{other.Sure, other.Trial}); other != w && !math.IsNaN(e.Cost) && ahead(e, whose) {
			best, whose, forecast = e.Cost, e, true
		}
	}
	if forecast {
		return best, fmt.Sprintf("forecast of trial %d", whose.Trial)
	}
	return best, fmt.Sprintf("trial %d", whose.Trial)
}

// rung is the step of the k-th rung of the rank rule.
func (p *performance) rung(k int) int64 { return times(p.Grace, power(p.eta(), k)) }

// rank counts a trial in at the rungs it passed, and reports whether the rank rule would end it. None of the first
// eta-1 trials of a rung is ended, as too few were seen.
func (p *performance) rank(w *watched, e Reached) (text string, fails bool) {
	rec := &p.trials[w.Trial]
	text = "goes on to the next rung"
	if math.IsNaN(e.Metric) {
		return p.metricName() + " was not reported yet", false
	}
	for k := int(rec.rung); k < maxRungs && p.rung(k) <= e.Step; k++ {
		rec.rung = uint8(k + 1)
		for len(p.Rungs) <= k {
			p.Rungs = append(p.Rungs, rankRung{})
		}
		r, where := &p.Rungs[k], fmt.Sprintf("the rung of step %d", p.rung(k))
		w.Place = r.place(p.cost(e.Metric))
		passes := r.see(entry{p.cost(e.Metric), w.Trial}, int(p.eta()))
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
