package control_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/outbid-dev/outbid/orchestrator/control"
	"github.com/outbid-dev/outbid/orchestrator/lab"
	"github.com/outbid-dev/outbid/orchestrator/ledger"
	"github.com/outbid-dev/outbid/orchestrator/sim"
	"github.com/outbid-dev/outbid/orchestrator/spec"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// startWithSecrets submits a sweep with a secret to a core with one node, and returns the order to the node and the
// sweep.
func startWithSecrets(t *testing.T, sealKey []byte, seal func(*outbidv1.NodeInfo, string, map[string]string) ([]byte, error)) (
	*outbidv1.AssignmentBody, *state.Sweep,
) {
	t.Helper()
	p, err := lab.Policies().New("fifo", nil)
	if err != nil {
		t.Fatal(err)
	}
	set := settings()
	set.Lease, set.Seal = 24*time.Hour, seal
	core, led, now := control.NewCore(set, p, state.New()), ledger.NewMemory(), time.Date(2026, 3, 31, 20, 0, 0, 0, time.UTC)
	var body *outbidv1.AssignmentBody
	step := func(inputs ...control.Input) {
		now = now.Add(100 * time.Millisecond)
		out, err := core.Step(now, inputs...)
		if err != nil {
			t.Fatal(err)
		}
		if len(out.Events) > 0 {
			batch, err := led.Append(t.Context(), now, out.Events)
			if err != nil {
				t.Fatal(err)
			}
			core.Appended(batch)
		}
		for _, o := range out.Orders {
			for _, a := range o.GetAssignments() {
				if a.GetBody() != nil {
					body = a.GetBody()
				}
			}
		}
	}
	info := &outbidv1.NodeInfo{Devices: []*outbidv1.Device{{Type: "gpu"}}, SealKey: sealKey}
	step(control.Uplink{Message: &outbidv1.Uplink{Node: "a", Boot: "a1", Info: info}})
	s := sim.Sweep("s", "min", 1, sim.Tuner("random", map[string]int64{"max_steps": 9}))
	s.Workload = &outbidv1.SweepSpec_Program{Program: &outbidv1.Program{Shell: "true", Secrets: map[string]string{"A": "wandb"}}}
	spec.Default(s)
	step(control.Submit{Spec: s, Done: func(string, error) {}})
	for range 5 {
		step()
	}
	return body, core.State().Sweeps["s-1"]
}

func TestSecretsAreSealedForTheNodeThatStartsATrial(t *testing.T) {
	t.Parallel()
	body, _ := startWithSecrets(t, []byte("key"), func(n *outbidv1.NodeInfo, tenant string, wanted map[string]string) ([]byte, error) {
		return fmt.Appendf(nil, "%s for %s of %s: %s", n.GetSealKey(), n.GetName(), tenant, wanted["A"]), nil
	})
	if got := string(body.GetSealedSecrets()); got != "key for a of default: wandb" || body.GetWorkload().GetProgram() == nil {
		t.Errorf("%q: %v", got, body)
	}
}

// A worker of an earlier version would start the trial without its secrets, so it gets no workload.
func TestAWorkerThatCannotOpenSecretsIsSentNoWorkload(t *testing.T) {
	t.Parallel()
	body, _ := startWithSecrets(t, nil, func(*outbidv1.NodeInfo, string, map[string]string) ([]byte, error) {
		t.Error("sealed without a key")
		return nil, nil
	})
	if body == nil || body.GetWorkload() != nil || len(body.GetSealedSecrets()) > 0 {
		t.Errorf("%v", body)
	}
}

func TestATrialWithAMissingSecretFails(t *testing.T) {
	t.Parallel()
	body, s := startWithSecrets(t, []byte("key"), func(*outbidv1.NodeInfo, string, map[string]string) ([]byte, error) {
		return nil, fmt.Errorf("no secret %q", "wandb")
	})
	if trial := s.Trials[0]; body != nil || trial.State != outbidv1.TrialState_TRIAL_STATE_FAILED || !strings.Contains(trial.Reason, `no secret "wandb"`) {
		t.Errorf("%v; the trial is %s: %s", body, trial.State, trial.Reason)
	}
}

// The simulator and replay have no values: a core without Seal orders trials with the names only.
func TestACoreWithoutValuesOrdersTrialsWithSecrets(t *testing.T) {
	t.Parallel()
	body, s := startWithSecrets(t, nil, nil)
	if body.GetWorkload().GetProgram() == nil || proto.Size(s.Spec) == 0 {
		t.Errorf("%v", body)
	}
}
