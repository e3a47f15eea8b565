package gavel

import (
	"math/rand/v2"
	"syscall"
	"testing"
)

// randomJobs are n jobs with throughputs over four decades and some types on which they cannot run.
func randomJobs(rng *rand.Rand, n, r int) (Jobs, []float64) {
	j := Jobs{Workers: make([]float64, r)}
	for t := range r {
		j.Workers[t] = float64(1 + rng.IntN(1+n/2))
	}
	steps := make([]float64, n)
	for i := range n {
		base := 0.01
		for range rng.IntN(5) {
			base *= 10
		}
		row := make([]float64, r)
		for t := range r {
			row[t] = base * (0.1 + rng.Float64())
			if t > 0 && rng.IntN(8) == 0 {
				row[t] = 0
			}
		}
		rng.Shuffle(r, func(a, b int) { row[a], row[b] = row[b], row[a] })
		j.Throughput = append(j.Throughput, row)
		j.Scale = append(j.Scale, []float64{1, 1, 1, 2, 4, 8}[rng.IntN(6)])
		j.Weight = append(j.Weight, []float64{1, 1, 5}[rng.IntN(3)])
		steps[i] = row[0]*3600*(0.1+10*rng.Float64()) + 1
	}
	return j, steps
}

func TestFirst(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		j, steps := randomJobs(rng, []int{1, 5, 30, 2048}[seed%4], 3)
		a, err := j.MaxMin()
		t.Log(len(steps), a.Objective, a.Gap(), a.Steps, err)
		a, err = j.Makespan(steps)
		t.Log(len(steps), a.Objective, a.Gap(), a.Steps, err)
		a, err = j.MakespanAsPublished(steps)
		t.Log(len(steps), a.Objective, a.Bound, a.Steps, err)
	}
}

// cpu reports the processor time of an operation beside the clock's, which others on the machine can stretch.
func cpu(b *testing.B, run func()) {
	var before, after syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &before)
	for b.Loop() {
		run()
	}
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &after)
	used := after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano()
	b.ReportMetric(float64(used)/float64(b.N)/1e6, "cpu-ms/op")
}

func BenchmarkPrograms(b *testing.B) {
	j, steps := randomJobs(rand.New(rand.NewPCG(3, 1)), 2048, 3)
	b.Run("max-min", func(b *testing.B) { cpu(b, func() { _, _ = j.MaxMin() }) })
	b.Run("makespan", func(b *testing.B) { cpu(b, func() { _, _ = j.Makespan(steps) }) })
}
