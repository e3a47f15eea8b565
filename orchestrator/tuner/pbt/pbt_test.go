package pbt_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/registry"
	"github.com/outbid-dev/outbid/orchestrator/tuner/tunertest"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// spread tracks the distance between the members of a population.
type spread struct {
	population int
	at         map[tuner.Trial]int64
	ended      map[tuner.Trial]bool
	widest     int64
	pauses     int
	configs    map[tuner.Trial]int
	sources    map[tuner.Trial]map[tuner.Trial]bool
}

func pbt(p *outbidv1.Pbt) *outbidv1.Tuner {
	return &outbidv1.Tuner{Kind: &outbidv1.Tuner_Pbt{Pbt: p}}
}

func newSpread(population int) *spread {
	return &spread{
		population: population, at: map[tuner.Trial]int64{}, ended: map[tuner.Trial]bool{},
		configs: map[tuner.Trial]int{}, sources: map[tuner.Trial]map[tuner.Trial]bool{},
	}
}

func (s *spread) observe(step tunertest.Step) error {
	switch e := step.Event.(type) {
	case tuner.Reported:
		if !s.ended[e.Trial] {
			s.at[e.Trial] = max(s.at[e.Trial], e.Step)
		}
	case tuner.Reached:
		s.at[e.Trial] = max(s.at[e.Trial], e.Step)
	case tuner.Exited:
		s.ended[e.Trial] = true
	}
	least, most := int64(1<<62), int64(0)
	for t := range tuner.Trial(s.population) {
		if s.ended[t] {
			continue
		}
		least, most = min(least, s.at[t]), max(most, s.at[t])
	}
	s.widest = max(s.widest, most-least)
	for _, a := range step.Actions {
		switch a := a.(type) {
		case tuner.Pause:
			s.pauses++
		case tuner.End:
			s.ended[a.Trial] = true
		case tuner.Clone:
			s.configs[a.Trial]++
			if s.sources[a.Source] == nil {
				s.sources[a.Source] = map[tuner.Trial]bool{}
			}
			s.sources[a.Source][a.Trial] = true
		}
	}
	return nil
}

// With fewer devices than members, members are at most an interval apart, whatever the devices' speeds.
func TestMembersOfAPopulationAdvanceTogether(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		population := rapid.IntRange(3, 12).Draw(t, "population")
		set := &outbidv1.Pbt{
			MaxSteps: 60, Interval: rapid.Int64Range(1, 12).Draw(t, "interval"), Population: int32(population),
			Quantile: rapid.Float64Range(0.1, 0.5).Draw(t, "quantile"),
		}
		made, err := registry.New(tunertest.Spec(pbt(set)))
		if err != nil {
			t.Fatal(err)
		}
		members := newSpread(population)
		result, err := tunertest.Drive(made, tunertest.Options{
			Seed: rapid.Uint64().Draw(t, "seed"), Workers: rapid.IntRange(1, population-1).Draw(t, "workers"),
			ReportEvery: 1, Fail: rapid.SampledFrom([]float64{0, 0.001}).Draw(t, "fail"), Observe: members.observe,
		})
		if err != nil {
			t.Fatal(err)
		}
		bound := set.GetInterval()
		if slices.ContainsFunc(result.Trials, func(f tunertest.Fact) bool { return f.Failed }) {
			bound *= 2 // the remaining members may have a device each
		}
		if members.widest > bound {
			t.Errorf("members were up to %d steps apart, at an interval of %d", members.widest, set.GetInterval())
		}
		for n, f := range result.Trials {
			if !f.Failed && f.Step != 60 {
				t.Errorf("member %d ended at step %d", n, f.Step)
			}
		}
	})
}

// Four members share two devices, and a smaller height is better: bad configurations are replaced.
func TestMembersLearnFromEachOtherOnFewerDevices(t *testing.T) {
	t.Parallel()
	members := newSpread(4)
	made, err := registry.New(tunertest.Spec(pbt(&outbidv1.Pbt{MaxSteps: 40, Interval: 4, Population: 4, Quantile: 0.25})))
	if err != nil {
		t.Fatal(err)
	}
	result, err := tunertest.Drive(made, tunertest.Options{
		Workers: 2, ReportEvery: 1, Observe: members.observe,
		Metric: func(_ tuner.Trial, config tuner.Config, step int64) float64 {
			return config["lr"].(float64) * float64(step)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	changed := 0
	for n := range result.Trials {
		if members.configs[tuner.Trial(n)] > 0 {
			changed++
		}
	}
	if changed < 2 || members.pauses < 4 {
		t.Errorf("%d of 4 members changed their configuration, after %d pauses; copies by source: %v", changed, members.pauses,
			members.sources)
	}
}

// If every member has a device and all are about as fast, no member pauses.
func TestMembersWithADeviceEachDoNotPause(t *testing.T) {
	t.Parallel()
	const population, interval = 6, 5
	members := newSpread(population)
	made, err := registry.New(tunertest.Spec(pbt(&outbidv1.Pbt{MaxSteps: 50, Interval: interval, Population: population})))
	if err != nil {
		t.Fatal(err)
	}
	var actions []tuner.Action
	handle := func(e tuner.Event) []tuner.Action {
		got, err := made.Handle(e)
		if err != nil {
			t.Fatal(err)
		}
		if err := members.observe(tunertest.Step{Event: e, Actions: got}); err != nil {
			t.Fatal(err)
		}
		actions = append(actions, got...)
		return got
	}
	if got := handle(tuner.Ask{N: population}); len(got) != population {
		t.Fatalf("asked for %d, got %v", population, got)
	}
	for step := int64(1); step <= 50; step++ { // in lockstep, as on equal devices
		for m := range tuner.Trial(population) {
			e := tuner.Event(tuner.Reported{Trial: m, Step: step, Metric: float64(m)})
			if step%interval == 0 {
				e = tuner.Reached{Trial: m, Step: step, Metric: float64(m)}
			}
			handle(e)
		}
	}
	if !made.Status().Exhausted || members.pauses > 0 || len(members.ended) != population {
		t.Errorf("%d pauses, %d ended: %s", members.pauses, len(members.ended), fmt.Sprint(actions))
	}
}
