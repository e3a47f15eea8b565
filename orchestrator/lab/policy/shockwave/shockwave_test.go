package shockwave

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/policy/policytest"
	"github.com/outbid-dev/outbid/orchestrator/policy/stagetest"
)

func TestShockwaveKeepsTheRules(t *testing.T) {
	t.Parallel()
	policytest.Run(t, func() policy.Policy { return New(policy.NewOptions(nil)) })
}

// drawProgram draws jobs that each need one device.
func drawProgram(t *rapid.T) *program {
	p := &program{devices: rapid.IntRange(1, 3).Draw(t, "devices"), rounds: 3, seconds: 120, makespan: 1e-3, power: 12}
	for range rapid.IntRange(1, 4).Draw(t, "jobs") {
		done := rapid.Float64Range(0, 0.99).Draw(t, "done")
		remaining := rapid.Float64Range(1, 2000).Draw(t, "remaining")
		p.jobs = append(p.jobs, job{
			devices: 1, weight: rapid.Float64Range(0.5, 4).Draw(t, "weight"), done: done,
			perRound: (1 - done) * p.seconds / remaining, remaining: remaining, most: rapid.Float64Range(-10, 3000).Draw(t, "most"), rho: 1,
		})
	}
	return p
}

// brute returns the largest value of all divisions in which every job may still be in time if that is wanted.
func (p *program) brute(inTime bool) float64 {
	best := math.Inf(-1)
	var try func(rounds []int, left int)
	try = func(rounds []int, left int) {
		i := len(rounds)
		if i == len(p.jobs) {
			best = max(best, p.value(rounds))
			return
		}
		for n := range min(p.rounds, left) + 1 {
			late := p.jobs[i].most < 0 || p.jobs[i].remaining-float64(n)*p.seconds > p.jobs[i].most+1e-6
			if !inTime || !late {
				try(append(rounds[:i:i], n), left-n)
			}
		}
	}
	try(nil, p.rounds*p.devices)
	return best
}

// For jobs of one device the greedy division with the best bound misses at most what a quarter of a round counts in the
// makespan.
func TestTheWindowIsTheBest(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := drawProgram(t)
		for _, inTime := range []bool{true, false} {
			got, want := math.Inf(-1), p.brute(inTime)
			if rounds := p.best(inTime); rounds != nil {
				got = p.value(rounds)
			}
			if math.IsInf(want, -1) != math.IsInf(got, -1) || got < want-p.makespan*p.seconds/boundsPerRound-1e-9 {
				t.Fatalf("in time %v: value %g, the best is %g", inTime, got, want)
			}
		}
	})
}

// A job that would be late comes before one that would not, and no device idles.
func TestALateJobIsFirst(t *testing.T) {
	t.Parallel()
	p := &program{devices: 2, rounds: 4, seconds: 120, makespan: 1e-3, power: 12, jobs: []job{
		{devices: 1, weight: 1, done: 0.5, perRound: 0.1, remaining: 600, most: 3000, rho: 0.8},
		{devices: 1, weight: 1, done: 0.5, perRound: 0.1, remaining: 600, most: -1, rho: 1.5},
		{devices: 1, weight: 1, done: 0.5, perRound: 0.1, remaining: 600, most: 3000, rho: 0.9},
	}}
	rounds, late := p.solve()
	if order := p.first(rounds, late); !late || len(order) != 2 || order[0] != 1 {
		t.Errorf("rounds %v, late %v, first %v", rounds, late, order)
	}
}

// On one device, jobs of equal length take turns, so that none ends long before the others.
func TestEqualJobsTakeTurns(t *testing.T) {
	t.Parallel()
	s := stagetest.New(stagetest.Nodes("v100", 1, 1, 1)...)
	for _, id := range []string{"a", "b", "c"} {
		s.Job(s.App(id, id), 1, 1, 3600)
	}
	s.Run(t, New(policy.NewOptions(nil)), 6*time.Hour)
	if len(s.Ended) != 3 {
		t.Fatalf("%d of 3 jobs ended", len(s.Ended))
	}
	for name, at := range s.Ended {
		if at < 2*time.Hour {
			t.Errorf("%v ended after %v", name, at)
		}
	}
}
