package gavel

import (
	"math/rand/v2"
	"syscall"
	"testing"
)

// BenchmarkPrograms reports the processor time of a program beside the clock's, which others on the machine stretch.
func BenchmarkPrograms(b *testing.B) {
	j, steps := randomJobs(rand.New(rand.NewPCG(3, 1)), 2048, 3)
	elapsed := make([]float64, len(steps))
	for i := range elapsed {
		elapsed[i] = float64(i * 10)
	}
	var alone Alone
	isolated := alone.Isolated(make([]int, len(steps)), j, steps)
	all := programs(j, steps, elapsed, isolated)
	all["water-filling"] = func() (Allocation, error) { return j.WaterFill(nil) }
	for _, name := range []string{"max-min", "makespan", "finish-time", "throughput", "water-filling"} {
		b.Run(name, func(b *testing.B) {
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
