package registry_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/registry"
	"github.com/outbid-dev/outbid/orchestrator/tuner/space"
	"github.com/outbid-dev/outbid/orchestrator/tuner/tunertest"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// With -update the golden files are rewritten: go test -run Golden -update.
var update = flag.Bool("update", false, "rewrite the golden files")

// TestGoldenDecisions compares small sweeps with fixed seeds event by event. A change of the golden files changes the
// results of a seed, and the replay of existing ledgers.
func TestGoldenDecisions(t *testing.T) {
	t.Parallel()
	sweeps := map[string]tuner.Settings{
		"random":             tunertest.Spec(&outbidv1.Tuner{Seed: new(uint64(1)), Kind: &outbidv1.Tuner_Random{Random: &outbidv1.RandomSearch{}}}, tunertest.Trials(3)),
		"bayes":              tunertest.Spec(&outbidv1.Tuner{Seed: new(uint64(1)), Kind: &outbidv1.Tuner_Bayes{Bayes: &outbidv1.BayesianSearch{MaxSteps: 2}}}, tunertest.Trials(12)),
		"sobol":              tunertest.Spec(&outbidv1.Tuner{Seed: new(uint64(1)), Kind: &outbidv1.Tuner_Sobol{Sobol: &outbidv1.SobolSearch{MaxSteps: 2}}}, tunertest.Trials(3)),
		"grid":               tunertest.Spec(&outbidv1.Tuner{Kind: &outbidv1.Tuner_Grid{Grid: &outbidv1.GridSearch{Points: 3}}}),
		"successive_halving": tunertest.Spec(halving(&outbidv1.SuccessiveHalving{MaxSteps: 9})),
		"hyperband":          tunertest.Spec(hyperband(&outbidv1.Hyperband{MaxSteps: 9}), tunertest.Minimise),
		"asha":               tunertest.Spec(asha(&outbidv1.Asha{MaxSteps: 9}), tunertest.Trials(12)),
		"asha_brackets":      tunertest.Spec(asha(&outbidv1.Asha{MaxSteps: 8, Eta: 2, Brackets: 2}), tunertest.Trials(12), tunertest.Minimise),
		"asha_stop":          tunertest.Spec(asha(&outbidv1.Asha{MaxSteps: 9, Form: "stop"}), tunertest.Trials(9)),
		"median":             tunertest.Spec(median(&outbidv1.MedianStopping{MaxSteps: 4}), tunertest.Trials(8)),
		"performance_curve":  tunertest.Spec(performance(&outbidv1.PerformanceCurve{MaxSteps: 8, Interval: 2}), tunertest.Trials(6)),
		"freeze_thaw":        tunertest.Spec(freeze(&outbidv1.FreezeThaw{MaxSteps: 8}), tunertest.Trials(8)),
		"pbt":                tunertest.Spec(pbt(&outbidv1.Pbt{MaxSteps: 6, Interval: 2, Population: 4, Quantile: 0.25})),
	}
	for _, f := range kinds() {
		if name := string(f.Name()); sweeps[name].Spec == nil {
			sweeps[name] = smallest(f)
		}
	}
	for name, settings := range sweeps {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			made, err := registry.New(settings)
			if err != nil {
				t.Fatal(err)
			}
			result, err := tunertest.Drive(made, tunertest.Options{Seed: 4, Workers: 3, ReportEvery: 2})
			if err != nil {
				t.Fatal(err)
			}
			got := script(t, result.Steps)
			file := filepath.Join("testdata", name+".golden")
			if *update {
				if err := os.MkdirAll("testdata", 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// script formats a sweep as readable text.
func script(t *testing.T, steps []tunertest.Step) string {
	t.Helper()
	var b strings.Builder
	created := 0
	for _, step := range steps {
		switch e := step.Event.(type) {
		case tuner.Ask:
			fmt.Fprintf(&b, "ask %d\n", e.N)
		case tuner.Reported:
			fmt.Fprintf(&b, "trial %d reports %.4f at step %d\n", e.Trial, e.Metric, e.Step)
		case tuner.Reached:
			fmt.Fprintf(&b, "trial %d reached step %d with %.4f\n", e.Trial, e.Step, e.Metric)
		case tuner.Exited:
			fmt.Fprintf(&b, "trial %d exited\n", e.Trial)
		}
		for _, a := range step.Actions {
			switch a := a.(type) {
			case tuner.Create:
				fmt.Fprintf(&b, "  create %d until %d, bracket %d, seed %d, %s: %s\n", created, a.UntilStep, a.Bracket, a.Seed,
					configText(t, a.Config), a.Reason)
				created++
			case tuner.Train:
				fmt.Fprintf(&b, "  train %d until %d: %s\n", a.Trial, a.UntilStep, a.Reason)
			case tuner.Pause:
				fmt.Fprintf(&b, "  pause %d: %s\n", a.Trial, a.Reason)
			case tuner.End:
				fmt.Fprintf(&b, "  end %d, completed %t: %s\n", a.Trial, a.Completed, a.Reason)
			case tuner.Clone:
				fmt.Fprintf(&b, "  clone %d into %d until %d, %s: %s\n", a.Source, a.Trial, a.UntilStep, configText(t, a.Config),
					a.Reason)
			}
		}
	}
	return b.String()
}

func configText(t *testing.T, c tuner.Config) string {
	t.Helper()
	text, err := space.Canonical(c)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
