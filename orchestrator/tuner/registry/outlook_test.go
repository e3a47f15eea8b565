package registry_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/registry"
	"github.com/outbid-dev/outbid/orchestrator/tuner/tunertest"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// merged adds up the rungs of brackets with the same label, in order of appearance.
func merged(rungs []tuner.Rung) map[place]tuner.Rung {
	all := map[place]tuner.Rung{}
	for _, r := range rungs {
		p := place{r.Bracket, r.UntilStep}
		sum := all[p]
		all[p] = tuner.Rung{
			Bracket: r.Bracket, UntilStep: r.UntilStep, Trials: sum.Trials + r.Trials, Steps: sum.Steps + r.Steps,
		}
	}
	return all
}

// The outlook equals what the tuner does when it is run.
func TestOutlooksAreWhatTheTunersDo(t *testing.T) {
	t.Parallel()
	for name, settings := range sweeps() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			made, err := registry.New(settings())
			if err != nil {
				t.Fatal(err)
			}
			promised := made.Outlook()
			run, err := registry.Rehearse(settings(), 10_000)
			if err != nil {
				t.Fatal(err)
			}
			if run.Trials != promised.Trials {
				t.Errorf("%d trials, promised %d", run.Trials, promised.Trials)
			}
			switch kind := settings().Spec.GetTuner(); {
			case kind.GetPbt() != nil:
				// Its rungs are one for each interval, and copies can train more than their share.
				if run.Steps < promised.Steps || run.Steps > 2*promised.Steps {
					t.Errorf("%d steps, promised %d", run.Steps, promised.Steps)
				}
			case kind.GetPerformanceCurve() != nil:
				// Trials without any report count as fully trained.
				if run.Steps > promised.Steps || promised.Steps != int64(promised.Trials)*kind.GetPerformanceCurve().GetMaxSteps() {
					t.Errorf("%d steps, promised %d", run.Steps, promised.Steps)
				}
			case kind.GetFreezeThaw() != nil:
				if run.Steps > promised.Steps || promised.Steps != int64(promised.Trials)*kind.GetFreezeThaw().GetMaxSteps() {
					t.Errorf("%d steps, promised %d", run.Steps, promised.Steps)
				}
			default:
				if diff := cmp.Diff(merged(promised.Rungs), merged(run.Rungs)); diff != "" || run.Steps != promised.Steps {
					t.Errorf("%d steps, promised %d; rungs (-promised +run):\n%s", run.Steps, promised.Steps, diff)
				}
			}
		})
	}
}

func TestARehearsalOfWhatHasNoEndGivesItsOutlook(t *testing.T) {
	t.Parallel()
	endless := tunertest.Spec(asha(&outbidv1.Asha{MaxSteps: 27}))
	got, err := registry.Rehearse(endless, 100)
	if err != nil {
		t.Fatal(err)
	}
	if got.Trials != 0 || got.Steps != 0 {
		t.Errorf("%+v", got)
	}
}

// The trial limit cuts Hyperband bracket by bracket.
func TestHyperbandUnderALimit(t *testing.T) {
	t.Parallel()
	made, err := registry.New(tunertest.Spec(hyperband(&outbidv1.Hyperband{MaxSteps: 27}), tunertest.Trials(30)))
	if err != nil {
		t.Fatal(err)
	}
	want := tuner.Outlook{
		Trials: 30, Steps: 27 + 9*2 + 3*6 + 18 + 3*3 + 6,
		Rungs: []tuner.Rung{
			{Bracket: 3, UntilStep: 1, Trials: 27, Steps: 27},
			{Bracket: 3, UntilStep: 3, Trials: 9, Steps: 18},
			{Bracket: 3, UntilStep: 9, Trials: 3, Steps: 18},
			{Bracket: 3, UntilStep: 27, Trials: 1, Steps: 18},
			{Bracket: 2, UntilStep: 3, Trials: 3, Steps: 9},
			{Bracket: 2, UntilStep: 9, Trials: 1, Steps: 6},
		},
	}
	if diff := cmp.Diff(want, made.Outlook()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Brackets of ASHA share the trials like Hyperband's brackets, and their first rungs are shifted.
func TestASHABrackets(t *testing.T) {
	t.Parallel()
	made, err := registry.New(tunertest.Spec(asha(&outbidv1.Asha{MaxSteps: 9, Brackets: 3}), tunertest.Trials(17)))
	if err != nil {
		t.Fatal(err)
	}
	first := map[int]tuner.Rung{}
	for _, r := range made.Outlook().Rungs {
		if _, known := first[r.Bracket]; !known {
			first[r.Bracket] = r
		}
	}
	// Hyperband for R = 9: 9, 5 and 3.
	want := map[int]tuner.Rung{
		0: {Bracket: 0, UntilStep: 1, Trials: 9, Steps: 9},
		1: {Bracket: 1, UntilStep: 3, Trials: 5, Steps: 15},
		2: {Bracket: 2, UntilStep: 9, Trials: 3, Steps: 27},
	}
	if diff := cmp.Diff(want, first); diff != "" {
		t.Errorf("first rungs (-want +got):\n%s", diff)
	}
}

// The last level is exactly max_steps. The number of levels is computed exactly: floor(log_3(243)) is 5, although
// floating point gives 4.999.
func TestLevels(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		settings tuner.Settings
		want     []int64
	}{
		{tunertest.Spec(halving(&outbidv1.SuccessiveHalving{MaxSteps: 243})), []int64{1, 3, 9, 27, 81, 243}},
		{tunertest.Spec(halving(&outbidv1.SuccessiveHalving{MaxSteps: 242})), []int64{1, 3, 9, 27, 242}},
		{tunertest.Spec(halving(&outbidv1.SuccessiveHalving{MaxSteps: 100, MinSteps: 7, Eta: 2})), []int64{7, 14, 28, 100}},
		{tunertest.Spec(asha(&outbidv1.Asha{MaxSteps: 5, MinSteps: 5}), tunertest.Trials(3)), []int64{5}},
		{tunertest.Spec(hyperband(&outbidv1.Hyperband{MaxSteps: 100, MinSteps: 3}), tunertest.Trials(27)), []int64{3, 11, 33, 100}},
	} {
		made, err := registry.New(c.settings)
		if err != nil {
			t.Fatal(err)
		}
		var got []int64
		for _, r := range made.Outlook().Rungs {
			if r.Bracket == made.Outlook().Rungs[0].Bracket {
				got = append(got, r.UntilStep)
			}
		}
		if n := min(len(got), len(c.want)); !cmp.Equal(c.want[:n], got[:n]) {
			t.Errorf("levels %v, not %v", got, c.want)
		}
	}
}
