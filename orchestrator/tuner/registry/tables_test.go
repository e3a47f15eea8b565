package registry_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/registry"
	"github.com/outbid-dev/outbid/orchestrator/tuner/tunertest"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

func hyperband(h *outbidv1.Hyperband) *outbidv1.Tuner {
	return &outbidv1.Tuner{Kind: &outbidv1.Tuner_Hyperband{Hyperband: h}}
}

func halving(h *outbidv1.SuccessiveHalving) *outbidv1.Tuner {
	return &outbidv1.Tuner{Kind: &outbidv1.Tuner_SuccessiveHalving{SuccessiveHalving: h}}
}

func asha(a *outbidv1.Asha) *outbidv1.Tuner {
	return &outbidv1.Tuner{Kind: &outbidv1.Tuner_Asha{Asha: a}}
}

// The brackets of algorithm 1 of Li et al. (JMLR 2018) for R = 81 and eta = 3. Table 1 of the paper prints n = 27, 9, 6
// and 5 for s = 3, 2, 1 and 0, which is floor((s_max+1)/(s+1)) * eta^s. The algorithm says n = ceil((s_max+1)/(s+1) *
// eta^s), which is 34, 15, 8 and 5. Outbid follows the algorithm, as most implementations do.
func TestHyperbandBracketsForR81(t *testing.T) {
	t.Parallel()
	s := tunertest.Spec(hyperband(&outbidv1.Hyperband{MaxSteps: 81, Eta: 3}))
	rung := func(bracket int, until int64, trials int, steps int64) tuner.Rung {
		return tuner.Rung{Bracket: bracket, UntilStep: until, Trials: trials, Steps: steps}
	}
	want := []tuner.Rung{
		rung(4, 1, 81, 81),
		rung(4, 3, 27, 27*2),
		rung(4, 9, 9, 9*6),
		rung(4, 27, 3, 3*18),
		rung(4, 81, 1, 54),
		rung(3, 3, 34, 34*3),
		rung(3, 9, 11, 11*6),
		rung(3, 27, 3, 3*18),
		rung(3, 81, 1, 54),
		rung(2, 9, 15, 15*9),
		rung(2, 27, 5, 5*18),
		rung(2, 81, 1, 54),
		rung(1, 27, 8, 8*27),
		rung(1, 81, 2, 2*54),
		rung(0, 81, 5, 5*81),
	}
	made, err := registry.New(s)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, made.Outlook().Rungs); diff != "" {
		t.Errorf("planned rungs (-want +got):\n%s", diff)
	}
	run, err := registry.Rehearse(s, 1000)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, run.Rungs); diff != "" {
		t.Errorf("rungs as they were run (-want +got):\n%s", diff)
	}
	if run.Trials != 81+34+15+8+5 {
		t.Errorf("%d trials", run.Trials)
	}
}
