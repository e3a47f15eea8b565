package tuner_test

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
		return func() tuner.Settings { return spec(t, change...) }
	}
	return map[string]func() tuner.Settings{
		"random":             make1(&outbidv1.Tuner{Kind: &outbidv1.Tuner_Random{Random: &outbidv1.RandomSearch{MaxSteps: 9}}}, trials(30)),
		"random code":        make1(&outbidv1.Tuner{Kind: &outbidv1.Tuner_Random{Random: &outbidv1.RandomSearch{}}}, trials(30)),
		"grid":               make1(&outbidv1.Tuner{Kind: &outbidv1.Tuner_Grid{Grid: &outbidv1.GridSearch{MaxSteps: 9, Points: 20}}}),
		"sobol":              make1(&outbidv1.Tuner{Kind: &outbidv1.Tuner_Sobol{Sobol: &outbidv1.SobolSearch{MaxSteps: 9}}}, trials(30)),
		"bayes":              make1(&outbidv1.Tuner{Kind: &outbidv1.Tuner_Bayes{Bayes: &outbidv1.BayesianSearch{MaxSteps: 9}}}, trials(30)),
		"halving":            make1(halving(&outbidv1.SuccessiveHalving{MaxSteps: 27, Sampler: "sobol"})),
		"halving min":        make1(halving(&outbidv1.SuccessiveHalving{MaxSteps: 20, Eta: 2, Trials: 45, MinSteps: 2}), minimise),
		"hyperband":          make1(hyperband(&outbidv1.Hyperband{MaxSteps: 27})),
		"hyperband x2":       make1(hyperband(&outbidv1.Hyperband{MaxSteps: 16, Eta: 2, Iterations: 2}), minimise),
		"hyperband cut":      make1(hyperband(&outbidv1.Hyperband{MaxSteps: 100, MinSteps: 3}), trials(31)),
		"asha":               make1(asha(&outbidv1.Asha{MaxSteps: 27}), trials(60)),
		"asha brackets":      make1(asha(&outbidv1.Asha{MaxSteps: 30, Eta: 2, Brackets: 3, Sampler: "sobol"}), trials(61), minimise),
		"asha stop":          make1(asha(&outbidv1.Asha{MaxSteps: 27, Form: "stop"}), trials(60)),
		"asha stop brackets": make1(asha(&outbidv1.Asha{MaxSteps: 27, Form: "stop", Brackets: 2}), trials(60), minimise),
		"median":             make1(median(&outbidv1.MedianStopping{MaxSteps: 20}), trials(40)),
		"median grace":       make1(median(&outbidv1.MedianStopping{MaxSteps: 50, GraceSteps: 3, MinTrials: 5, Sampler: "sobol"}), trials(40), minimise),
		"performance":        make1(performance(&outbidv1.PerformanceCurve{MaxSteps: 40}), trials(40)),
		"performance target": make1(performance(&outbidv1.PerformanceCurve{MaxSteps: 60, Interval: 2, GraceSteps: 7, Poor: 0.3, Eta: 2, Sampler: "sobol"}), trials(30), func(s *outbidv1.SweepSpec) { s.Limits.Target = new(0.95) }),
		"performance min":    make1(performance(&outbidv1.PerformanceCurve{MaxSteps: 25, Interval: 1, Keep: new(0.5)}), trials(50), minimise),
		"freeze":             make1(freeze(&outbidv1.FreezeThaw{MaxSteps: 20}), trials(10)),
		"freeze target":      make1(freeze(&outbidv1.FreezeThaw{MaxSteps: 60, MinSteps: 7, Poor: 0.3, Sampler: "sobol"}), trials(8), func(s *outbidv1.SweepSpec) { s.Limits.Target = new(0.95) }),
		"freeze min":         make1(freeze(&outbidv1.FreezeThaw{MaxSteps: 25, Sampler: "random"}), trials(8), minimise),
		"pbt":                make1(pbt(&outbidv1.Pbt{MaxSteps: 40, Interval: 5})),
		"pbt large":          make1(pbt(&outbidv1.Pbt{MaxSteps: 33, Interval: 4, Population: 30, Quantile: 0.4}), minimise),
	}
}

func minimise(s *outbidv1.SweepSpec) { s.Mode = "min" }

func median(m *outbidv1.MedianStopping) *outbidv1.Tuner {
	return &outbidv1.Tuner{Kind: &outbidv1.Tuner_Median{Median: m}}
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
