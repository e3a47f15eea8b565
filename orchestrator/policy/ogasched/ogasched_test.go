package ogasched

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/policy/ogasched/ascent"
	"github.com/outbid-dev/outbid/orchestrator/policy/stagetest"
)

func create(t *testing.T, options map[string]string, changes ...func(*Variant)) *Policy {
	t.Helper()
	variant := Default()
	for _, change := range changes {
		change(&variant)
	}
	o := policy.NewOptions(options)
	p := NewVariant(o, variant)
	if err := o.Err(); err != nil {
		t.Fatal(err)
	}
	return p
}

func sweep(s *stagetest.Stage, id string, jobs, least, most int, steps int64) *policy.App {
	a := s.App(id, id)
	for range jobs {
		s.Job(a, least, most, steps)
	}
	return a
}

func held(a *policy.App) (n int) {
	for _, j := range a.Jobs {
		n += j.Held().Size()
	}
	return n
}

// A sweep submitted to a full cluster gets as much as an equal one that held everything after some slots, and then
// stops end.
func TestSweepsAlikeComeToHoldAsMuch(t *testing.T) {
	t.Parallel()
	s := stagetest.New(stagetest.Nodes("v100", 2, 4, 4)...)
	s.Stop = 5 * time.Second
	p := create(t, nil)
	first := sweep(s, "first", 20, 1, 1, 1_000_000)
	s.Run(t, p, 5*time.Minute)
	if held(first) != 8 {
		t.Fatalf("alone it holds %d of 8", held(first))
	}
	second := sweep(s, "second", 20, 1, 1, 1_000_000)
	s.Run(t, p, time.Hour)
	stopped := s.Revoked
	if held(first) != 4 || held(second) != 4 || stopped > 12 {
		t.Fatalf("they hold %d and %d of 8, after %d stops", held(first), held(second), stopped)
	}
	s.Run(t, p, 10*time.Hour)
	if s.Revoked != stopped {
		t.Errorf("%d more stops though nothing changed", s.Revoked-stopped)
	}
}

// Weights count, and a sweep gets the type on which it is fastest if the other sweep is equally fast on both.
func TestSpeedAndWeightCount(t *testing.T) {
	t.Parallel()
	s := stagetest.New(append(stagetest.Nodes("a100", 1, 4, 4), stagetest.Nodes("k80", 1, 4, 4)...)...)
	p := create(t, map[string]string{"beta": "0"}, func(v *Variant) { v.Utility = ascent.Poly })
	any := sweep(s, "any", 4, 1, 1, 1_000_000)
	picky := s.App("picky", "picky")
	for range 4 {
		s.Job(picky, 1, 1, 1_000_000).Speeds = &cluster.Speeds{Measured: []cluster.Speed{
			{Type: "a100", Devices: 1, Rate: 10}, {Type: "k80", Devices: 1, Rate: 1},
		}}
	}
	s.Run(t, p, time.Hour)
	if p.m.Shares["picky"]["a100-000/a100"] < 1.5 || p.m.Shares["any"]["k80-000/k80"] < 3 {
		t.Errorf("shares are %v", p.m.Shares)
	}
	any.Weight = 3
	before := p.m.Shares["any"]["a100-000/a100"]
	s.Run(t, p, time.Hour)
	if p.m.Shares["any"]["a100-000/a100"] < before+0.5 {
		t.Errorf("with three times the weight %v, before %g", p.m.Shares, before)
	}
}

// Gangs are whole or wait, shares too small for a gang leave nothing idle, and every trial ends.
func TestGangsAreWholeAndEveryJobEnds(t *testing.T) {
	t.Parallel()
	s := stagetest.New(stagetest.Nodes("v100", 3, 4, 4)...)
	s.Stop = 10 * time.Second
	p := create(t, nil)
	for i := range 12 {
		sweep(s, fmt.Sprintf("sweep-%d", i), 3, 1+i%4, 4, int64(2000+i*931%3000))
		s.Run(t, p, 2*time.Minute)
	}
	s.Run(t, p, 1000*time.Hour)
	if len(s.Ended) != 36 {
		t.Errorf("%d of 36 jobs ended", len(s.Ended))
	}
	t.Logf("%d stops", s.Revoked)
	if s.Revoked > 300 {
		t.Errorf("%d stops for 36 jobs", s.Revoked)
	}
}

// The reason of a round contains the worth of the fractions and of the whole devices, and shares fit each node.
func TestSharesFitAndRoundingIsExplained(t *testing.T) {
	t.Parallel()
	s := stagetest.New(stagetest.Nodes("v100", 2, 4, 4)...)
	p := create(t, nil, func(v *Variant) { v.Rate = 25 })
	for i := range 3 {
		sweep(s, fmt.Sprintf("sweep-%d", i), 4, 2, 2, 1_000_000)
	}
	plan := s.Decide(t, p)
	if !strings.Contains(plan.Reason, "would be worth") || !plan.Next.Equal(s.Now.Add(time.Minute)) {
		t.Errorf("reason %q, next %v", plan.Reason, plan.Next)
	}
	for _, node := range []string{"v100-000/v100", "v100-001/v100"} {
		sum := 0.0
		for _, own := range p.m.Shares {
			sum += own[node]
		}
		if math.Abs(sum-4) > 1e-9 {
			t.Errorf("shares add up to %g of 4 devices of %s", sum, node)
		}
	}
}
