package gavel

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Over many rounds jobs run for the fractions of time that they are allocated (section 5), for any draw, and a round
// never uses more workers than there are or runs a job twice. The mechanism continues identically from a snapshot.
func TestRoundsFollowTheAllocation(t *testing.T) {
	t.Parallel()
	j := Jobs{
		Throughput: [][]float64{{4, 2, 1}, {1, 3, 3}, {2, 2, 1}, {5, 1, 1}, {1, 0, 0}},
		Scale:      []float64{1, 2, 1, 1, 4},
		Workers:    []float64{4, 2, 2},
	}
	a, err := j.MaxMin()
	if err != nil {
		t.Fatal(err)
	}
	r := NewRounds(3, 360, 1920)
	round := Round{Order: []int{0, 1, 2}, Workers: []int{4, 2, 2}, Throughput: j.Throughput, Scale: []int{1, 2, 1, 1, 4}}
	for i := range j.Scale {
		r.Add(i)
	}
	if picks := r.Pick(round); picks != nil {
		t.Errorf("jobs run without an allocation: %v", picks)
	}
	r.Allocate(360, a.X)
	got := make([][]float64, len(j.Scale))
	for i := range got {
		got[i] = make([]float64, 3)
	}
	const rounds = 4000
	for n := range rounds {
		if n == rounds/2 {
			r = reload(t, r)
		}
		used, seen := make([]int, 3), map[int]bool{}
		for _, p := range r.Pick(round) {
			used[p.Type] += p.Scale
			if seen[p.Job] || used[p.Type] > round.Workers[p.Type] {
				t.Fatalf("job %d runs twice or does not fit", p.Job)
			}
			seen[p.Job] = true
			r.Ran(p.Job, p.Type, 360)
			got[p.Job][p.Type] += 1. / rounds
		}
	}
	for i := range got {
		if want, have := j.Rate(i, a.X), j.Rate(i, got); have < 0.85*want {
			t.Errorf("job %d ran at %.3f steps/s, allocated %.3f: %.3f of %.3f", i, have, want, got[i], a.X[i])
		}
	}
}

func reload(t *testing.T, r *Rounds) *Rounds {
	t.Helper()
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	again := &Rounds{}
	if err := json.Unmarshal(text, again); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(r, again); diff != "" {
		t.Fatal(diff)
	}
	return again
}

func TestRoundsReset(t *testing.T) {
	t.Parallel()
	r := NewRounds(1, 360, 1920)
	r.Add(7)
	if !r.Due(0) {
		t.Error("the first allocation is not due")
	}
	r.Allocate(360, [][]float64{{0.5}})
	if r.Due(5000) {
		t.Error("due although nothing changed")
	}
	r.Ran(7, 0, 360)
	r.Add(8)
	if r.Due(1000) || !r.Due(2280) {
		t.Error("due at 2280 s and not at 1000 s is right")
	}
	r.Allocate(2280, [][]float64{{0.5}, {0.5}})
	if got := r.Shares[0].Deficit[0]; got != 0.5*1920-360 {
		t.Errorf("deficit %g, want half of 1920 s less 360 s", got)
	}
	r.Remove(7)
	if len(r.Shares) != 1 || !r.Changed {
		t.Error("the job is still there")
	}
}

func TestPlace(t *testing.T) {
	t.Parallel()
	servers := [][][]int{{{0, 1, 2, 3}, {4, 5, 6, 7}}}
	picks := []Pick{{Job: 1, Scale: 1}, {Job: 2, Scale: 4}, {Job: 3, Scale: 2}}
	first := Place(picks, servers, nil)
	if diff := cmp.Diff(map[int][]int{2: {0, 1, 2, 3}, 3: {4, 5}, 1: {6}}, first); diff != "" {
		t.Error(diff)
	}
	then := Place([]Pick{{Job: 1, Scale: 1}, {Job: 4, Scale: 4}, {Job: 3, Scale: 2}}, servers, first)
	if diff := cmp.Diff(map[int][]int{4: {0, 1, 2, 3}, 3: {4, 5}, 1: {6}}, then); diff != "" {
		t.Error(diff)
	}
}

func TestFIFOKeepsOrderAndFits(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 1))
	for range 300 {
		f := FIFO{Perf: true}
		workers := []int{rng.IntN(6), rng.IntN(6), rng.IntN(6)}
		var requests []Request
		for i := range 1 + rng.IntN(10) {
			requests = append(requests, Request{Job: i, Scale: 1 + rng.IntN(3), Throughput: []float64{rng.Float64(), rng.Float64(), 1}})
		}
		x := f.Allocate(requests, workers, nil)
		used, waiting := make([]int, 3), false
		for i, row := range x {
			t0 := slices.Index(row, 1)
			if t0 < 0 {
				waiting = true
				continue
			}
			if used[t0] += requests[i].Scale; used[t0] > workers[t0] || waiting {
				t.Fatalf("job %d overtakes or does not fit: %v of %v", i, x, workers)
			}
		}
	}
}
