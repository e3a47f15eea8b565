package tuner

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

const (
	// leastKept is the part of all steps that trials get which are drawn at random and trained to the end, where forecasts are not doubted: random
	// search within the search.
	leastKept = 0.25
	// A chosen trial ends better than a kept one with a chance of trusted or more where choosing is worth its steps, and with one of idle or less
	// where it is not: then all that begin are kept.
	trusted, idle = 0.75, 0.55
	// supposedWins is what is thought of that chance before any ended, and supposedTrials for how many of each kind that counts.
	supposedWins, supposedTrials = 0.85, 1.5
	// Pairs of trials stand at a quarter of training as at the end so often, or more, where early costs are worth believing, and so often or less where
	// they are not: on TaskSet 0.85, on AlgoPerf's ImageNet ResNet 0.41.
	agreeing, apart = 0.75, 0.6
	// supposedAgreement is what is thought of that before any ended, and supposedEnds for how many trials that counts.
	supposedAgreement, supposedEnds = 0.7, 3
	// entranceTo is how many times the look at which a kept trial must stand among the better ones goes into all steps, and enters how many go on there.
	entranceTo, enters = 16, 0.5
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

// agreement is the share of the pairs of trials that got to the end whose order at the look at a quarter of training was that at the end, and how
// many those trials are. Ones that forecasts chose are among them: they are alike, so it is rather too low than too high.
func (z *freeze) agreement() (share float64, ends int) {
	quarter := slices.IndexFunc(z.Looks, func(look int64) bool { return 4*look >= z.steps() })
	var early, late []float64
	for i := range z.Past {
		w := &z.Past[i]
		if n := len(w.Costs); !w.Lost && n == len(z.Looks) && !math.IsNaN(w.Costs[n-1]) && !math.IsNaN(w.Costs[quarter]) {
			early, late = append(early, w.Costs[quarter]), append(late, w.Costs[n-1])
		}
	}
	if len(early) < 2 {
		return 0, 0
	}
	for i := range early {
		for j := range i {
			switch sign := cmp.Compare(early[i], early[j]) * cmp.Compare(late[i], late[j]); {
			case sign > 0:
				share++
			case sign == 0:
				share += 0.5
			}
		}
	}
	return share / float64(len(early)*(len(early)-1)/2), len(early)
}

// doubt is 0 where the sweep's ends bear forecasts out and 1 where they do not: by whether chosen trials win, and by whether early costs rank as
// late ones do, whichever says less for them.
func (z *freeze) doubt() float64 {
	if z.doubted == nil {
		share, ends := z.agreement()
		counts := float64(max(ends-1, 0))
		agreed := (share*counts + supposedAgreement*supposedEnds) / (counts + supposedEnds)
		z.doubted = new(max(z.trust().doubt(), min(max((agreeing-agreed)/(agreeing-apart), 0), 1)))
	}
	return *z.doubted
}

// keptShare is the part of all steps that kept trials are to get.
func (z *freeze) keptShare() float64 { return leastKept + (1-leastKept)*z.doubt() }

// grounds says what part of the steps kept trials get, and why.
func (z *freeze) grounds() string {
	says := fmt.Sprintf("the %.0f %% of steps that go to such trials", 100*z.keptShare())
	if share, ends := z.agreement(); ends > 0 {
		says += fmt.Sprintf(": of %s that got to the end %.0f %% of pairs were ranked at a quarter of training as at the end", count(ends, "trial"), 100*share)
	}
	if t := z.trust(); t.kept > 0 && t.chosen > 0 {
		says += fmt.Sprintf("; chosen ones were better than kept ones in %.3g of %s", t.won, count(t.kept*t.chosen, "pair"))
	}
	return says
}

// owing reports whether the next new trial is one to keep.
func (z *freeze) owing() bool { return float64(z.Given) <= z.keptShare()*float64(z.Spent) }

// entrance is the look at which kept trials must stand among the better ones.
func (z *freeze) entrance() int {
	return slices.IndexFunc(z.Looks, func(look int64) bool { return entranceTo*look >= z.steps() })
}

// keep trains a kept trial on, unless it stands in the worse part of all trials at its entrance. What begins worst rarely ends best, even where
// standings later mean little, and costs little there.
func (z *freeze) keep(w *frozen, at, says string) {
	k := len(w.Costs) - 1
	if k < z.entrance() || w.Entered || k == len(z.Looks)-1 {
		z.train(w.Trial, z.next(w.Step), at+"kept: drawn at random, and trained to the end; "+says)
		return
	}
	place, of := z.standing(w, k)
	if room := int(math.Ceil(enters * float64(of))); place > room {
		w.Kept = false
		z.Given -= z.steps() - w.Step
		z.running--
		z.pause(w.Trial, at+fmt.Sprintf("kept no longer: number %d of %d here, of which %d are; %s", place, of, room, says))
		z.spare()
		return
	}
	w.Entered = true
	z.train(w.Trial, z.next(w.Step), at+fmt.Sprintf("kept: number %d of %d here; %s", place, of, says))
}

// standing is the place of a trial among all with a cost at a look, from 1, and how many those are.
func (z *freeze) standing(w *frozen, k int) (place, of int) {
	place = 1
	see := func(o *frozen) {
		if k >= len(o.Costs) || math.IsNaN(o.Costs[k]) {
			return
		}
		of++
		if o.Trial != w.Trial && ahead(entry{o.Costs[k], o.Trial}, entry{w.Costs[k], w.Trial}) {
			place++
		}
	}
	for _, o := range z.live {
		see(o)
	}
	for i := range z.Past {
		see(&z.Past[i])
	}
	return place, of
}
