package plugin

import (
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/registry"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// drawer draws widths in order and learns the lowest loss of earlier trials.
type drawer struct {
	tuner.Tuner
	N    int
	Best float64
}

func (d *drawer) Handle(e tuner.Event) ([]tuner.Action, error) {
	switch e := e.(type) {
	case tuner.Ask:
		d.N++
		lr := 0.5
		if d.Best != 0 {
			lr = d.Best
		}
		return []tuner.Action{tuner.Create{Config: tuner.Config{"lr": lr, "width": int64((d.N-1)%64 + 1)}, Reason: "the next width"}}, nil
	case tuner.Exited:
		if !e.Failed && (d.Best == 0 || e.Metric < d.Best) {
			d.Best = e.Metric
		}
	}
	return nil, nil
}

func (d *drawer) Status() tuner.Status      { return tuner.Status{} }
func (d *drawer) Outlook() tuner.Outlook    { return tuner.Outlook{} }
func (d *drawer) Snapshot() ([]byte, error) { return []byte{byte(d.N), byte(d.Best * 100)}, nil }

func serveDrawer() {
	Serve(Factory{
		Name: "drawer", Version: "1",
		New: func(tuner.Settings) (tuner.Tuner, error) { return &drawer{}, nil },
		Restore: func(_ tuner.Settings, snapshot []byte) (tuner.Tuner, error) {
			return &drawer{N: int(snapshot[0]), Best: float64(snapshot[1]) / 100}, nil
		},
	})
}

// ruled is a sweep whose rule is ASHA and whose configurations come from the drawer, restricted to even widths.
func ruled(t *testing.T) tuner.Settings {
	t.Helper()
	s := sweep()
	s.Spec.Constraints = []string{"width % 2 == 0"}
	rule := proto.CloneOf(s.Spec.GetTuner())
	rule.Seed = nil
	s.Spec.Tuner.Kind = &outbidv1.Tuner_Plugin{Plugin: &outbidv1.PluginTuner{
		Command: []string{os.Args[0], asPlugin, "drawer"}, MaxSteps: 9, Rule: rule,
	}}
	return s
}

func openRuled(t *testing.T, s tuner.Settings, snapshot []byte) tuner.Tuner {
	t.Helper()
	opened, end, err := Open(t.Context(), s, snapshot, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(end)
	return opened
}

func handle(t *testing.T, to tuner.Tuner, e tuner.Event) []tuner.Action {
	t.Helper()
	actions, err := to.Handle(e)
	if err != nil {
		t.Fatal(err)
	}
	return actions
}

// The rule decides how long trials train. The program draws configurations, which meet the constraints and reflect the
// trials that ended. Both are restored from a snapshot.
func TestARuleTrainsWhatAProgramDraws(t *testing.T) {
	t.Parallel()
	s := ruled(t)
	alone, err := registry.New(tuner.Settings{Spec: tuner.RuleSpec(s.Spec)})
	if err != nil {
		t.Fatal(err)
	}
	both := openRuled(t, s, nil)
	var drawn []tuner.Config
	// step sends an event to both tuners and removes the drawn configurations before comparing.
	step := func(e tuner.Event) {
		t.Helper()
		own, want := handle(t, both, e), handle(t, alone, e)
		for i, a := range own {
			if create, ok := a.(tuner.Create); ok {
				drawn = append(drawn, create.Config)
				if !strings.HasSuffix(create.Reason, ", the next width") {
					t.Errorf("reason %q", create.Reason)
				}
				create.Config, create.Reason = want[i].(tuner.Create).Config, want[i].(tuner.Create).Reason
				own[i] = create
			}
		}
		if diff := cmp.Diff(want, own); diff != "" {
			t.Fatalf("after %#v: %s", e, diff)
		}
		if diff := cmp.Diff(alone.Status(), both.Status()); diff != "" {
			t.Fatal(diff)
		}
	}
	step(tuner.Ask{N: 3})
	for trial, loss := range []float64{0.75, 0.25, 0.5} {
		step(tuner.Reached{Trial: tuner.Trial(trial), Step: 1, Metric: loss})
	}
	step(tuner.Exited{Trial: 0, Step: 1, Metric: 0.75})
	snapshot, err := both.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	both = openRuled(t, s, snapshot)
	step(tuner.Ask{N: 3})
	want := []tuner.Config{{"lr": 0.5, "width": int64(2)}, {"lr": 0.5, "width": int64(4)}, {"lr": 0.5, "width": int64(6)}}
	for i, config := range drawn {
		if i >= len(want) {
			want = append(want, tuner.Config{"lr": 0.75, "width": int64(2*i + 2)})
		}
		if diff := cmp.Diff(want[i], config); diff != "" {
			t.Errorf("trial %d: %s", i, diff)
		}
	}
	if len(drawn) < 5 {
		t.Errorf("only %d trials were created", len(drawn))
	}
}

// If the program finds no configuration that meets the constraints, the rule draws one at random.
func TestARuleDrawsItselfWhereAProgramCannot(t *testing.T) {
	t.Parallel()
	s := ruled(t)
	s.Spec.Constraints = []string{"lr < 0.4"} // the drawer only draws 0.5
	both := openRuled(t, s, nil)
	create := handle(t, both, tuner.Ask{N: 1})[0].(tuner.Create)
	if create.Config["lr"].(float64) >= 0.4 || !strings.Contains(create.Reason, "do not meet the constraints") {
		t.Errorf("created %+v", create)
	}
	handle(t, both, tuner.Reached{Trial: 0, Step: 1, Metric: 1}) // the program does not know the trial
}

func TestASamplerThatCannotBeStartedIsNamed(t *testing.T) {
	s := sweep()
	s.Spec.Tuner.GetAsha().Sampler = "tpe"
	tuner.Outside(s.Spec.GetTuner())
	t.Setenv("PATH", t.TempDir())
	_, _, err := Open(t.Context(), s, nil, slog.New(slog.DiscardHandler))
	if err == nil || !strings.HasPrefix(err.Error(), "sampler: tpe is one of Optuna's, which needs Python with Optuna") {
		t.Error(err)
	}
}
