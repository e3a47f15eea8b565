package tuner

import (
	"fmt"
	"math"
)

const (
	// leastKept is the part of all steps that trials get which are drawn at random and trained to the end, as long as those that forecasts
	// chose end better: random search within the search.
	leastKept = 0.25
	// A chosen trial ends better than a kept one with a chance of trusted or more where choosing is worth its steps, and with one of idle or less
	// where it is not: then all that begin are kept.
	trusted, idle = 0.75, 0.55
	// supposedWins is what is thought of that chance before any ended, and supposedTrials for how many of each kind that counts.
	supposedWins, supposedTrials = 0.85, 1.5
)

// A trust is what the sweep's own ends say of its forecasts.
type trust struct {
	// kept and chosen are the trials that got to the end, and won the pairs of them in which the chosen one ended better.
	kept, chosen int
	won          float64
}

// trust compares the trials that forecasts chose to train to the end with those that were kept, which chance did: no forecast is believed of what it
// is worth. Where early values say nothing of late ones, or the wrong thing, the two end alike.
func (z *freeze) trust() trust {
	var t trust
	var kept, chosen []float64
	for i := range z.Past {
		w := &z.Past[i]
		switch n := len(w.Costs); {
		case n < len(z.Looks) || math.IsNaN(w.Costs[n-1]):
		case w.Kept:
			kept = append(kept, w.Costs[n-1])
		case !w.Lost:
			chosen = append(chosen, w.Costs[n-1])
		}
	}
	for _, c := range chosen {
		for _, k := range kept {
			switch {
			case c < k:
				t.won++
			case c == k:
				t.won += 0.5
			}
		}
	}
	t.kept, t.chosen = len(kept), len(chosen)
	return t
}

// wins is the chance that a chosen trial ends better than a kept one.
func (t trust) wins() float64 {
	if t.kept == 0 || t.chosen == 0 {
		return supposedWins
	}
	pairs := float64(t.kept * t.chosen)
	counts := 2 * pairs / float64(t.kept+t.chosen)
	return (t.won/pairs*counts + supposedWins*supposedTrials) / (counts + supposedTrials)
}

// doubt is 0 where choosing is worth its steps, and 1 where it is worth nothing.
func (t trust) doubt() float64 { return min(max((trusted-t.wins())/(trusted-idle), 0), 1) }

// share is the part of all steps that kept trials are to get.
func (t trust) share() float64 { return leastKept + (1-leastKept)*t.doubt() }

func (t trust) String() string {
	share := fmt.Sprintf("the %.0f %% of steps that go to such trials", 100*t.share())
	if t.kept == 0 || t.chosen == 0 {
		return share
	}
	return share + fmt.Sprintf(": of those that got to the end, chosen ones were better than kept ones in %.3g of %s", t.won, count(t.kept*t.chosen, "pair"))
}

// owing reports whether the next new trial is one to keep.
func (z *freeze) owing() bool { return float64(z.Given) <= z.trust().share()*float64(z.Spent) }
