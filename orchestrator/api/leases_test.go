package api_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/sim"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// forking is a policy that gives each waiting trial all devices of each node, with a fork on each node.
type forking struct{}

func (forking) Name() string              { return "forking" }
func (forking) Snapshot() ([]byte, error) { return nil, nil }
func (forking) Restore([]byte) error      { return nil }

func (forking) Decide(v *policy.View) policy.Plan {
	var plan policy.Plan
	for _, a := range v.Apps {
		for _, j := range a.Jobs {
			if !j.Waiting() || len(v.Nodes) < 2 {
				continue
			}
			for n, node := range v.Nodes {
				g := cluster.Gang{{Node: n}}
				for d := range node.Devices {
					g[0].Devices = append(g[0].Devices, d)
				}
				plan.Grants = append(plan.Grants, policy.Grant{Job: j, Gang: g, Fork: n > 0, Reason: "a fork on each node"})
			}
			return plan
		}
	}
	return plan
}

// places returns a trial's leases as text.
func places(t *outbidv1.Trial) string {
	var all []string
	for _, l := range t.GetLeases() {
		text := fmt.Sprintf("%d %s %s at %d", l.GetLeaseId(), l.GetHolder(), l.GetState(), l.GetStep())
		for _, p := range l.GetPlaces() {
			text += fmt.Sprintf(" on %s %v %s", p.GetNode(), p.GetDevices(), p.GetType())
		}
		all = append(all, text)
	}
	return strings.Join(all, "; ")
}

// TestATrialShowsAllItsLeases checks that gRPC and REST show both leases of a trial that two forks train.
func TestATrialShowsAllItsLeases(t *testing.T) {
	t.Parallel()
	client, addr, loop := serveLoopOf(t, slog.New(slog.DiscardHandler), forking{}, func(*policy.App) *outbidv1.Fairness { return nil })
	for name, devices := range map[string]int{"a": 1, "b": 2} {
		loop.Uplink(&outbidv1.Uplink{Node: name, Boot: name, Info: &outbidv1.NodeInfo{
			Devices: slices.Repeat([]*outbidv1.Device{{Type: "gpu-of-" + name}}, devices),
		}})
	}
	spec := sim.Sweep("s", "min", 1, sim.Tuner("random", map[string]int64{"max_steps": 9}))
	spec.Resources = &outbidv1.Resources{Devices: &outbidv1.DeviceCount{Min: 1, Max: 2}}
	if _, err := client.SubmitSweep(t.Context(), &outbidv1.SubmitSweepRequest{Spec: spec}); err != nil {
		t.Fatal(err)
	}
	get := func() *outbidv1.Trial {
		r, err := client.GetTrial(t.Context(), &outbidv1.GetTrialRequest{Sweep: "s-1"})
		if err != nil {
			return &outbidv1.Trial{} // it does not exist yet
		}
		return r.GetTrial()
	}
	wait(t, func() bool { return len(get().GetLeases()) == 2 }, func() string { return places(get()) })
	step := func(node string, lease uint64, seq, step int64) {
		fork := &outbidv1.ForkRef{Sweep: "s-1", LeaseId: lease}
		loop.Uplink(&outbidv1.Uplink{
			Node: node, Boot: node, FirstSeq: uint64(seq), Forks: []*outbidv1.ForkStatus{{Fork: fork, Version: 1}},
			Messages: []*outbidv1.UplinkMessage{
				{Fork: fork, Kind: &outbidv1.UplinkMessage_Began{Began: &outbidv1.ForkBegan{}}},
				{Fork: fork, Kind: &outbidv1.UplinkMessage_Report{Report: &outbidv1.Report{Seq: 1, Step: step, Metrics: map[string]float64{"loss": 1}}}},
			},
		})
	}
	step("a", 1, 1, 3)
	step("b", 2, 1, 5)
	want := "1 workers running at 3 on a [0] gpu-of-a; 2 workers running at 5 on b [0 1] gpu-of-b"
	wait(t, func() bool { return places(get()) == want }, func() string { return places(get()) })
	if got := get(); got.GetNode() != "a" || got.GetStep() != 3 || got.GetLeases()[1].GetSince() == nil {
		t.Errorf("it is shown as %v", got)
	}
	resp, err := http.Get("http://" + addr + "/v1/sweeps/s-1/trials/0") //nolint:noctx // the test's own server
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var said struct {
		Trial struct {
			Leases []struct {
				LeaseID string `json:"lease_id"`
				Holder  string `json:"holder"`
				Places  []struct {
					Node    string  `json:"node"`
					Devices []int32 `json:"devices"`
				} `json:"places"`
			} `json:"leases"`
		} `json:"trial"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&said); err != nil {
		t.Fatal(err)
	}
	if all := said.Trial.Leases; len(all) != 2 || all[1].LeaseID != "2" || all[1].Holder != "workers" || all[1].Places[0].Node != "b" ||
		!slices.Equal(all[1].Places[0].Devices, []int32{0, 1}) {
		t.Errorf("REST says %+v", said)
	}
}

// wait polls until a condition holds.
func wait(t *testing.T, holds func() bool, got func() string) {
	t.Helper()
	deadline, tick := time.After(30*time.Second), time.NewTicker(5*time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("timed out: %s", got())
		}
	}
}
