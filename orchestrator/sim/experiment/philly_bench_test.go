package experiment

import (
	"context"
	"errors"
	"io/fs"
	"testing"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/control"
	"github.com/outbid-dev/outbid/orchestrator/lab"
	"github.com/outbid-dev/outbid/orchestrator/lab/generate"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/sim"
	"github.com/outbid-dev/outbid/orchestrator/sim/clusterspec"
	"github.com/outbid-dev/outbid/orchestrator/trace"
	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/registry"
)

// phillyTrace is the path of the public Philly trace, outside the repository.
const phillyTrace = "../../../../shared/data/traces/philly_82k.csv.gz"

// BenchmarkSimPhilly runs ASTRAEA's two weeks of Philly, 44,329 jobs on 210 nodes of 8 GPUs, under policies without
// throughputs. It reports events per second, the share of GPU time in use and the peak memory of the process.
func BenchmarkSimPhilly(b *testing.B) {
	base, err := trace.Open(phillyTrace, trace.Options{})
	if errors.Is(err, fs.ErrNotExist) {
		b.Skip("needs the Philly trace beside the repository")
	}
	if err != nil {
		b.Fatal(err)
	}
	made, err := generate.MakeASTRAEA(generate.ASTRAEAPhilly(base))
	if err != nil {
		b.Fatal(err)
	}
	nodes, err := clusterspec.Parse("gpu:1680/8")
	if err != nil {
		b.Fatal(err)
	}
	apps, err := sim.Apps(made, sim.Making{Types: []string{"gpu"}})
	if err != nil {
		b.Fatal(err)
	}
	for _, name := range []string{"fifo", "tiresias"} {
		b.Run(name, func(b *testing.B) {
			events, used := 0, 0.0
			peak := watchMemory()
			for b.Loop() {
				r, err := sim.Run(context.Background(), sim.Setup{
					Nodes: nodes, Apps: apps, Policy: makerOf(b, name), Control: benchSettings(), RestartDelay: 10 * time.Second,
				})
				if err != nil {
					b.Fatal(err)
				}
				events += r.Events
				used = r.Utilization
			}
			b.ReportMetric(float64(events)/b.Elapsed().Seconds(), "events/s")
			b.ReportMetric(used, "utilization")
			b.ReportMetric(float64(peak())/(1<<20), "peak-MiB")
		})
	}
}

// benchSettings returns a server's settings with tuners in this process.
func benchSettings() control.Settings {
	return control.Settings{Lease: 15 * time.Second, NewTuner: func(s tuner.Settings, snapshot []byte) (tuner.Tuner, error) {
		if snapshot != nil {
			return registry.Restore(s, snapshot)
		}
		return registry.New(s)
	}}
}

// makerOf returns a function that creates a policy of the registry.
func makerOf(b *testing.B, name string) func() policy.Policy {
	b.Helper()
	return func() policy.Policy {
		p, err := lab.Policies().New(name, nil)
		if err != nil {
			b.Fatal(err)
		}
		return p
	}
}
