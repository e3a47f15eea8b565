package registry_test

import (
	"runtime"
	"testing"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/registry"
	"github.com/outbid-dev/outbid/orchestrator/tuner/tunertest"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// hundredThousand runs a sweep of 100,000 trials to its end, one event at a time, and reports the cost of an event, a
// trial and a snapshot, including drawing configurations.
func hundredThousand(b *testing.B, settings tuner.Settings, reportEvery int64) {
	for b.Loop() {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		made, err := registry.New(settings)
		if err != nil {
			b.Fatal(err)
		}
		events, spent := run(b, made, reportEvery)
		runtime.GC()
		runtime.ReadMemStats(&after)
		start := time.Now()
		snapshot, err := made.Snapshot()
		if err != nil {
			b.Fatal(err)
		}
		saved := time.Since(start)
		start = time.Now()
		if _, err := registry.Restore(settings, snapshot); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(spent.Nanoseconds())/float64(events), "ns/event")
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/100_000, "B/trial")
		b.ReportMetric(float64(len(snapshot))/1e6, "snapshot-MB")
		b.ReportMetric(float64(saved.Milliseconds()), "snapshot-ms")
		b.ReportMetric(float64(time.Since(start).Milliseconds()), "restore-ms")
		runtime.KeepAlive(made)
	}
}

// run sends events to a tuner as 1,000 workers would, without storing its answers.
func run(b *testing.B, made tuner.Tuner, reportEvery int64) (events int, spent time.Duration) {
	type trial struct{ step, target int64 }
	var trials []trial
	var queue []tuner.Trial
	gone := map[tuner.Trial]bool{}
	send := func(e tuner.Event) {
		start := time.Now()
		actions, err := made.Handle(e)
		spent += time.Since(start)
		events++
		if err != nil {
			b.Fatal(err)
		}
		for _, a := range actions {
			switch a := a.(type) {
			case tuner.Create:
				queue = append(queue, tuner.Trial(len(trials)))
				trials = append(trials, trial{target: a.UntilStep})
			case tuner.Train:
				trials[a.Trial].target = a.UntilStep
				queue = append(queue, a.Trial)
			case tuner.End:
				gone[a.Trial] = true
			}
		}
	}
	for {
		if len(queue) < 1000 && !made.Status().Waiting {
			send(tuner.Ask{N: 1})
			continue
		}
		if len(queue) == 0 {
			return events, spent
		}
		t := queue[0]
		queue = queue[1:]
		metric := tunertest.RandomMetric(1, t)
		for reportEvery > 0 && trials[t].step+reportEvery < trials[t].target && !gone[t] {
			trials[t].step += reportEvery
			send(tuner.Reported{Trial: t, Step: trials[t].step, Metric: metric})
		}
		if trials[t].step = trials[t].target; !gone[t] {
			send(tuner.Reached{Trial: t, Step: trials[t].step, Metric: metric})
		}
	}
}

func BenchmarkRandom100k(b *testing.B) {
	hundredThousand(b, tunertest.Spec(&outbidv1.Tuner{
		Kind: &outbidv1.Tuner_Random{Random: &outbidv1.RandomSearch{MaxSteps: 1}},
	}, tunertest.Trials(100_000)), 0)
}

func BenchmarkSuccessiveHalving100k(b *testing.B) {
	hundredThousand(b, tunertest.Spec(halving(&outbidv1.SuccessiveHalving{MaxSteps: 729, Trials: 100_000})), 0)
}

func BenchmarkHyperband100k(b *testing.B) {
	hundredThousand(b, tunertest.Spec(hyperband(&outbidv1.Hyperband{MaxSteps: 81, Iterations: 700}), tunertest.Trials(100_000)), 0)
}

func BenchmarkASHA100k(b *testing.B) {
	hundredThousand(b, tunertest.Spec(asha(&outbidv1.Asha{MaxSteps: 729}), tunertest.Trials(100_000)), 0)
}

func BenchmarkASHAStop100k(b *testing.B) {
	hundredThousand(b, tunertest.Spec(asha(&outbidv1.Asha{MaxSteps: 729, Form: "stop"}), tunertest.Trials(100_000)), 0)
}

func BenchmarkMedian100k(b *testing.B) {
	hundredThousand(b, tunertest.Spec(median(&outbidv1.MedianStopping{MaxSteps: 64}), tunertest.Trials(100_000)), 2)
}

func BenchmarkPerformanceCurve100k(b *testing.B) {
	hundredThousand(b, tunertest.Spec(performance(&outbidv1.PerformanceCurve{MaxSteps: 64}), tunertest.Trials(100_000)), 2)
}

func BenchmarkPBT1k(b *testing.B) {
	hundredThousand(b, tunertest.Spec(pbt(&outbidv1.Pbt{MaxSteps: 100, Interval: 10, Population: 1000})), 0)
}
