package experiment

import (
	"context"
	"math"
	"testing"

	"github.com/outbid-dev/outbid/orchestrator/explain"
	"github.com/outbid-dev/outbid/orchestrator/ledger"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/policy/registry"
	"github.com/outbid-dev/outbid/orchestrator/sim"
	"github.com/outbid-dev/outbid/orchestrator/sim/clusterspec"
	"github.com/outbid-dev/outbid/orchestrator/trace"
)

// recorded simulates jobs of arrival and duration on one device and returns the ledger.
func recorded(t *testing.T, policyName string, jobs ...[2]float64) ledger.Ledger {
	t.Helper()
	made := &trace.Trace{Name: "hand"}
	for i, j := range jobs {
		made.Jobs = append(made.Jobs, trace.Job{ID: string(rune('a' + i)), Submit: j[0], MinGPUs: 1, MaxGPUs: 1, Duration: j[1], Weight: 1})
	}
	apps, err := sim.Apps(made, sim.Making{Types: []string{"gpu"}})
	if err != nil {
		t.Fatal(err)
	}
	nodes, err := clusterspec.Parse("gpu:1/1")
	if err != nil {
		t.Fatal(err)
	}
	kept := ledger.NewMemory()
	set := sim.Setup{Nodes: nodes, Apps: apps, Control: settings(), Ledger: kept, Policy: func() policy.Policy {
		p, err := registry.Product().New(policyName, policy.NewOptions(nil))
		if err != nil {
			t.Error(err)
		}
		return p
	}}
	if _, err := sim.Run(context.Background(), set); err != nil {
		t.Fatal(err)
	}
	return kept.Another()
}

// A short job that arrived after a long one waits under fifo whatever its weight, and does not under srtf.
func TestOtherwise(t *testing.T) {
	t.Parallel()
	l := recorded(t, "fifo", [2]float64{0, 1000}, [2]float64{10, 100})
	recording, err := sim.ReadRecording(context.Background(), l)
	if err != nil {
		t.Fatal(err)
	}
	short := recording.Apps[1].Spec.GetLabels()["replayed"]
	got, err := Otherwise(context.Background(), registry.Product(), l, short, []string{"srtf"})
	if err != nil {
		t.Fatal(err)
	}
	want := []explain.Outcome{{Policy: "fifo", Factor: 1, Seconds: 1090}, {Policy: "fifo", Factor: 2, Seconds: 1090}, {Policy: "srtf", Factor: 1, Seconds: 100}}
	if len(got) != len(want) {
		t.Fatalf("it found %v, want %v", got, want)
	}
	for i := range want {
		if got[i].Policy != want[i].Policy || got[i].Factor != want[i].Factor || math.Abs(got[i].Seconds-want[i].Seconds) > 5 {
			t.Errorf("it found %+v, want %+v", got[i], want[i])
		}
	}
	if other, err := Otherwise(context.Background(), registry.Product(), l, "another-1", nil); err != nil || other != nil {
		t.Errorf("of a sweep that is not in the ledger it found %v, %v", other, err)
	}
}

// Of equal sweeps of a tenant, the one with twice the weight ends earlier under a policy with weights.
func TestOtherwiseWithMoreWeight(t *testing.T) {
	t.Parallel()
	l := recorded(t, "themis", [2]float64{0, 8000}, [2]float64{10, 8000}, [2]float64{20, 8000}, [2]float64{30, 8000})
	recording, err := sim.ReadRecording(context.Background(), l)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Otherwise(context.Background(), registry.Product(), l, recording.Apps[1].Spec.GetLabels()["replayed"], nil)
	if err != nil || len(got) != 2 || got[1].Factor != doubled || got[1].Seconds >= got[0].Seconds {
		t.Errorf("it found %v, %v", got, err)
	}
}
