package experiment

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/outbid-dev/outbid/orchestrator/ledger"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/policy/registry"
	"github.com/outbid-dev/outbid/orchestrator/policy/themis"
	"github.com/outbid-dev/outbid/orchestrator/sim"
	"github.com/outbid-dev/outbid/orchestrator/sim/clusterspec"
	"github.com/outbid-dev/outbid/orchestrator/trace"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// recorded simulates jobs of arrival and duration on one device and returns the ledger.
func recorded(t *testing.T, policyName string, jobs ...[2]float64) ledger.Ledger {
	t.Helper()
	return recordedWith(t, policyName, func(*sim.Setup) {}, jobs...)
}

// recordedWith is recorded with changes of the setup.
func recordedWith(t *testing.T, policyName string, change func(*sim.Setup), jobs ...[2]float64) ledger.Ledger {
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
	change(&set)
	if _, err := sim.Run(context.Background(), set); err != nil {
		t.Fatal(err)
	}
	return kept.Another()
}

// recordedIDs returns the ids of the sweeps of a ledger, in the order of their submissions, and when the ledger begins.
func recordedIDs(t *testing.T, l ledger.Ledger) (ids []string, start time.Time) {
	t.Helper()
	recording, err := sim.ReadRecording(t.Context(), l)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range recording.Apps {
		ids = append(ids, idOf(a.Spec))
	}
	return ids, recording.Start
}

// simulated returns the runs of a request. The progress must say how many sweeps have ended.
func simulated(t *testing.T, l ledger.Ledger, req *outbidv1.SimulateLedgerRequest) (runs []*outbidv1.SimulatedRun, err error) {
	t.Helper()
	told := map[string]int32{}
	err = WhatIf(t.Context(), registry.Product(), l, req, func(r *outbidv1.SimulateLedgerResponse) error {
		if p := r.GetProgress(); p != nil {
			told[p.GetPolicy()] = max(told[p.GetPolicy()], p.GetEnded())
		} else {
			runs = append(runs, r.GetRun())
		}
		return nil
	})
	for _, run := range runs {
		if run.GetPolicy() != "" && int(told[run.GetPolicy()]) != len(run.GetSweeps()) {
			t.Errorf("the progress of %s ends with %d of %d sweeps", run.GetPolicy(), told[run.GetPolicy()], len(run.GetSweeps()))
		}
	}
	return runs, err
}

// wantSeconds checks a run's policy, weight, and when its sweeps ended. The ledgers of simulations have no rho.
func wantSeconds(t *testing.T, run *outbidv1.SimulatedRun, policy string, weight float64, seconds ...float64) {
	t.Helper()
	if run.GetPolicy() != policy || run.GetWeight() != weight || len(run.GetSweeps()) != len(seconds) {
		t.Fatalf("got %v, want %s with weight %v", run, policy, weight)
	}
	for i, s := range run.GetSweeps() {
		if math.Abs(s.GetSeconds()-seconds[i]) > 5 || s.GetDeviceSeconds() <= 0 || (s.GetRho() > 0) != (policy != "") || s.GetUnknownSpeed() {
			t.Errorf("%s, sweep %d: %v, want an end after %v s", policy, i, s, seconds[i])
		}
	}
}

// A short job that arrived after a long one waits under fifo whatever its weight, and does not under srtf.
func TestWhatIf(t *testing.T) {
	t.Parallel()
	l := recorded(t, "fifo", [2]float64{0, 1000}, [2]float64{10, 100})
	ids, _ := recordedIDs(t, l)
	runs, err := simulated(t, l, &outbidv1.SimulateLedgerRequest{Policies: []string{"srtf"}, Sweep: ids[1], Weight: 2})
	if err != nil || len(runs) != 4 {
		t.Fatal(runs, err)
	}
	wantSeconds(t, runs[0], "", 0, 1000, 1090)
	wantSeconds(t, runs[1], "fifo", 0, 1000, 1090)
	wantSeconds(t, runs[2], "fifo", 2, 1000, 1090)
	wantSeconds(t, runs[3], "srtf", 0, 1100, 100)
	if len(runs[0].GetAssumptions()) == 0 || runs[0].GetSweeps()[1].GetSweep() != ids[1] {
		t.Errorf("what happened: %v", runs[0])
	}
}

// Of equal sweeps of a tenant, the one with more weight ends earlier under a policy with weights.
func TestWhatIfWithMoreWeight(t *testing.T) {
	t.Parallel()
	l := recorded(t, "themis", [2]float64{0, 8000}, [2]float64{10, 8000}, [2]float64{20, 8000}, [2]float64{30, 8000})
	ids, _ := recordedIDs(t, l)
	runs, err := simulated(t, l, &outbidv1.SimulateLedgerRequest{Sweep: ids[1], Weight: 2})
	if err != nil || len(runs) != 3 || runs[2].GetWeight() != 2 || runs[2].GetSweeps()[1].GetSeconds() >= runs[1].GetSweeps()[1].GetSeconds() {
		t.Errorf("got %v, %v", runs, err)
	}
}

// A sweep that a user stopped has no rho: stopped after a second of 1,000, it would be 0.001.
func TestWhatIfOfAStoppedSweep(t *testing.T) {
	t.Parallel()
	l := recordedWith(t, "fifo", func(set *sim.Setup) {
		set.Control.Fairness = themis.Fairness
		set.Apps[1].Commands = []sim.Command{{At: 1001 * time.Second, Command: outbidv1.SweepCommand_SWEEP_COMMAND_STOP}}
	}, [2]float64{0, 1000}, [2]float64{10, 1000})
	runs, err := simulated(t, l, &outbidv1.SimulateLedgerRequest{Policies: []string{"srtf"}})
	if err != nil || len(runs) != 3 {
		t.Fatal(runs, err)
	}
	for _, run := range runs {
		ended, stopped := run.GetSweeps()[0], run.GetSweeps()[1]
		if ended.GetRho() <= 0 || stopped.Rho != nil || math.Abs(stopped.GetSeconds()-991) > 5 {
			t.Errorf("under %q: %v and the stopped %v", run.GetPolicy(), ended, stopped)
		}
	}
}

// Only sweeps that were submitted in the period are simulated.
func TestWhatIfInAPeriod(t *testing.T) {
	t.Parallel()
	l := recorded(t, "fifo", [2]float64{0, 1000}, [2]float64{10, 100}, [2]float64{20, 100})
	ids, start := recordedIDs(t, l)
	at := func(seconds float64) *timestamppb.Timestamp {
		return timestamppb.New(start.Add(time.Duration(seconds * float64(time.Second))))
	}
	runs, err := simulated(t, l, &outbidv1.SimulateLedgerRequest{Policies: []string{"srtf"}, Since: at(5), Until: at(15)})
	if err != nil || len(runs) != 3 {
		t.Fatal(runs, err)
	}
	wantSeconds(t, runs[0], "", 0, 1090)
	wantSeconds(t, runs[1], "fifo", 0, 100)
	if last := runs[0].GetAssumptions()[len(runs[0].GetAssumptions())-1]; !strings.HasPrefix(last, "2 sweeps left out: ") {
		t.Errorf("it assumes %v", runs[0].GetAssumptions())
	}
	for name, req := range map[string]*outbidv1.SimulateLedgerRequest{
		"since: no sweep":        {Policies: []string{"srtf"}, Since: at(5000)},
		"sweep: " + ids[0]:       {Sweep: ids[0], Weight: 2, Since: at(5)},
		"sweep: another-1 was n": {Sweep: "another-1", Weight: 2},
	} {
		_, err := simulated(t, l, req)
		if _, ok := errors.AsType[*InputError](err); !ok || !strings.HasPrefix(err.Error(), name) {
			t.Errorf("%v: %v", req, err)
		}
	}
}

// An error of the receiver ends the simulation.
func TestWhatIfEndsWithItsReceiver(t *testing.T) {
	t.Parallel()
	l := recorded(t, "fifo", [2]float64{0, 1000})
	gone, n := errors.New("gone"), 0
	err := WhatIf(t.Context(), registry.Product(), l, &outbidv1.SimulateLedgerRequest{Policies: []string{"srtf"}}, func(*outbidv1.SimulateLedgerResponse) error {
		if n++; n == 2 {
			return gone
		}
		return nil
	})
	if !errors.Is(err, gone) || n != 2 {
		t.Errorf("after %d messages: %v", n, err)
	}
}
