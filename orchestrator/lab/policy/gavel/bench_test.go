package gavel

import (
	"math/rand/v2"
	"syscall"
	"testing"
)

// realistic returns jobs of 26 models at four scales, as in Gavel's traces, with different steps.
func realistic(rng *rand.Rand, n int) (Jobs, []float64) {
	models, _ := randomJobs(rng, 26, 3)
	j := Jobs{Workers: []float64{float64(n / 4), float64(n / 4), float64(n / 4)}}
	steps := make([]float64, n)
	for i := range n {
		row := models.Throughput[rng.IntN(26)]
		j.Throughput, j.Scale = append(j.Throughput, row), append(j.Scale, []float64{1, 1, 2, 4}[rng.IntN(4)])
		steps[i] = max(1, row[0]*3600*(0.1+10*rng.Float64()))
	}
	return j, steps
}

// BenchmarkPrograms solves programs of 2,048 jobs and three types, cold, with jobs that all differ and with jobs of 26
// models at four scales. It also reports the CPU time of a program, because wall time depends on other processes.
func BenchmarkPrograms(b *testing.B) {
	j, steps := randomJobs(rand.New(rand.NewPCG(3, 1)), 2048, 3)
	benchmarkPrograms(b, "unlike/", j, steps)
	j, steps = realistic(rand.New(rand.NewPCG(3, 1)), 2048)
	benchmarkPrograms(b, "models/", j, steps)
}

func benchmarkPrograms(b *testing.B, kind string, j Jobs, steps []float64) {
	elapsed := make([]float64, len(steps))
	for i := range elapsed {
		elapsed[i] = float64(i * 10)
	}
	var alone Alone
	isolated := alone.Isolated(make([]int, len(steps)), j, steps)
	all := programs(j, steps, elapsed, isolated)
	all["water-filling"] = func() (Allocation, error) { return j.WaterFill(nil) }
	for _, name := range []string{"max-min", "makespan", "finish-time", "throughput", "water-filling"} {
		b.Run(kind+name, func(b *testing.B) {
			var before, after syscall.Rusage
			_ = syscall.Getrusage(syscall.RUSAGE_SELF, &before)
			for b.Loop() {
				_, _ = all[name]()
			}
			_ = syscall.Getrusage(syscall.RUSAGE_SELF, &after)
			used := after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano()
			b.ReportMetric(float64(used)/float64(b.N)/1e6, "cpu-ms/op")
		})
	}
}
