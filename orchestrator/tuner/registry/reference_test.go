package registry_test

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/space"
	"github.com/outbid-dev/outbid/orchestrator/tuner/tunertest"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// plainASHA is get_job of Li et al. (2020), algorithm 2, in the simplest form: sorted lists, searched completely each
// time. The one difference is documented in ashaPromote: a rung promotes floor(|rung|/eta) trials in total.
type plainASHA struct {
	eta    int
	levels []int64
	rungs  [][]scored
	rung   []int
	// promoted are the trials that continued from their rung; out are those that exited or reported NaN.
	promoted map[[2]int]bool
	out      map[tuner.Trial]bool
}

type scored struct {
	trial  tuner.Trial
	metric float64
}

// job returns the trial to promote, or -1 for a new one.
func (p *plainASHA) job() tuner.Trial {
	for k := len(p.rungs) - 2; k >= 0; k-- {
		if t := p.promotable(k); t >= 0 {
			return t
		}
	}
	return -1
}

func (p *plainASHA) promotable(k int) tuner.Trial {
	size := len(p.rungs[k])
	done := 0
	for key := range p.promoted {
		if key[1] == k {
			done++
		}
	}
	if done >= size/p.eta {
		return -1
	}
	list := slices.Clone(p.rungs[k])
	slices.SortFunc(list, func(a, b scored) int {
		switch {
		case tuner.Better(a.metric, b.metric, true):
			return -1
		case tuner.Better(b.metric, a.metric, true):
			return 1
		default:
			return cmp.Compare(a.trial, b.trial)
		}
	})
	for _, s := range list {
		if math.IsNaN(s.metric) || p.out[s.trial] || p.promoted[[2]int{int(s.trial), k}] {
			continue
		}
		return s.trial
	}
	return -1
}

func (p *plainASHA) promote(t tuner.Trial) {
	p.promoted[[2]int{int(t), p.rung[t]}] = true
	p.rung[t]++
}

func (p *plainASHA) observe(s tunertest.Step) error {
	switch e := s.Event.(type) {
	case tuner.Ask:
		return p.asked(s.Actions)
	case tuner.Reached:
		k := p.rung[e.Trial]
		p.rungs[k] = append(p.rungs[k], scored{e.Trial, e.Metric})
		train := slices.ContainsFunc(s.Actions, func(a tuner.Action) bool { _, ok := a.(tuner.Train); return ok })
		if want := k < len(p.levels)-1 && p.promotable(k) == e.Trial; train != want {
			return fmt.Errorf("trained on: %t, not %t", train, want)
		}
		if train {
			p.promote(e.Trial)
		}
	case tuner.Exited:
		p.rungs[p.rung[e.Trial]] = append(p.rungs[p.rung[e.Trial]], scored{e.Trial, math.NaN()})
		p.out[e.Trial] = true
	}
	return nil
}

func (p *plainASHA) asked(actions []tuner.Action) error {
	for _, a := range actions {
		want := p.job()
		switch a := a.(type) {
		case tuner.Create:
			if want >= 0 {
				return fmt.Errorf("created a trial instead of promoting %d", want)
			}
			p.rung = append(p.rung, 0)
		case tuner.Train:
			if a.Trial != want {
				return fmt.Errorf("promoted %d instead of %d", a.Trial, want)
			}
			p.promote(a.Trial)
		}
	}
	return nil
}

func TestASHAAgreesWithAlgorithm2(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		plain := &plainASHA{
			eta: rapid.IntRange(2, 4).Draw(t, "eta"), promoted: map[[2]int]bool{}, out: map[tuner.Trial]bool{},
		}
		top := int64(1)
		for range rapid.IntRange(1, 4).Draw(t, "rungs") {
			plain.levels = append(plain.levels, top)
			plain.rungs = append(plain.rungs, nil)
			top *= int64(plain.eta)
		}
		o := anyWeather(t)
		o.Observe = plain.observe
		set := &outbidv1.Asha{MaxSteps: plain.levels[len(plain.levels)-1], Eta: int32(plain.eta)}
		drive(t, tunertest.Spec(asha(set), tunertest.Trials(int32(rapid.IntRange(1, 120).Draw(t, "trials")))), o)
	})
}

// plainMedian is the rule of Golovin et al. (2017) over all reports.
type plainMedian struct {
	grace   int64
	least   int
	reports map[tuner.Trial][]tuner.Reported
}

// at returns the running average and the best of a trial up to its first report at or past a step.
func (p *plainMedian) at(t tuner.Trial, step int64) (average, best float64, ok bool) {
	sum, best := 0.0, math.Inf(-1)
	for i, r := range p.reports[t] {
		sum += r.Metric
		best = max(best, r.Metric)
		if r.Step >= step {
			return sum / float64(i+1), best, true
		}
	}
	return 0, 0, false
}

func (p *plainMedian) shouldStop(t tuner.Trial, from, to int64) bool {
	step := int64(0)
	for s := p.grace; s <= to; s *= 2 {
		if s > from {
			step = s
		}
	}
	_, best, ok := p.at(t, step)
	if step == 0 || !ok {
		return false
	}
	var others []float64
	for other := range p.reports {
		if average, _, ok := p.at(other, step); ok && other != t {
			others = append(others, average)
		}
	}
	if len(others) < p.least {
		return false
	}
	slices.Sort(others)
	mid := others[len(others)/2]
	if len(others)%2 == 0 {
		mid = mid/2 + others[len(others)/2-1]/2
	}
	return best < mid
}

func TestMedianStoppingAgreesWithThePlainRule(t *testing.T) {
	t.Parallel()
	stopped := 0
	rapid.Check(t, func(t *rapid.T) {
		plain := &plainMedian{
			grace: rapid.Int64Range(1, 5).Draw(t, "grace"), least: rapid.IntRange(1, 5).Draw(t, "least"),
			reports: map[tuner.Trial][]tuner.Reported{},
		}
		set := &outbidv1.MedianStopping{MaxSteps: 40, GraceSteps: plain.grace, MinTrials: int32(plain.least)}
		o := anyWeather(t)
		o.NaN, o.Late, o.ReportEvery = 0, 0, rapid.Int64Range(1, 7).Draw(t, "report every")
		o.Metric = func(n tuner.Trial, _ tuner.Config, step int64) float64 {
			// Halves of integers: sums are exact in any order.
			return math.Floor(20*tunertest.RandomMetric(o.Seed+uint64(step), n))/2 + float64(n%5)
		}
		o.Observe = func(s tunertest.Step) error {
			if e, ok := s.Event.(tuner.Reached); ok {
				plain.reports[e.Trial] = append(plain.reports[e.Trial], tuner.Reported{Step: e.Step, Metric: e.Metric})
			}
			e, ok := s.Event.(tuner.Reported)
			if !ok {
				return nil
			}
			from := int64(0)
			if list := plain.reports[e.Trial]; len(list) > 0 {
				from = list[len(list)-1].Step
			}
			plain.reports[e.Trial] = append(plain.reports[e.Trial], e)
			stop := len(s.Actions) > 0
			if want := plain.shouldStop(e.Trial, from, e.Step); stop != want {
				return fmt.Errorf("stopped: %t, not %t", stop, want)
			}
			if stop {
				stopped++
			}
			return nil
		}
		drive(t, tunertest.Spec(median(set), tunertest.Trials(40)), o)
	})
	// A single sweep may stop nothing, because each trial may be better than those before it.
	if stopped == 0 {
		t.Error("nothing was stopped")
	}
}

// plainPBT checks truncation selection against the newest metrics of all members.
type plainPBT struct {
	share  float64
	newest map[tuner.Trial]float64
	// copied members have not reached a target since they copied another.
	ended, copied map[tuner.Trial]bool
	space         *space.Space
	clones        int
}

func (p *plainPBT) observe(s tunertest.Step) error {
	switch e := s.Event.(type) {
	case tuner.Exited:
		delete(p.newest, e.Trial)
		delete(p.copied, e.Trial)
		p.ended[e.Trial] = true
	case tuner.Reached:
		p.newest[e.Trial] = e.Metric
		delete(p.copied, e.Trial)
		if len(s.Actions) == 0 {
			return fmt.Errorf("no answer")
		}
	}
	for _, action := range s.Actions {
		switch a := action.(type) {
		case tuner.End:
			p.ended[a.Trial] = true
		case tuner.Train:
			// A member that waited was compared earlier, when the members that it could copy were different.
			e, ok := s.Event.(tuner.Reached)
			if top := p.sources(a.Trial); ok && e.Trial == a.Trial && len(top) > 0 {
				return fmt.Errorf("%d trains on, but could copy %v", a.Trial, top)
			}
		case tuner.Clone:
			p.clones++
			if top := p.sources(a.Trial); !slices.Contains(top, a.Source) {
				return fmt.Errorf("%d copied %d, which is not one of %v", a.Trial, a.Source, top)
			}
			delete(p.newest, a.Trial)
			p.copied[a.Trial] = true
			if err := p.space.Check(a.Config); err != nil {
				return err
			}
		}
	}
	return nil
}

// sources returns the members that a member in the bottom share can copy; none if it is not in the bottom share.
func (p *plainPBT) sources(t tuner.Trial) []tuner.Trial {
	order := slices.SortedFunc(mapsKeys(p.newest), func(a, b tuner.Trial) int {
		switch {
		case tuner.Better(p.newest[a], p.newest[b], true):
			return -1
		case tuner.Better(p.newest[b], p.newest[a], true):
			return 1
		default:
			return cmp.Compare(a, b)
		}
	})
	among := len(order) + len(p.copied)
	n := max(1, int(p.share*float64(among)))
	if len(order) < 2 || slices.Index(order, t) < among-n {
		return nil
	}
	return slices.DeleteFunc(order[:min(n, len(order))], func(o tuner.Trial) bool {
		return p.ended[o] || !tuner.Better(p.newest[o], p.newest[t], true)
	})
}

func mapsKeys(m map[tuner.Trial]float64) func(func(tuner.Trial) bool) {
	return func(yield func(tuner.Trial) bool) {
		for t := range m {
			if !yield(t) {
				return
			}
		}
	}
}

func TestPBTSelectsByTruncation(t *testing.T) {
	t.Parallel()
	clones := 0
	rapid.Check(t, func(t *rapid.T) {
		set := &outbidv1.Pbt{
			MaxSteps: 50, Interval: rapid.Int64Range(1, 20).Draw(t, "interval"),
			Population: int32(rapid.IntRange(2, 30).Draw(t, "population")),
			Quantile:   rapid.Float64Range(0.01, 0.5).Draw(t, "quantile"),
		}
		s := tunertest.Spec(pbt(set))
		compiled, err := space.Compile(s.Spec.GetSpace(), nil)
		if err != nil {
			t.Fatal(err)
		}
		plain := &plainPBT{
			share: set.Quantile, newest: map[tuner.Trial]float64{}, ended: map[tuner.Trial]bool{},
			copied: map[tuner.Trial]bool{}, space: compiled,
		}
		o := anyWeather(t)
		o.Observe = plain.observe
		result := drive(t, s, o)
		if o.Fail == 0 && full(result, 50) != int(set.Population) {
			t.Errorf("%d of %d members were trained to the end", full(result, 50), set.Population)
		}
		clones += plain.clones
	})
	if clones == 0 { // a run may end without a copy, but not all of them
		t.Error("nobody copied anybody")
	}
}
