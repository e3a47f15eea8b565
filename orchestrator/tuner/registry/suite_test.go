package registry_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/tunertest"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// sweeps returns settings for every built-in tuner, each with an end.
func sweeps() map[string]func() tuner.Settings {
	make1 := func(t *outbidv1.Tuner, change ...func(*outbidv1.SweepSpec)) func() tuner.Settings {
		return func() tuner.Settings { return tunertest.Spec(t, change...) }
	}
	return map[string]func() tuner.Settings{
		"random":             make1(&outbidv1.Tuner{Kind: &outbidv1.Tuner_Random{Random: &outbidv1.RandomSearch{MaxSteps: 9}}}, tunertest.Trials(30)),
		"random code":        make1(&outbidv1.Tuner{Kind: &outbidv1.Tuner_Random{Random: &outbidv1.RandomSearch{}}}, tunertest.Trials(30)),
		"grid":               make1(&outbidv1.Tuner{Kind: &outbidv1.Tuner_Grid{Grid: &outbidv1.GridSearch{MaxSteps: 9, Points: 20}}}),
		"sobol":              make1(&outbidv1.Tuner{Kind: &outbidv1.Tuner_Sobol{Sobol: &outbidv1.SobolSearch{MaxSteps: 9}}}, tunertest.Trials(30)),
		"bayes":              make1(&outbidv1.Tuner{Kind: &outbidv1.Tuner_Bayes{Bayes: &outbidv1.BayesianSearch{MaxSteps: 9}}}, tunertest.Trials(30)),
		"halving bayes":      make1(halving(&outbidv1.SuccessiveHalving{MaxSteps: 9, Sampler: "bayes"})),
		"asha bayes":         make1(asha(&outbidv1.Asha{MaxSteps: 27, Sampler: "bayes"}), tunertest.Trials(15)),
		"asha stop bayes":    make1(asha(&outbidv1.Asha{MaxSteps: 27, Form: "stop", Sampler: "bayes"}), tunertest.Trials(12), tunertest.Minimise),
		"median bayes":       make1(median(&outbidv1.MedianStopping{MaxSteps: 20, Sampler: "bayes"}), tunertest.Trials(12)),
		"auto":               make1(auto(&outbidv1.Auto{}), tunertest.Trials(20)),
		"auto steps":         make1(auto(&outbidv1.Auto{MaxSteps: 30}), tunertest.Trials(20), tunertest.Minimise),
		"auto random":        make1(auto(&outbidv1.Auto{Sampler: "random"}), tunertest.Trials(20)),
		"halving":            make1(halving(&outbidv1.SuccessiveHalving{MaxSteps: 27, Sampler: "sobol"})),
		"halving min":        make1(halving(&outbidv1.SuccessiveHalving{MaxSteps: 20, Eta: 2, Trials: 45, MinSteps: 2}), tunertest.Minimise),
		"hyperband":          make1(hyperband(&outbidv1.Hyperband{MaxSteps: 27})),
		"hyperband x2":       make1(hyperband(&outbidv1.Hyperband{MaxSteps: 16, Eta: 2, Iterations: 2}), tunertest.Minimise),
		"hyperband cut":      make1(hyperband(&outbidv1.Hyperband{MaxSteps: 100, MinSteps: 3}), tunertest.Trials(31)),
		"asha":               make1(asha(&outbidv1.Asha{MaxSteps: 27}), tunertest.Trials(60)),
		"asha brackets":      make1(asha(&outbidv1.Asha{MaxSteps: 30, Eta: 2, Brackets: 3, Sampler: "sobol"}), tunertest.Trials(61), tunertest.Minimise),
		"asha stop":          make1(asha(&outbidv1.Asha{MaxSteps: 27, Form: "stop"}), tunertest.Trials(60)),
		"asha stop brackets": make1(asha(&outbidv1.Asha{MaxSteps: 27, Form: "stop", Brackets: 2}), tunertest.Trials(60), tunertest.Minimise),
		"median":             make1(median(&outbidv1.MedianStopping{MaxSteps: 20}), tunertest.Trials(40)),
		"median grace":       make1(median(&outbidv1.MedianStopping{MaxSteps: 50, GraceSteps: 3, MinTrials: 5, Sampler: "sobol"}), tunertest.Trials(40), tunertest.Minimise),
		"performance":        make1(performance(&outbidv1.PerformanceCurve{MaxSteps: 40}), tunertest.Trials(40)),
		"performance target": make1(performance(&outbidv1.PerformanceCurve{MaxSteps: 60, Interval: 2, GraceSteps: 7, Poor: 0.3, Eta: 2, Sampler: "sobol"}), tunertest.Trials(30), func(s *outbidv1.SweepSpec) { s.Limits.Target = new(0.95) }),
		"performance min":    make1(performance(&outbidv1.PerformanceCurve{MaxSteps: 25, Interval: 1, Keep: new(0.5)}), tunertest.Trials(50), tunertest.Minimise),
		"freeze":             make1(freeze(&outbidv1.FreezeThaw{MaxSteps: 20}), tunertest.Trials(10)),
		"freeze target":      make1(freeze(&outbidv1.FreezeThaw{MaxSteps: 60, MinSteps: 7, Poor: 0.3, Sampler: "sobol"}), tunertest.Trials(8), func(s *outbidv1.SweepSpec) { s.Limits.Target = new(0.95) }),
		"freeze min":         make1(freeze(&outbidv1.FreezeThaw{MaxSteps: 25, Sampler: "random"}), tunertest.Trials(8), tunertest.Minimise),
		"pbt":                make1(pbt(&outbidv1.Pbt{MaxSteps: 40, Interval: 5})),
		"pbt large":          make1(pbt(&outbidv1.Pbt{MaxSteps: 33, Interval: 4, Population: 30, Quantile: 0.4}), tunertest.Minimise),
	}
}

func median(m *outbidv1.MedianStopping) *outbidv1.Tuner {
	return &outbidv1.Tuner{Kind: &outbidv1.Tuner_Median{Median: m}}
}

func auto(a *outbidv1.Auto) *outbidv1.Tuner {
	return &outbidv1.Tuner{Kind: &outbidv1.Tuner_Auto{Auto: a}}
}

func performance(p *outbidv1.PerformanceCurve) *outbidv1.Tuner {
	return &outbidv1.Tuner{Kind: &outbidv1.Tuner_PerformanceCurve{PerformanceCurve: p}}
}

func freeze(p *outbidv1.FreezeThaw) *outbidv1.Tuner {
	return &outbidv1.Tuner{Kind: &outbidv1.Tuner_FreezeThaw{FreezeThaw: p}}
}

func pbt(p *outbidv1.Pbt) *outbidv1.Tuner { return &outbidv1.Tuner{Kind: &outbidv1.Tuner_Pbt{Pbt: p}} }

func TestConformance(t *testing.T) {
	t.Parallel()
	for name, settings := range sweeps() {
		tunertest.Run(t, name, settings)
	}
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
