package baseline_test

import (
	"testing"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/policy/baseline"
	"github.com/outbid-dev/outbid/orchestrator/policy/stagetest"
)

// crowd is Philly's cluster, 210 nodes of 8 devices, with all devices but free held, and 5,000 waiting jobs of 1 to 8.
func crowd(free int) *stagetest.Stage {
	s := stagetest.New(stagetest.Nodes("gpu", 210, 8, 8)...)
	for i := range 210*8 - free {
		j := s.Job(s.App("r", "x"), 1, 1, 100_000)
		runs(j, i/8, i%8)
		j.Granted, j.Reported = s.Now, s.Now
		j.DeviceSeconds = float64(i % 3600)
	}
	for i := range 5000 {
		s.Job(s.App("w", "x"), 1<<(i%4), 1<<(i%4), 100_000).DeviceSeconds = float64(3000 + i%1000)
	}
	return s
}

func BenchmarkDecide(b *testing.B) {
	for _, bc := range []struct {
		name string
		make func() policy.Policy
		free int
	}{
		{"fifo/full", func() policy.Policy { return baseline.FIFO{} }, 0},
		{"fifo/freed", func() policy.Policy { return baseline.FIFO{} }, 8},
		{"tiresias/event", func() policy.Policy { return &baseline.Tiresias{Thresholds: []float64{3600}, Interval: time.Hour} }, 8},
		{"tiresias/round", func() policy.Policy { return &baseline.Tiresias{Thresholds: []float64{3600}, Interval: 1} }, 8},
		{"tiresias/quiet", func() policy.Policy { return &baseline.Tiresias{Thresholds: []float64{1e9}, Interval: 1} }, 0},
		{"srtf/freed", func() policy.Policy { return baseline.SRTF{} }, 8},
		{"drf/freed", func() policy.Policy { return baseline.DRF{} }, 8},
	} {
		b.Run(bc.name, func(b *testing.B) {
			v, p := crowd(bc.free).View(), bc.make()
			v.Free.Commit()
			b.ReportAllocs()
			for b.Loop() {
				p.Decide(v)
				v.Now = v.Now.Add(time.Nanosecond)
			}
		})
	}
}
