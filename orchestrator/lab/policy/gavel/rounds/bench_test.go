package rounds_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/lab/policy/gavel/rounds"
	"github.com/outbid-dev/outbid/orchestrator/policy"
)

// BenchmarkDecide measures the beginning of a round with 5,000 jobs on 210 nodes of 8 devices, and a decision in the
// middle of one. In each round one job in fifty is replaced.
func BenchmarkDecide(b *testing.B) {
	for _, name := range []string{"gavel-las", "gavel-fifo", "isolated", "gavel-ftf"} {
		b.Run(name, func(b *testing.B) {
			d := newDriver(b, rounds.New(name, policy.NewOptions(nil)), 8, map[string]int{"gpu": 1680}, "gpu")
			rng := rand.New(rand.NewPCG(1, 1))
			models := make([]*cluster.Speeds, 26)
			for i := range models {
				models[i] = &cluster.Speeds{Measured: []cluster.Speed{{Type: "gpu", Devices: 1, Rate: 0.5 + rng.Float64()}}}
			}
			come := func() {
				d.add(d.seconds(d.v.Now), int64(1e6+rng.IntN(1e6)), []int{1, 1, 1, 1, 2, 4, 8}[rng.IntN(7)], 1, models[rng.IntN(26)])
				d.v.Apps = append(d.v.Apps, d.coming[len(d.coming)-1].job.App)
			}
			d.v.Now = d.time(0)
			for range 5000 {
				come()
			}
			begun, within, asked := time.Duration(0), time.Duration(0), 0
			decide := func() time.Duration {
				before := d.decided
				d.decide()
				return d.decided - before
			}
			decide()
			b.ResetTimer()
			for b.Loop() {
				d.v.Now = d.v.Now.Add(6 * time.Minute)
				for range 100 {
					a := d.v.Apps[rng.IntN(len(d.v.Apps))]
					if a.Jobs[0].Running() {
						d.leave(a.Jobs[0])
					}
					a.TotalSteps, a.Jobs[0].TotalSteps = 0, 0
				}
				kept := d.v.Apps[:0]
				for _, a := range d.v.Apps {
					if a.TotalSteps > 0 {
						kept = append(kept, a)
					}
				}
				d.v.Apps = kept
				for len(d.v.Apps) < 5000 {
					come()
				}
				begun += decide()
				d.v.Now = d.v.Now.Add(time.Minute)
				within += decide()
				asked++
			}
			b.ReportMetric(float64(begun.Microseconds())/float64(asked)/1000, "ms/round")
			b.ReportMetric(float64(within.Nanoseconds())/float64(asked)/1000, "us/within")
		})
	}
}
