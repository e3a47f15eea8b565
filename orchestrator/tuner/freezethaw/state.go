package freezethaw

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/curve/population"
	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/rank"
	"github.com/outbid-dev/outbid/orchestrator/tuner/saturate"
	"github.com/outbid-dev/outbid/orchestrator/tuner/singlestage"
)

// liveTrials holds the trials that have not ended.
type liveTrials map[tuner.Trial]*frozen

// numbers returns the trials' numbers, sorted.
func (l liveTrials) numbers() []tuner.Trial { return slices.Sorted(maps.Keys(l)) }

// index returns the position of a trial among the live trials.
func (l liveTrials) index(t tuner.Trial) int {
	i, _ := slices.BinarySearch(l.numbers(), t)
	return i
}

// state is the part of a snapshot besides the trials.
type state struct {
	// Looks are the steps after which trials are judged; the last one is the end.
	Looks []int64
	// Live are the trials that have not ended, by number. Past are the most recent trials that ended.
	Live, Past []frozen
	// Scale is what was learned of configurations, Beliefs how well ranks were found to predict.
	Scale   population.Scale
	Beliefs population.Beliefs
	// Best is the trial with the best cost seen, if Seen is above 0.
	Best rank.Entry
	Seen int
	// Reaches is the number of looks that trials reached, over all trials.
	Reaches int
	Ended   int
	Worked  int64
	// Spent is the number of steps that all trials trained, Given the number of steps assigned to kept trials.
	Spent, Given int64
	// Done is the step where trials completed before an extension.
	Done int64
	Flat singlestage.State
}

// A frozen is the state of a trial.
type frozen struct {
	Trial tuner.Trial
	// X is its configuration in the unit cube, or nil if the model does not learn from it.
	X []float64
	// Costs are the costs at the looks that it reached, NaN where none was known.
	Costs []float64
	// Newest is the newest metric if Heard is set. Lost is set if it was NaN.
	Newest      float64
	Heard, Lost bool
	// Step is the step of the last look.
	Step int64
	// Kept is set if the trial is trained to the end regardless of its forecast.
	Kept bool
}

// keptShare returns the part of all steps that kept trials get.
func (s *state) keptShare() float64 {
	return max(leastKept, doubtKept*min(1, 2*(1-s.Beliefs.Trust())))
}

// keptReason explains why a trial is kept.
func (s *state) keptReason() string {
	return fmt.Sprintf("kept, one of the %.0f %% of steps that go to trials that are trained to the end whatever is said of them", 100*s.keptShare())
}

// addPast adds a trial that ended after some steps to Past.
func (s *state) addPast(w *frozen, worked int64) {
	s.Ended++
	s.Worked = saturate.Plus(s.Worked, max(0, worked))
	if len(s.Past) >= maxPast {
		s.Past = s.Past[len(s.Past)-maxPast+1:]
	}
	s.Past = append(s.Past, *w)
}

// takePast returns the state of a trial that completed at a step and continues.
func (s *state) takePast(t tuner.Trial, step int64) *frozen {
	s.Ended--
	s.Worked = max(0, s.Worked-step)
	for i, w := range s.Past {
		if w.Trial == t {
			s.Past = append(s.Past[:i:i], s.Past[i+1:]...)
			return &w
		}
	}
	w := &frozen{Trial: t, Step: step}
	for _, look := range s.Looks {
		if look <= step {
			w.Costs = append(w.Costs, math.NaN())
		}
	}
	return w
}

// curves returns the known costs of all trials: live trials first, by number.
func (s *state) curves(live liveTrials) []population.Curve {
	var curves []population.Curve
	for _, t := range live.numbers() {
		w := live[t]
		curves = append(curves, population.Curve{X: w.X, Costs: w.Costs})
	}
	for _, w := range s.Past {
		curves = append(curves, population.Curve{X: w.X, Costs: w.Costs})
	}
	return curves
}

// tried returns the coordinates of all configurations that the model learns from. Training one again would teach it
// nothing.
func (s *state) tried(live liveTrials) map[string]bool {
	tried := map[string]bool{}
	for _, w := range live {
		tried[spot(w.X)] = true
	}
	for i := range s.Past {
		tried[spot(s.Past[i].X)] = true
	}
	return tried
}

// leaders returns the configurations of the trials with the best newest costs.
func (s *state) leaders(live liveTrials) [][]float64 {
	const most = 4
	type leader struct {
		rank.Entry
		x []float64
	}
	var all []leader
	add := func(w *frozen) {
		if n := len(w.Costs); n > 0 && w.X != nil && !math.IsNaN(w.Costs[n-1]) {
			all = append(all, leader{rank.Entry{Cost: w.Costs[n-1], Trial: w.Trial}, w.X})
		}
	}
	for _, w := range live {
		add(w)
	}
	for i := range s.Past {
		add(&s.Past[i])
	}
	slices.SortFunc(all, func(a, b leader) int { return cmp.Or(cmp.Compare(a.Cost, b.Cost), cmp.Compare(a.Trial, b.Trial)) })
	var xs [][]float64
	for _, l := range all[:min(most, len(all))] {
		xs = append(xs, l.x)
	}
	return xs
}
