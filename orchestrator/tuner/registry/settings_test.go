package registry_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/registry"
	"github.com/outbid-dev/outbid/orchestrator/tuner/tunertest"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

func TestBadSettings(t *testing.T) {
	t.Parallel()
	random := func(r *outbidv1.RandomSearch) *outbidv1.Tuner {
		return &outbidv1.Tuner{Kind: &outbidv1.Tuner_Random{Random: r}}
	}
	for _, c := range []struct {
		settings tuner.Settings
		want     string
	}{
		{tuner.Settings{}, "tuner: must be one of random"},
		{tunertest.Spec(nil), "tuner: must be one of random"},
		{tunertest.Spec(&outbidv1.Tuner{Kind: &outbidv1.Tuner_Plugin{}}), "tuner.plugin: not a built-in tuner"},
		{tunertest.Spec(random(&outbidv1.RandomSearch{MaxSteps: -1})), "tuner.random.max_steps: -1 is negative"},
		{tunertest.Spec(random(&outbidv1.RandomSearch{}), tunertest.Trials(-3)), "limits.trials: -3 is negative"},
		{tunertest.Spec(asha(&outbidv1.Asha{})), "tuner.asha.max_steps: is missing; set the number of steps of the longest trials"},
		{tunertest.Spec(asha(&outbidv1.Asha{MaxSteps: 9, Eta: 1})), "tuner.asha.eta: must be at least 2, got 1"},
		{tunertest.Spec(asha(&outbidv1.Asha{MaxSteps: 9, MinSteps: -1})), "tuner.asha.min_steps: must be at least 1, got -1"},
		{tunertest.Spec(asha(&outbidv1.Asha{MaxSteps: 9, MinSteps: 10})), "tuner.asha.min_steps: 10 is above max_steps (9)"},
		{tunertest.Spec(asha(&outbidv1.Asha{MaxSteps: 9, Form: "jump"})), `tuner.asha.form: "jump" is unknown; use promote or stop`},
		{tunertest.Spec(asha(&outbidv1.Asha{MaxSteps: 9, Brackets: 4})), "tuner.asha.brackets: must be from 1 to 3, the number of rungs, got 4"},
		{tunertest.Spec(asha(&outbidv1.Asha{MaxSteps: 9, Brackets: -4})), "tuner.asha.brackets: must be at least 1, got -4"},
		{tunertest.Spec(asha(&outbidv1.Asha{MaxSteps: 9, Sampler: "tea leaves"})), `tuner.asha.sampler: "tea leaves" is unknown`},
		{
			tunertest.Spec(halving(&outbidv1.SuccessiveHalving{MaxSteps: 27, Trials: 26})),
			"tuner.successive_halving.trials: 26 is too few for 4 rungs; the least is 27",
		},
		{tunertest.Spec(halving(&outbidv1.SuccessiveHalving{MaxSteps: 27}), tunertest.Trials(26)), "limits.trials: 26 is too few"},
		{tunertest.Spec(halving(&outbidv1.SuccessiveHalving{MaxSteps: 27, Trials: -1})), "tuner.successive_halving.trials: must be from 1 to 1000000, or 0 for eta^(rungs-1), got -1"},
		{tunertest.Spec(halving(&outbidv1.SuccessiveHalving{MaxSteps: 1 << 62})), "tuner.successive_halving.min_steps: 1 up to max_steps 4611686018427387904 makes a first rung of 4052555153018976256 trials, more than 1000000"},
		{tunertest.Spec(hyperband(&outbidv1.Hyperband{MaxSteps: 1 << 62})), "tuner.hyperband.min_steps: 1 up to max_steps 4611686018427387904 makes a first rung of 4052555153018976256 trials, more than 1000000"},
		{tunertest.Spec(hyperband(&outbidv1.Hyperband{MaxSteps: 9, Iterations: -1})), "tuner.hyperband.iterations: must be from 1 to 1000000, got -1"},
		{tunertest.Spec(hyperband(&outbidv1.Hyperband{MaxSteps: 9, Iterations: math.MaxInt32}), tunertest.Trials(1)), "tuner.hyperband.iterations"},
		{tunertest.Spec(median(&outbidv1.MedianStopping{})), "tuner.median.max_steps: is missing; set the number of steps of a trial"},
		{tunertest.Spec(median(&outbidv1.MedianStopping{MaxSteps: 9, GraceSteps: -1})), "tuner.median.grace_steps: must be at least 1, got -1"},
		{tunertest.Spec(median(&outbidv1.MedianStopping{MaxSteps: 9, MinTrials: -1})), "tuner.median.min_trials: must be at least 1, got -1"},
		{tunertest.Spec(freeze(&outbidv1.FreezeThaw{})), "tuner.freeze_thaw.max_steps: is missing; set the maximum number of steps of a trial"},
		{tunertest.Spec(freeze(&outbidv1.FreezeThaw{MaxSteps: 9, MinSteps: 10})), "tuner.freeze_thaw.min_steps: must be from 1 to max_steps (9), or 0 for a 40th of it, got 10"},
		{tunertest.Spec(freeze(&outbidv1.FreezeThaw{MaxSteps: 9, Poor: 1})), "tuner.freeze_thaw.poor: must be a probability above 0 and below 1, got 1; 0.01 is usual"},
		{tunertest.Spec(freeze(&outbidv1.FreezeThaw{MaxSteps: 9, Sampler: "dice"})), `tuner.freeze_thaw.sampler: "dice"`},
		{tunertest.Spec(performance(&outbidv1.PerformanceCurve{})), "tuner.performance_curve.max_steps: is missing; set the maximum number of steps of a trial"},
		{tunertest.Spec(performance(&outbidv1.PerformanceCurve{MaxSteps: 9, Interval: 10})), "tuner.performance_curve.interval: must be from 1 to max_steps (9), or 0 for a 20th of it, got 10"},
		{tunertest.Spec(performance(&outbidv1.PerformanceCurve{MaxSteps: 9, GraceSteps: -1})), "tuner.performance_curve.grace_steps: must be from 1 to max_steps (9), or 0 for two intervals, got -1"},
		{tunertest.Spec(performance(&outbidv1.PerformanceCurve{MaxSteps: 9, Poor: 1})), "tuner.performance_curve.poor: must be a probability above 0 and below 1, got 1; 0.05 is usual"},
		{tunertest.Spec(performance(&outbidv1.PerformanceCurve{MaxSteps: 9, Poor: math.NaN()})), "tuner.performance_curve.poor: must be a probability above 0 and below 1, got NaN; 0.05 is usual"},
		{tunertest.Spec(performance(&outbidv1.PerformanceCurve{MaxSteps: 9, Keep: new(1.5)})), "tuner.performance_curve.keep: must be a share from 0 to 1, got 1.5"},
		{tunertest.Spec(performance(&outbidv1.PerformanceCurve{MaxSteps: 9, Eta: 1})), "tuner.performance_curve.eta: must be at least 2, got 1"},
		{tunertest.Spec(performance(&outbidv1.PerformanceCurve{MaxSteps: 9, Sampler: "dice"})), `tuner.performance_curve.sampler: "dice"`},
		{tunertest.Spec(pbt(&outbidv1.Pbt{Interval: 1})), "tuner.pbt.max_steps: is missing; set the number of steps of a member"},
		{tunertest.Spec(pbt(&outbidv1.Pbt{MaxSteps: 9})), "tuner.pbt.interval: is missing; set the number of steps after which members are compared"},
		{tunertest.Spec(pbt(&outbidv1.Pbt{MaxSteps: 9, Interval: 10})), "tuner.pbt.interval: 10 is above max_steps (9)"},
		{tunertest.Spec(pbt(&outbidv1.Pbt{MaxSteps: 9, Interval: 3, Population: 1})), "tuner.pbt.population: must be from 2 to 1000000, got 1"},
		{tunertest.Spec(pbt(&outbidv1.Pbt{MaxSteps: 9, Interval: 3, Quantile: 0.6})), "tuner.pbt.quantile: must be above 0 and at most 0.5, got 0.6"},
		{tunertest.Spec(pbt(&outbidv1.Pbt{MaxSteps: 9, Interval: 3, Quantile: math.NaN()})), "tuner.pbt.quantile: must be above 0 and at most 0.5, got NaN"},
		{tunertest.Spec(pbt(&outbidv1.Pbt{MaxSteps: 9, Interval: 3, Resample: new(-0.1)})), "tuner.pbt.resample: must be a probability from 0 to 1, got -0.1"},
		{tunertest.Spec(pbt(&outbidv1.Pbt{MaxSteps: 9, Interval: 3, Factors: []float64{1.2, 0}})), "tuner.pbt.factors[1]: must be above 0, got 0"},
	} {
		_, err := registry.New(c.settings)
		if err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("got %v, not %q", err, c.want)
		}
	}
}

func TestEventsThatCannotBe(t *testing.T) {
	t.Parallel()
	made, err := registry.New(tunertest.Spec(asha(&outbidv1.Asha{MaxSteps: 9}), tunertest.Trials(9)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := made.Handle(tuner.Ask{N: 1}); err != nil {
		t.Fatal(err)
	}
	for _, e := range []tuner.Event{
		nil,
		tuner.Reported{Trial: 1, Step: 1},
		tuner.Reached{Trial: -1, Step: 1},
		tuner.Reached{Trial: 0, Step: 0},
		tuner.Exited{Trial: 1},
	} {
		if actions, err := made.Handle(e); err == nil {
			t.Errorf("%#v is no error, but gives %v", e, actions)
		}
	}
}

func TestASnapshotOfAnotherTunerIsRefused(t *testing.T) {
	t.Parallel()
	one, err := registry.New(tunertest.Spec(asha(&outbidv1.Asha{MaxSteps: 9})))
	if err != nil {
		t.Fatal(err)
	}
	snapshot, err := one.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	_, err = registry.Restore(tunertest.Spec(hyperband(&outbidv1.Hyperband{MaxSteps: 9})), snapshot)
	if !errors.Is(err, tuner.ErrBadSnapshot) || !strings.Contains(err.Error(), `of tuner "asha"`) {
		t.Errorf("got %v", err)
	}
}
