package registry_test

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/registry"
	"github.com/outbid-dev/outbid/orchestrator/tuner/tunertest"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// A place is a rung of a bracket.
type place struct {
	bracket int
	level   int64
}

// A ledger counts, event by event, the trials that reach a rung and those that continue from it.
type ledger struct {
	eta int
	// arrived counts trials that reached the level or exited on the way, gone those that continued from it.
	arrived, gone map[place]int
	bracket       []int
	target        []int64
	wentOn        map[string]bool
	// planned, if set, are the sizes of the rungs: trials that failed below a rung count as its worst.
	planned map[place]int
}

func newLedger(eta int) *ledger {
	return &ledger{eta: eta, arrived: map[place]int{}, gone: map[place]int{}, wentOn: map[string]bool{}}
}

// observe checks after every event that no rung has promoted more than 1/eta of the trials that it has seen, and no
// trial twice.
func (l *ledger) observe(s tunertest.Step) error {
	switch e := s.Event.(type) {
	case tuner.Reached:
		l.arrived[place{l.bracket[e.Trial], e.Step}]++
	case tuner.Exited:
		l.arrived[place{l.bracket[e.Trial], l.target[e.Trial]}]++
	}
	for _, a := range s.Actions {
		switch a := a.(type) {
		case tuner.Create:
			l.bracket = append(l.bracket, a.Bracket)
			l.target = append(l.target, a.UntilStep)
		case tuner.Train:
			from := place{l.bracket[a.Trial], l.target[a.Trial]}
			key := fmt.Sprint(a.Trial, from)
			if l.wentOn[key] {
				return fmt.Errorf("trial %d went on from %+v twice", a.Trial, from)
			}
			l.wentOn[key] = true
			l.target[a.Trial] = a.UntilStep
			if l.gone[from]++; l.gone[from] > max(l.arrived[from], l.planned[from])/l.eta {
				return fmt.Errorf("%d went on from %+v, which %d got to", l.gone[from], from, l.arrived[from])
			}
		}
	}
	return nil
}

// anyWeather draws the options of a simulation, with or without failures.
func anyWeather(t *rapid.T) tunertest.Options {
	o := tunertest.Options{
		Seed:    rapid.Uint64().Draw(t, "seed"),
		Workers: rapid.IntRange(1, 40).Draw(t, "workers"),
	}
	if rapid.Bool().Draw(t, "stormy") {
		o.NaN, o.Fail, o.Quit, o.Late = 0.05, 0.05, 0.02, 0.05
		o.ReportEvery = rapid.Int64Range(1, 5).Draw(t, "report every")
	}
	return o
}

func drive(t *rapid.T, s tuner.Settings, o tunertest.Options) *tunertest.Result {
	made, err := registry.New(s)
	if err != nil {
		t.Fatal(err)
	}
	result, err := tunertest.Drive(made, o)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// full counts the trials that reached a step.
func full(r *tunertest.Result, step int64) int {
	n := 0
	for _, f := range r.Trials {
		if len(f.Reached) > 0 && f.Reached[len(f.Reached)-1] == step {
			n++
		}
	}
	return n
}

func TestASHAPromotesNeverMoreThanOneInEtaAndNeverTwice(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		eta := rapid.IntRange(2, 4).Draw(t, "eta")
		set := &outbidv1.Asha{
			MaxSteps: rapid.Int64Range(1, 100).Draw(t, "max"), Eta: int32(eta), MinSteps: 1,
		}
		n := rapid.IntRange(1, 150).Draw(t, "trials")
		o := anyWeather(t)
		o.Observe = newLedger(eta).observe
		result := drive(t, tunertest.Spec(asha(set), tunertest.Trials(int32(n))), o)
		if o.Fail > 0 {
			return
		}
		want := n
		for level := int64(eta); level <= set.MaxSteps; level *= int64(eta) {
			want /= eta
		}
		if got := full(result, set.MaxSteps); got != want {
			t.Fatalf("%d of %d trials were trained to the end, not %d", got, n, want)
		}
	})
}

func TestASHAWithBracketsKeepsThePromiseInEachBracket(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		set := &outbidv1.Asha{MaxSteps: 81, Brackets: int32(rapid.IntRange(1, 5).Draw(t, "brackets"))}
		s := tunertest.Spec(asha(set), tunertest.Trials(int32(rapid.IntRange(1, 300).Draw(t, "trials"))))
		o := anyWeather(t)
		o.Observe = newLedger(3).observe
		result := drive(t, s, o)
		if o.Fail > 0 {
			return
		}
		checkOutlook(t, s, result)
	})
}

func plannedSizes(t *rapid.T, s tuner.Settings) map[place]int {
	made, err := registry.New(s)
	if err != nil {
		t.Fatal(err)
	}
	sizes := map[place]int{}
	for _, r := range made.Outlook().Rungs {
		sizes[place{r.Bracket, r.UntilStep}] = r.Trials
	}
	return sizes
}

// checkOutlook compares the outlook's rungs with those that were run.
func checkOutlook(t *rapid.T, s tuner.Settings, result *tunertest.Result) {
	made, err := registry.New(s)
	if err != nil {
		t.Fatal(err)
	}
	outlook := made.Outlook()
	entered := map[place]int{}
	for _, f := range result.Trials {
		for _, target := range f.Targets {
			entered[place{f.Create.Bracket, target}]++
		}
	}
	promised := map[place]int{}
	for _, r := range outlook.Rungs {
		promised[place{r.Bracket, r.UntilStep}] += r.Trials
	}
	for p, n := range promised {
		if entered[p] != n {
			t.Errorf("%d trials entered %+v, not %d", entered[p], p, n)
		}
	}
	if len(result.Trials) != outlook.Trials || len(entered) != len(promised) {
		t.Errorf("%d trials in %d rungs, not %d in %d", len(result.Trials), len(entered), outlook.Trials, len(promised))
	}
}

func TestStopOnlyASHALetsOnlyTheFirstTrialsOfARungGoOnUnjudged(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		eta := rapid.IntRange(2, 4).Draw(t, "eta")
		set := &outbidv1.Asha{MaxSteps: 27, Eta: int32(eta), Form: "stop"}
		s := tunertest.Spec(asha(set), tunertest.Trials(int32(rapid.IntRange(1, 150).Draw(t, "trials"))))
		seen := map[int64][]float64{}
		reached := map[tuner.Trial]tuner.Reached{}
		o := anyWeather(t)
		exits := map[int64]int{}
		target := map[tuner.Trial]int64{}
		o.Observe = func(step tunertest.Step) error {
			switch e := step.Event.(type) {
			case tuner.Reached:
				seen[e.Step] = append(seen[e.Step], e.Metric)
				reached[e.Trial] = e
			case tuner.Exited:
				exits[target[e.Trial]]++
			}
			for _, a := range step.Actions {
				switch a := a.(type) {
				case tuner.Create:
					target[tuner.Trial(len(target))] = a.UntilStep
				case tuner.Train:
					target[a.Trial] = a.UntilStep
					e := reached[a.Trial]
					size := len(seen[e.Step]) + exits[e.Step]
					better := 0
					for _, m := range seen[e.Step] {
						if tuner.Better(m, e.Metric, true) {
							better++
						}
					}
					if size >= eta && better >= size/eta {
						return fmt.Errorf("trial %d goes on as %d of %d", a.Trial, better+1, size)
					}
				case tuner.Pause:
					return fmt.Errorf("trial %d is paused", a.Trial)
				}
			}
			return nil
		}
		drive(t, s, o)
	})
}

func TestHalvingKeepsTheTableOfItsPaper(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		eta := rapid.IntRange(2, 4).Draw(t, "eta")
		maxSteps := rapid.Int64Range(1, 60).Draw(t, "max")
		least := 1
		for level := int64(eta); level <= maxSteps; level *= int64(eta) {
			least *= eta
		}
		set := &outbidv1.SuccessiveHalving{
			MaxSteps: maxSteps, Eta: int32(eta), Trials: int32(least + rapid.IntRange(0, 50).Draw(t, "more")),
		}
		s := tunertest.Spec(halving(set))
		o := anyWeather(t)
		book := newLedger(eta)
		if o.Fail > 0 {
			book.planned = plannedSizes(t, s)
		}
		o.Observe = book.observe
		result := drive(t, s, o)
		if o.Fail > 0 {
			return
		}
		checkOutlook(t, s, result)
		if got := full(result, maxSteps); got != int(set.Trials)/least {
			t.Errorf("%d of %d were trained to the end, not %d", got, set.Trials, int(set.Trials)/least)
		}
	})
}

func TestHalvingDecidesTheSameWhateverTheOrderOfArrivals(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := tunertest.Spec(halving(&outbidv1.SuccessiveHalving{MaxSteps: 27, Trials: 40}))
		coarse := rapid.Float64Range(1, 50).Draw(t, "ties")
		metric := func(n tuner.Trial, _ tuner.Config, _ int64) float64 {
			return float64(int(coarse * tunertest.RandomMetric(7, n)))
		}
		var lengths [2][]int
		for i := range lengths {
			o := tunertest.Options{
				Seed: rapid.Uint64().Draw(t, "seed"), Workers: rapid.IntRange(1, 50).Draw(t, "workers"), Metric: metric,
			}
			for _, f := range drive(t, s, o).Trials {
				lengths[i] = append(lengths[i], len(f.Reached))
			}
		}
		if fmt.Sprint(lengths[0]) != fmt.Sprint(lengths[1]) {
			t.Errorf("rungs reached by each trial differ:\n%v\n%v", lengths[0], lengths[1])
		}
	})
}

func TestHyperbandKeepsItsTableWhateverTheLimit(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		set := &outbidv1.Hyperband{
			MaxSteps: rapid.Int64Range(1, 81).Draw(t, "max"), Eta: int32(rapid.IntRange(2, 4).Draw(t, "eta")),
			Iterations: int32(rapid.IntRange(1, 2).Draw(t, "iterations")),
		}
		s := tunertest.Spec(hyperband(set), tunertest.Trials(int32(rapid.IntRange(0, 200).Draw(t, "limit"))))
		o := anyWeather(t)
		result := drive(t, s, o)
		if o.Fail == 0 {
			checkOutlook(t, s, result)
		}
	})
}

func TestEverySnapshotGoesOnTheSame(t *testing.T) {
	t.Parallel()
	all := sweeps()
	names := sortedKeys(all)
	rapid.Check(t, func(t *rapid.T) {
		settings := all[rapid.SampledFrom(names).Draw(t, "tuner")]
		o := anyWeather(t)
		result := drive(t, settings(), o)
		cut := min(len(result.Steps), 120)
		from := rapid.IntRange(0, len(result.Steps)-cut).Draw(t, "from")
		if err := tunertest.Resume(tunertest.Builtin(), settings(), result.Steps[:from+cut], 1+from/20); err != nil {
			t.Fatal(err)
		}
	})
}
