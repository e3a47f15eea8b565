package control_test

import (
	"bytes"
	"math"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/outbid-dev/outbid/orchestrator/control"
	"github.com/outbid-dev/outbid/orchestrator/policy/baseline"
	"github.com/outbid-dev/outbid/orchestrator/sim"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// learning returns a sweep of the sampler bayes whose trials clients train for one step.
func learning(name string) *outbidv1.SweepSpec {
	spec := sim.Sweep(name, "min", 12, &outbidv1.Tuner{
		Seed: new(uint64(1)), Kind: &outbidv1.Tuner_Bayes{Bayes: &outbidv1.BayesianSearch{MaxSteps: 1}},
	})
	spec.Workload, spec.Resources, spec.Memory = &outbidv1.SweepSpec_External{External: &outbidv1.External{}}, nil, "on"
	return spec
}

// train trains n trials of a sweep, whose loss is least at a learning rate of 0.001.
func (b *bench) train(sweep string, n int) {
	b.tb.Helper()
	for range n {
		var asked *outbidv1.AskTrialResponse
		b.step(control.Ask{Sweep: sweep, Client: "a", Done: func(r *outbidv1.AskTrialResponse, err error) {
			if asked = r; err != nil || r.GetTrial() == nil {
				b.tb.Fatal(r, err)
			}
		}})
		lr := asked.GetTrial().GetConfig().GetFields()["lr"].GetNumberValue()
		b.step(control.Tell{Request: &outbidv1.TellTrialRequest{
			Sweep: sweep, Trial: asked.GetTrial().GetNumber(), LeaseId: asked.GetLeaseId(),
			Reports: []*outbidv1.Report{{Step: 1, Time: timestamppb.New(b.now), Metrics: map[string]float64{"loss": math.Abs(math.Log10(lr) + 3)}}},
		}, Done: func(_ *outbidv1.TellTrialResponse, err error) {
			if err != nil {
				b.tb.Fatal(err)
			}
		}})
	}
}

// A sweep that asks for it starts from the results of earlier ones of its tenant with the same metric, mode and most of
// the parameters.
func TestWhatASweepRemembers(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1, learning("s"))
	b.train("s-1", 10)
	for name, tc := range map[string]struct {
		change func(*outbidv1.SweepSpec)
		from   int
	}{
		"alike":         {func(*outbidv1.SweepSpec) {}, 1},
		"a wider range": {func(s *outbidv1.SweepSpec) { s.GetSpace()["lr"].GetFloat().High = 10 }, 1},
		"more":          {func(s *outbidv1.SweepSpec) { s.Space["depth"] = s.GetSpace()["width"] }, 1},
		"the tuner auto": {func(s *outbidv1.SweepSpec) {
			s.Tuner = &outbidv1.Tuner{Kind: &outbidv1.Tuner_Auto{Auto: &outbidv1.Auto{}}}
		}, 1},
		"no memory":      {func(s *outbidv1.SweepSpec) { s.Memory = "" }, 0},
		"memory: off":    {func(s *outbidv1.SweepSpec) { s.Memory = "off" }, 0},
		"another tenant": {func(s *outbidv1.SweepSpec) { s.Tenant = "rival" }, 0},
		"another metric": {func(s *outbidv1.SweepSpec) { s.Metric = "accuracy" }, 0},
		"another mode":   {func(s *outbidv1.SweepSpec) { s.Mode = "max" }, 0},
		"another range": {func(s *outbidv1.SweepSpec) {
			s.GetSpace()["lr"].GetFloat().Low, s.GetSpace()["lr"].GetFloat().High = 1e9, 1e10
		}, 0},
		"others":     {func(s *outbidv1.SweepSpec) { s.Space = map[string]*outbidv1.Parameter{"x": s.GetSpace()["lr"]} }, 0},
		"objectives": {func(s *outbidv1.SweepSpec) { s.Objectives = []*outbidv1.Objective{{Metric: "size", Mode: "min"}} }, 0},
		"random":     {func(s *outbidv1.SweepSpec) { s.Tuner = sim.Tuner("random", nil) }, 0},
	} {
		spec := learning("n")
		tc.change(spec)
		s := b.core.State().Sweeps[b.submit(spec)]
		if got := len(s.Memory.GetSweeps()); got != tc.from {
			t.Errorf("%s: it remembers %d sweeps, want %d", name, got, tc.from)
			continue
		}
		for _, one := range s.Memory.GetSweeps() {
			if one.GetSweep() != "s-1" || one.GetTrials() != 10 || len(one.GetCosts()) != 10 || len(one.GetPoints()) != 10*len(spec.GetSpace()) {
				t.Errorf("%s: %v", name, one)
			}
		}
	}
}

// A sweep's memory does not depend on the earlier sweep's life and survives a restart with and
// without a snapshot: the tuner then makes the same trials.
func TestAMemoryIsTheSweepsOwn(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1, learning("s"))
	b.train("s-1", 12)
	second := b.submit(learning("s"))
	b.train(second, 3)
	b.step(control.Delete{Sweep: "s-1", Actor: "me", Done: func(_ state.Deleted, err error) {
		if err != nil {
			t.Fatal(err)
		}
	}})
	s := b.core.State().Sweeps[second]
	if got := b.core.State().View(s).GetMemory(); len(got) != 1 || got[0].GetSweep() != "s-1" || got[0].GetTrials() != 12 || got[0].GetPoints() != nil {
		t.Errorf("users see %v", got)
	}
	want, err := b.core.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	for _, saved := range []bool{false, true} {
		if saved {
			if err := b.ledger.SaveSnapshot(t.Context(), b.core.State().Seq, want); err != nil {
				t.Fatal(err)
			}
		}
		again, err := control.Restore(t.Context(), settings(), baseline.FIFO{}, b.ledger.Another(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := again.Snapshot(); err != nil || !bytes.Equal(got, want) {
			t.Errorf("after a restart, saved %v, it differs: %v", saved, err)
		}
		if !proto.Equal(again.State().Sweeps[second].Memory, s.Memory) {
			t.Error("it remembers something else")
		}
	}
	if third := b.core.State().Sweeps[b.submit(learning("s"))]; third.Memory != nil {
		t.Errorf("it remembers a sweep of 3 trials: %v", third.Memory)
	}
	b.step(control.Extend{Request: &outbidv1.ExtendSweepRequest{Sweep: second, Space: map[string]*outbidv1.Parameter{
		"lr": {Kind: &outbidv1.Parameter_Float{Float: &outbidv1.FloatRange{Low: 1e-6, High: 1, Log: true}}},
	}}, Actor: "me", Done: func(_ []*outbidv1.TrainedAgain, err error) {
		if err != nil {
			t.Fatal(err)
		}
	}})
	if got := s.Memory.GetSweeps(); len(got) != 1 || got[0].GetTrials() != 12 || got[0].GetPoints() != nil {
		t.Errorf("in a wider space it still has the points of the old one: %v", got)
	}
	b.train(second, 2)
	again, err := control.Restore(t.Context(), settings(), baseline.FIFO{}, b.ledger.Another(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := again.Snapshot(); err != nil || !bytes.Equal(got, must(b.core.Snapshot())) {
		t.Errorf("after an extension and a restart it differs: %v", err)
	}
}

func must(data []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return data
}
