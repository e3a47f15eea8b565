package performancecurve_test

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/registry"
	"github.com/outbid-dev/outbid/orchestrator/tuner/tunertest"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

func performance(p *outbidv1.PerformanceCurve) *outbidv1.Tuner {
	return &outbidv1.Tuner{Kind: &outbidv1.Tuner_PerformanceCurve{PerformanceCurve: p}}
}

// said counts actions by words in their reasons.
func said(result *tunertest.Result) map[string]int {
	words := map[string]int{}
	for _, step := range result.Steps {
		for _, a := range step.Actions {
			reason, kind := "", ""
			switch a := a.(type) {
			case tuner.Train:
				reason, kind = a.Reason, "train "
			case tuner.Pause:
				reason, kind = a.Reason, "pause "
			case tuner.End:
				reason, kind = a.Reason, "end "
			}
			for _, word := range []string{
				"promising", "opportunistic", "poor", "forecasts were checked", "intervals held", "kept", "its turn", "trained for all",
			} {
				if strings.Contains(reason, word) {
					words[kind+word]++
				}
			}
		}
	}
	return words
}

// level is the final value of a trial's synthetic curve. Good values are rare.
func level(t tuner.Trial) float64 { return 1 - math.Pow(tunertest.RandomMetric(7, t), 0.25) }

// made returns a point of a noisy curve that falls to the trial's level.
func made(t tuner.Trial, step int64) float64 {
	noise := rand.New(rand.NewPCG(uint64(t), uint64(step))).NormFloat64()
	return level(t) + (2-level(t))*math.Exp(-float64(step)/15) + 0.02*noise
}

// Once forecasts have been checked, they classify the trials: poor ones end, and most steps go to the good ones.
func TestTrialsAreClassedOnceForecastsHold(t *testing.T) {
	t.Parallel()
	s := tunertest.Spec(performance(&outbidv1.PerformanceCurve{MaxSteps: 100}), tunertest.Trials(200), tunertest.Minimise)
	whole, err := registry.New(s)
	if err != nil {
		t.Fatal(err)
	}
	result, err := tunertest.Drive(whole, tunertest.Options{
		Workers: 8, ReportEvery: 1, Metric: func(t tuner.Trial, _ tuner.Config, step int64) float64 { return made(t, step) },
	})
	if err != nil {
		t.Fatal(err)
	}
	words := said(result)
	for _, word := range []string{
		"train promising", "train opportunistic", "pause opportunistic", "end poor", "train kept", "train its turn",
		"end trained for all", "train forecasts were checked",
	} {
		if words[word] == 0 {
			t.Errorf("no %q among %v", word, words)
		}
	}
	best, found, steps := math.Inf(1), math.Inf(1), int64(0)
	for i, f := range result.Trials {
		best = min(best, level(tuner.Trial(i)))
		if f.Completed {
			found = min(found, level(tuner.Trial(i)))
		}
		steps += f.Step
	}
	if found > best+0.02 {
		t.Errorf("the best trial ends at %.3f, and the best that was trained to the end at %.3f", best, found)
	}
	if steps > 200*100*6/10 {
		t.Errorf("%d of %d steps were trained: %v", steps, 200*100, words)
	}
	if out := whole.Outlook(); out.Steps != steps || out.Trials != 200 {
		t.Errorf("done, but the outlook is %+v; %d steps were trained", out, steps)
	}
}

// If curves behave more and more unlike any forecast, the rank rule decides.
func TestTheRankRuleStandsInWhereForecastsFail(t *testing.T) {
	t.Parallel()
	s := tunertest.Spec(performance(&outbidv1.PerformanceCurve{MaxSteps: 40}), tunertest.Trials(60), tunertest.Minimise)
	whole, err := registry.New(s)
	if err != nil {
		t.Fatal(err)
	}
	result, err := tunertest.Drive(whole, tunertest.Options{
		Workers: 4, ReportEvery: 1, Metric: func(t tuner.Trial, _ tuner.Config, step int64) float64 {
			turns := float64(step*step) / 1600 * math.Pow(1.4, float64(t))
			if t%2 == 0 {
				turns = -turns
			}
			return made(t, step) + turns
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	words := said(result)
	if words["end intervals held"] == 0 || words["train intervals held"] == 0 {
		t.Errorf("the rank rule did not stand in: %v", words)
	}
	if words["end poor"] > words["end intervals held"] {
		t.Errorf("forecasts that fail ended more trials than the rank rule: %v", words)
	}
}

// A target that no trial approaches makes every trial poor; an easy target makes no trial poor.
func TestChancesAreThoseOfTheTarget(t *testing.T) {
	t.Parallel()
	for target, wantPoor := range map[float64]bool{0.001: true, 1.5: false} {
		s := tunertest.Spec(performance(&outbidv1.PerformanceCurve{MaxSteps: 100, Keep: new(0.2)}), tunertest.Trials(60), tunertest.Minimise)
		s.Spec.Limits.Target = &target
		whole, err := registry.New(s)
		if err != nil {
			t.Fatal(err)
		}
		result, err := tunertest.Drive(whole, tunertest.Options{
			Workers: 4, ReportEvery: 1,
			Metric: func(t tuner.Trial, _ tuner.Config, step int64) float64 { return made(t, step) },
		})
		if err != nil {
			t.Fatal(err)
		}
		if words := said(result); (words["end poor"] > 5) != wantPoor {
			t.Errorf("with the target %v: %v", target, words)
		}
	}
}
