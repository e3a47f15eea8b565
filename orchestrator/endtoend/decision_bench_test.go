package endtoend

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/plugin"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// stepwise is a tuner that decides on each step of each trial: every report reaches a target.
type stepwise struct{ Last, Trials, Created, Ended int64 }

// Handle implements tuner.Tuner.
func (s *stepwise) Handle(e tuner.Event) ([]tuner.Action, error) {
	var out []tuner.Action
	switch e := e.(type) {
	case tuner.Ask:
		for ; e.N > 0 && s.Created < s.Trials; e.N-- {
			s.Created++
			out = append(out, tuner.Create{Config: tuner.Config{"height": float64(s.Created)}, UntilStep: 1})
		}
	case tuner.Reached:
		if e.Step < s.Last {
			return append(out, tuner.Train{Trial: e.Trial, UntilStep: e.Step + 1}), nil
		}
		s.Ended++
		out = append(out, tuner.End{Trial: e.Trial, Completed: true})
	case tuner.Exited:
		s.Ended++
	}
	return out, nil
}

// Status implements tuner.Tuner.
func (s *stepwise) Status() tuner.Status { return tuner.Status{Exhausted: s.Created == s.Trials} }

// Outlook implements tuner.Tuner.
func (s *stepwise) Outlook() tuner.Outlook { return tuner.Outlook{} }

// Snapshot implements tuner.Tuner.
func (s *stepwise) Snapshot() ([]byte, error) { return json.Marshal(s) }

// openStepwise is opens for it, whatever tuner the sweep names.
func openStepwise(s tuner.Settings, snapshot []byte) (tuner.Tuner, error) {
	t := &stepwise{Last: decisions, Trials: int64(s.Spec.GetLimits().GetTrials())}
	if snapshot == nil {
		return t, nil
	}
	return t, json.Unmarshal(snapshot, t)
}

// inPython is the same tuner as a program in Python.
const inPython = `
from outbid import plugin

class Stepwise(plugin.Tuner):
    def start(self):
        self.last = self.spec.settings.whole("last")
        self.trials = self.spec.settings.whole("trials")
        self.spec.settings.value("stepwise", True)

    def ask(self, n):
        for _ in range(min(n, self.trials - self.created)):
            yield plugin.Create({"height": 1.0 + self.created}, until_step=1)

    def reached(self, report):
        if report.step < self.last:
            yield plugin.Train(report.trial, until_step=report.step + 1)
        else:
            yield plugin.End(report.trial)

    def exhausted(self):
        return self.created >= self.trials

plugin.serve(Stepwise())
`

// ofRay prints, for the program that runs schedulers of Ray Tune, an experiment with a scheduler that decides on each
// report. Its arguments are the number of steps and of trials.
const ofRay = `
import os
import sys

from outbid import tune
from outbid.tune._config import CheckpointConfig, TuneConfig, placement_of
from outbid.tune._driver import _experiment
from outbid.tune._plan import Plan
from outbid.tune._controller import pack

LAST, TRIALS = map(int, sys.argv[1:])

class Stepwise(tune.schedulers.FIFOScheduler):
    def on_trial_result(self, tune_controller, trial, result):
        return self.STOP if result["training_iteration"] >= LAST else self.CONTINUE

folder, space = os.path.dirname(__file__), {"height": tune.uniform(1, 100)}
plan = Plan(print, "f", folder, "", space, "", "min", placement_of(None), CheckpointConfig())
settings = TuneConfig(scheduler=Stepwise(), metric="loss", mode="min", num_samples=TRIALS)
print(pack(_experiment(plan, settings)[0]))
`

// rayScheduler returns the tuner that runs a scheduler of Ray Tune.
func rayScheduler(b *testing.B, python string, trials int) *outbidv1.Tuner {
	b.Helper()
	script := filepath.Join(b.TempDir(), "experiment.py")
	if err := os.WriteFile(script, []byte(ofRay), 0o600); err != nil {
		b.Fatal(err)
	}
	experiment, err := exec.Command(python, script, fmt.Sprint(decisions), fmt.Sprint(trials)).Output()
	if err != nil {
		b.Fatal(err)
	}
	settings := map[string]any{"experiment": strings.TrimSpace(string(experiment))}
	return outside(b, settings, python, "-m", "outbid.tune._controller")
}

// outside returns a program with its settings as a sweep's tuner.
func outside(b *testing.B, with map[string]any, command ...string) *outbidv1.Tuner {
	b.Helper()
	settings, err := structpb.NewStruct(with)
	if err != nil {
		b.Fatal(err)
	}
	return &outbidv1.Tuner{Kind: &outbidv1.Tuner_Plugin{Plugin: &outbidv1.PluginTuner{
		Command: command, MaxSteps: decisions, Settings: settings,
	}}}
}

// decisions is the number of steps of each of a hundred trials.
const decisions = 125

// BenchmarkDecisionLatency measures how long a trial at its target waits for its tuner's answer, at 500 reports per
// second from 100 processes that all reach a target: with a tuner in the binary, with programs in Go and Python, and
// with a scheduler of Ray Tune.
func BenchmarkDecisionLatency(b *testing.B) {
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	python := os.Getenv("PYTHON")
	if python == "" {
		python = "python3"
	}
	script := filepath.Join(b.TempDir(), "stepwise.py")
	if err := os.WriteFile(script, []byte(inPython), 0o600); err != nil {
		b.Fatal(err)
	}
	launch := func(s tuner.Settings, snapshot []byte) (tuner.Tuner, error) {
		return plugin.Launch(context.Background(), s.Spec.GetTuner().GetPlugin().GetCommand(), s, snapshot, slog.New(slog.DiscardHandler))
	}
	const processes = 100
	settings := map[string]any{"last": float64(decisions), "trials": float64(processes), "stepwise": true}
	for _, c := range []struct {
		name     string
		open     opens
		inPython bool
		with     func(*testing.B) *outbidv1.Tuner
	}{
		{"built-in", openStepwise, false, func(*testing.B) *outbidv1.Tuner { return random(0) }},
		{"in-go", launch, false, func(b *testing.B) *outbidv1.Tuner { return outside(b, settings, self) }},
		{"in-python", launch, true, func(b *testing.B) *outbidv1.Tuner { return outside(b, settings, python, script) }},
		{"ray-scheduler", launch, true, func(b *testing.B) *outbidv1.Tuner { return rayScheduler(b, python, processes) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			if c.inPython {
				if out, err := exec.Command(python, "-c", "import outbid.plugin").CombinedOutput(); err != nil {
					b.Skipf("%s has no package outbid (PYTHON names another): %s", python, out)
				}
			}
			s := newSite(b, processes, c.open)
			out, with := b.TempDir(), c.with(b)
			for b.Loop() {
				s.runUnder(b, with, processes, map[string]string{
					"STUB_MODE": "decision", "STUB_INTERVAL": "200ms", "STUB_REPORTS": fmt.Sprint(decisions), "STUB_OUT": out,
				})
			}
			latencies(b, out)
		})
	}
}
