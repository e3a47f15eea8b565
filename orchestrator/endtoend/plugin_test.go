package endtoend

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/plugin"
	"github.com/outbid-dev/outbid/orchestrator/tuner/registry"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// servePlugin is Hyperband as a tuner plugin; its steps come from the plugin's settings.
func servePlugin() {
	within := func(s tuner.Settings) tuner.Settings {
		steps := s.Spec.GetTuner().GetPlugin().GetSettings().GetFields()["steps"].GetNumberValue()
		s.Spec = proto.CloneOf(s.Spec)
		s.Spec.Tuner = hyperband(int64(steps))
		return s
	}
	plugin.Serve(plugin.Factory{
		Name: "outside", Version: "1",
		New: func(s tuner.Settings) (tuner.Tuner, error) {
			if s.Spec.GetTuner().GetPlugin().GetSettings().GetFields()["stepwise"].GetBoolValue() {
				return openStepwise(s, nil)
			}
			t, err := registry.New(within(s))
			given := s.Spec.GetTuner().GetPlugin().GetSettings().GetFields()
			if takes := given["takes"].GetNumberValue(); takes > 0 {
				t = hanging{t, time.Duration(takes) * time.Second, given["unless"].GetStringValue()}
			}
			return t, err
		},
		Restore: func(s tuner.Settings, snapshot []byte) (tuner.Tuner, error) {
			return registry.Restore(within(s), snapshot)
		},
	})
}

// hanging is a tuner that delays its answer when it is asked for trials, unless a file exists. It creates another file
// when it is asked.
type hanging struct {
	tuner.Tuner
	takes  time.Duration
	unless string
}

func (h hanging) Handle(e tuner.Event) ([]tuner.Action, error) {
	if _, asked := e.(tuner.Ask); !asked {
		return h.Tuner.Handle(e)
	}
	if h.unless != "" {
		if err := os.WriteFile(h.unless+".asked", nil, 0o600); err != nil {
			return nil, err
		}
		if _, err := os.Stat(h.unless); err == nil {
			return h.Tuner.Handle(e)
		}
	}
	pause(h.takes)
	return h.Tuner.Handle(e)
}

// TestATunerPluginGoesOnAfterItsOrchestratorWasKilled checks that a sweep with a tuner plugin trains the same as with
// that tuner in the binary, although the server is killed, and the plugin ends with it and is restarted.
func TestATunerPluginGoesOnAfterItsOrchestratorWasKilled(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	settings, err := structpb.NewStruct(map[string]any{"steps": 9})
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "tuner")
	if err := os.Symlink(self, program); err != nil {
		t.Fatal(err)
	}
	outside := &outbidv1.Tuner{Seed: new(uint64(7)), Kind: &outbidv1.Tuner_Plugin{
		Plugin: &outbidv1.PluginTuner{Command: []string{program}, Settings: settings, MaxSteps: 9},
	}}
	dir, locks := t.TempDir(), t.TempDir()
	s := serve(t, dir, "up", "--devices", "cpu:2")
	own := s.submit(job{name: "own", mode: "well", tuner: hyperband(9)}.spec(t, locks))
	s.mustDone(own)
	id := s.submit(job{name: "outside", mode: "well", tuner: outside, env: map[string]string{"PACE": "20ms"}}.spec(t, locks))
	s.waitSteps(id, 20)
	s.kill()
	endsAs(t, dir, locks, own, id)

	// The ledger has the plugin's answers, so a replay or a restored server does not need it.
	if err := os.Remove(program); err != nil {
		t.Fatal(err)
	}
	mustRepeat(t, dir, filepath.Join(dir, "data"))
	s = serve(t, dir, "up", "--devices", "cpu:2")
	if again := s.sweep(id); again.GetState() != outbidv1.SweepState_SWEEP_STATE_DONE {
		t.Errorf("it is %s: %s", again.GetState(), again.GetReason())
	}
	s.stop()
}

// TestALeaderThatIsKilledWhileATunerIsAsked kills a leader while a tuner is asked for its first trials. The next leader
// asks again, and the sweep trains the same.
func TestALeaderThatIsKilledWhileATunerIsAsked(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir, locks := t.TempDir(), t.TempDir()
	killed := filepath.Join(dir, "killed")
	settings, err := structpb.NewStruct(map[string]any{"steps": 9, "takes": 25, "unless": killed})
	if err != nil {
		t.Fatal(err)
	}
	s := serve(t, dir, "up", "--devices", "cpu:2")
	own := s.submit(job{name: "own", mode: "well", tuner: hyperband(9)}.spec(t, locks))
	s.mustDone(own)
	id := s.submit(job{name: "outside", mode: "well", tuner: &outbidv1.Tuner{Seed: new(uint64(7)), Kind: &outbidv1.Tuner_Plugin{
		Plugin: &outbidv1.PluginTuner{Command: []string{self}, Settings: settings, MaxSteps: 9},
	}}}.spec(t, locks))
	waitFile(t, s.proc, killed+".asked")
	if n := len(s.trials(id)); n > 0 {
		t.Logf("the machine is so slow that %d trials were there before the kill", n)
	}
	s.kill()
	if err := os.WriteFile(killed, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	endsAs(t, dir, locks, own, id)
}

// endsAs serves a directory again until a sweep with a tuner plugin is done. Its trials must be those of the sweep with
// the same built-in tuner.
func endsAs(t *testing.T, dir, locks, inside, outside string) {
	t.Helper()
	s := serve(t, dir, "up", "--devices", "cpu:2")
	s.mustDone(outside)
	if diff := cmp.Diff(trained(s.trials(inside)), trained(s.trials(outside))); diff != "" {
		t.Errorf("trials by steps and configuration (-inside +outside):\n%s", diff)
	}
	noTwoOwners(t, locks)
	s.stop()
}

// trained returns the configurations and how far each was trained, in order.
func trained(trials []*outbidv1.Trial) []string {
	set := map[string]int64{}
	for _, tr := range trials {
		set[tr.GetConfigJson()] = tr.GetStep()
	}
	lines := make([]string, 0, len(set))
	for _, config := range slices.Sorted(maps.Keys(set)) {
		lines = append(lines, config+" until "+string(rune('0'+set[config])))
	}
	return lines
}
