package plugin

import (
	"fmt"
	"log/slog"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outbid-dev/outbid/orchestrator/pluginhost"
	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/registry"
	"github.com/outbid-dev/outbid/orchestrator/tuner/tunertest"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// asPlugin as the first argument makes the test binary a plugin; the second argument selects its behaviour.
const asPlugin = "serve-as-plugin"

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == asPlugin {
		servePlugin(os.Args[2])
		return
	}
	os.Exit(m.Run())
}

// servePlugin serves the sweep's built-in tuner with a flaw.
func servePlugin(flaw string) {
	if flaw == "drawer" {
		serveDrawer()
		return
	}
	if flaw == "no plugin" {
		fmt.Fprintln(os.Stderr, "what is a tuner?")
		os.Exit(3)
	}
	if flaw == "no channel" {
		_ = os.Unsetenv(pluginhost.Channel)
	}
	made := func(t tuner.Tuner, err error) (tuner.Tuner, error) { return &flawed{Tuner: t, flaw: flaw}, err }
	Serve(Factory{
		Name: "test", Version: "1.2",
		New: func(s tuner.Settings) (tuner.Tuner, error) { return made(registry.New(s)) },
		Restore: func(s tuner.Settings, snapshot []byte) (tuner.Tuner, error) {
			return made(registry.Restore(s, snapshot))
		},
	})
}

// flawed is a tuner that misbehaves when a trial reaches its target.
type flawed struct {
	tuner.Tuner
	flaw string
}

func (f *flawed) Handle(e tuner.Event) ([]tuner.Action, error) {
	if reached, ok := e.(tuner.Reached); ok {
		switch f.flaw {
		case "crash":
			fmt.Fprintln(os.Stderr, "I divided by zero")
			os.Exit(2)
		case "panic":
			panic("at the disco")
		case "hang":
			select {}
		case "garbage":
			return []tuner.Action{tuner.Train{Trial: reached.Trial + 1000, UntilStep: 5, Reason: "why not"}}, nil
		case "error":
			return nil, fmt.Errorf("I cannot count to %d", reached.Step)
		}
	}
	return f.Tuner.Handle(e)
}

func (f *flawed) Snapshot() ([]byte, error) {
	if f.flaw == "no snapshot" {
		return nil, nil
	}
	return f.Tuner.Snapshot()
}

func sweep() tuner.Settings {
	return tuner.Settings{Spec: &outbidv1.SweepSpec{
		Name: "test", Metric: "loss", Mode: "min",
		Space: map[string]*outbidv1.Parameter{
			"lr":    {Kind: &outbidv1.Parameter_Float{Float: &outbidv1.FloatRange{Low: 1e-4, High: 1, Log: true}}},
			"width": {Kind: &outbidv1.Parameter_Int{Int: &outbidv1.IntRange{Low: 1, High: 64}}},
		},
		Tuner: &outbidv1.Tuner{
			Kind: &outbidv1.Tuner_Asha{Asha: &outbidv1.Asha{MaxSteps: 9}}, Seed: new(uint64(7)),
		},
		Limits: &outbidv1.Limits{Trials: 18},
	}}
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func start(t *testing.T, flaw string, snapshot []byte) (*Client, error) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := usual()
	if flaw == "hang" {
		p.call = 300 * time.Millisecond
	}
	c, err := launch(t.Context(), []string{exe, asPlugin, flaw}, sweep(), snapshot, quiet(), p)
	if err == nil {
		t.Cleanup(c.Close)
	}
	return c, err
}

func TestABuiltInTunerDecidesTheSameAcrossTheBoundary(t *testing.T) {
	t.Parallel()
	for _, flaw := range []string{"none", "no channel"} {
		t.Run(flaw, func(t *testing.T) {
			t.Parallel()
			decidesTheSame(t, flaw)
		})
	}
}

func decidesTheSame(t *testing.T, flaw string) {
	t.Helper()
	here, err := registry.New(sweep())
	if err != nil {
		t.Fatal(err)
	}
	there, err := start(t, flaw, nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(here.Outlook(), there.Outlook()); diff != "" {
		t.Errorf("outlook (-here +there):\n%s", diff)
	}
	result, err := tunertest.Drive(here, tunertest.Options{Seed: 1, ReportEvery: 2, NaN: 0.1, Fail: 0.05, Late: 0.05})
	if err != nil {
		t.Fatal(err)
	}
	again, err := registry.New(sweep())
	if err != nil {
		t.Fatal(err)
	}
	for i, step := range result.Steps {
		actions, err := there.Handle(step.Event)
		if err != nil {
			t.Fatalf("event %d: %v", i, err)
		}
		if diff := tunertest.Diff(step.Actions, actions); diff != "" {
			t.Fatalf("event %d %+v (-here +there):\n%s", i, step.Event, diff)
		}
		if _, err := again.Handle(step.Event); err != nil {
			t.Fatal(err)
		}
		if there.Status() != again.Status() {
			t.Fatalf("event %d: status %+v, not %+v", i, there.Status(), again.Status())
		}
	}
}

// Several events in one call are answered like single ones, and events of a trial that an earlier answer ended are
// dropped.
func TestSeveralEventsAreAnsweredOneByOne(t *testing.T) {
	t.Parallel()
	here, err := registry.New(sweep())
	if err != nil {
		t.Fatal(err)
	}
	result, err := tunertest.Drive(here, tunertest.Options{Seed: 3, ReportEvery: 1, NaN: 0.1, Fail: 0.05, Late: 0.05})
	if err != nil {
		t.Fatal(err)
	}
	var steps []tunertest.Step
	ends := 0
	for _, step := range result.Steps {
		steps = append(steps, step)
		for _, a := range step.Actions {
			if end, ok := a.(tuner.End); ok {
				ends++
				steps = append(steps, tunertest.Step{Event: tuner.Exited{Trial: end.Trial, Failed: true, Metric: math.NaN()}})
			}
		}
	}
	if ends == 0 {
		t.Fatal("no trial was ended: the test shows less")
	}
	for name, size := range map[string]int{"at once": len(steps), "seven": 7, "one": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			there, err := start(t, "none", nil)
			if err != nil {
				t.Fatal(err)
			}
			for batch := range slices.Chunk(steps, size) {
				events := make([]tuner.Event, len(batch))
				for i := range batch {
					events[i] = batch[i].Event
				}
				answers, err := there.HandleEach(events)
				if err != nil || len(answers) != len(events) {
					t.Fatalf("%d answers to %d events: %v", len(answers), len(events), err)
				}
				for i, step := range batch {
					if diff := tunertest.Diff(step.Actions, answers[i].Actions); diff != "" {
						t.Fatalf("event %+v (-here +there):\n%s", step.Event, diff)
					}
				}
			}
		})
	}
}

// A mistake in one answer keeps the answers before it.
func TestAWrongAnswerAmongSeveralKeepsThoseBefore(t *testing.T) {
	t.Parallel()
	c, err := start(t, "garbage", nil)
	if err != nil {
		t.Fatal(err)
	}
	asked, err := c.HandleEach([]tuner.Event{tuner.Ask{N: 2}})
	if err != nil || len(asked[0].Actions) != 2 {
		t.Fatal(asked, err)
	}
	until := asked[0].Actions[0].(tuner.Create).UntilStep //nolint:forcetypeassert // a failed assertion fails the test
	answers, err := c.HandleEach([]tuner.Event{
		tuner.Reported{Trial: 0, Step: 1, Metric: 1}, tuner.Reached{Trial: 0, Step: until, Metric: 1}, tuner.Reported{Trial: 1, Step: 1, Metric: 1},
	})
	if len(answers) != 1 || err == nil || !strings.Contains(err.Error(), "trains trial 1000, which does not exist") {
		t.Errorf("%d answers, and %v", len(answers), err)
	}
	if _, err := c.HandleEach([]tuner.Event{tuner.Ask{N: 1}, tuner.Ask{N: 1}}); err == nil {
		t.Error("it is asked again")
	}
}

func TestAPluginConforms(t *testing.T) {
	t.Parallel()
	kind := tunertest.Kind{
		New: func(tuner.Settings) (tuner.Tuner, error) { return start(t, "none", nil) },
		Restore: func(_ tuner.Settings, snapshot []byte) (tuner.Tuner, error) {
			if len(snapshot) == 0 {
				return nil, tuner.ErrBadSnapshot // an empty one starts a new tuner
			}
			return start(t, "none", snapshot)
		},
	}
	made, err := kind.New(sweep())
	if err != nil {
		t.Fatal(err)
	}
	result, err := tunertest.Drive(made, tunertest.Options{Seed: 2, NaN: 0.1, Fail: 0.05})
	if err != nil {
		t.Fatal(err)
	}
	if err := tunertest.Resume(kind, sweep(), result.Steps, 1+len(result.Steps)/4); err != nil {
		t.Fatal(err)
	}
}

func TestAPluginThatGoesWrongIsNamed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		flaw string
		want []string
	}{
		{"crash", []string{"tuner plugin test 1.2", "exited", "I divided by zero"}},
		{"panic", []string{"tuner plugin test 1.2", "exited", "panic: at the disco"}},
		{"hang", []string{"tuner plugin test 1.2", "more than 300ms"}},
		{"garbage", []string{"tuner plugin test 1.2", "trains trial 1000, which does not exist"}},
		{"error", []string{"tuner plugin test 1.2", "I cannot count to 1"}},
	} {
		t.Run(c.flaw, func(t *testing.T) {
			t.Parallel()
			client, err := start(t, c.flaw, nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := client.Handle(tuner.Ask{N: 1}); err != nil {
				t.Fatal(err)
			}
			_, err = client.Handle(tuner.Reached{Trial: 0, Step: 1, Metric: 1})
			contains(t, err, c.want...)
			if _, again := client.Handle(tuner.Ask{N: 1}); again == nil || again.Error() != err.Error() {
				t.Errorf("it was asked again: %v", again)
			}
			if _, err := client.Snapshot(); err == nil {
				t.Error("it gave a snapshot after it went wrong")
			}
		})
	}
}

func TestAPluginWithoutASnapshotIsRefused(t *testing.T) {
	t.Parallel()
	client, err := start(t, "no snapshot", nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.Snapshot()
	contains(t, err, "tuner plugin test 1.2", "empty")
}

func contains(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %q", err, part)
		}
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("%q has more than one line", err)
	}
}

func TestWhatIsNoPluginIsNamed(t *testing.T) {
	t.Parallel()
	_, err := start(t, "no plugin", nil)
	contains(t, err, "not an Outbid plugin", "what is a tuner?")
	_, err = Launch(t.Context(), []string{"/no/such/program"}, sweep(), nil, quiet())
	contains(t, err, "/no/such/program")
	_, err = Launch(t.Context(), []string{"true"}, sweep(), nil, quiet())
	contains(t, err, "not an Outbid plugin")
	if text := err.Error(); strings.HasSuffix(text, ":") || strings.Contains(text, "\n") {
		t.Errorf("%q is no whole line", text)
	}
	_, err = Launch(t.Context(), nil, sweep(), nil, quiet())
	contains(t, err, "tuner.plugin.command")
	_, err = start(t, "none", []byte("no snapshot"))
	contains(t, err, "not a snapshot")
}

func TestAPluginRefusesSettings(t *testing.T) {
	t.Parallel()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bad := sweep()
	bad.Spec.Tuner.GetAsha().Eta = 1
	_, err = Launch(t.Context(), []string{exe, asPlugin, "none"}, bad, nil, quiet())
	contains(t, err, "tuner.asha.eta")
}

func TestClosingEndsThePlugin(t *testing.T) {
	t.Parallel()
	client, err := start(t, "none", nil)
	if err != nil {
		t.Fatal(err)
	}
	client.Close()
	if !client.program.Exited() {
		t.Error("it still runs")
	}
	if _, err := client.Handle(tuner.Ask{N: 1}); err == nil {
		t.Error("it still answers")
	}
	client.Close()
}

func TestOpenRunsBuiltInTunersInProcess(t *testing.T) {
	t.Parallel()
	made, end, err := Open(t.Context(), sweep(), nil, quiet())
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	snapshot, err := made.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := Open(t.Context(), sweep(), snapshot, quiet()); err != nil {
		t.Error(err)
	}
	outside := sweep()
	outside.Spec.Tuner.Kind = &outbidv1.Tuner_Plugin{
		Plugin: &outbidv1.PluginTuner{Command: []string{"/no/such/program"}},
	}
	_, _, err = Open(t.Context(), outside, nil, quiet())
	contains(t, err, "/no/such/program")
}
