package experiment

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/sim"
	"github.com/outbid-dev/outbid/orchestrator/sim/measure"
	"github.com/outbid-dev/outbid/orchestrator/trace"
)

// Request is one run: a policy on a trace.
type Request struct {
	Policy PolicyFactory
	Nodes  []cluster.Node
	Trace  *trace.Trace
	Table  *trace.Throughputs
	Seed   uint64
	// RestartDelay is the time until a job trains again after its devices changed.
	RestartDelay time.Duration
	// Slowdown is the slowdown by spread, four numbers, or nil for the workload's own.
	Slowdown []float64
	Mishaps  sim.Mishaps
	// Mixed allows the devices of a job to be of several types. Forks is the number of processes that may train a job,
	// under policies that fork jobs, unless the job sets it. ForkCosts are the additional costs of their fork slots.
	Mixed     bool
	Forks     string
	ForkCosts sim.ForkCosts
	// Bars is the number of leases that are kept for a Gantt chart.
	Bars int
	// Events receives every event as a JSON line, or is nil.
	Events io.Writer
	// Progress is called at intervals with the progress of the run, or is nil.
	Progress func(Progress)
}

// Progress is the progress of a run.
type Progress struct {
	// At is the virtual time in seconds.
	At         float64
	Done, Jobs int
}

// Engine runs one policy. Simulate is the real one; tests use others.
type Engine func(ctx context.Context, r Request) (measure.Result, error)

// Hooks are called while a plan runs. All except Engine may be nil.
type Hooks struct {
	// Engine runs each policy.
	Engine Engine
	// Events opens the destination of a policy's events and calls write with it.
	Events func(policy string, write func(io.Writer) error) error
	// Progress is called concurrently by the runs.
	Progress func(policy string, p Progress)
	// Result is called with each result, in the order of policies, as soon as it and those before it are available.
	Result func(measure.Result) error
}

// mostRows is the largest cluster, in devices, for which the leases of a Gantt chart are kept. MostBars is the maximum
// number of leases.
const (
	mostRows = 512
	MostBars = 50_000
)

// outcome is a run's result or error.
type outcome struct {
	result measure.Result
	err    error
}

// Run runs every policy, Parallel at once. It returns the available results, also if one failed, and waits for all runs
// that it started.
func (p *Plan) Run(ctx context.Context, h Hooks) ([]measure.Result, error) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make([]chan outcome, len(p.Factories))
	for i := range ended {
		ended[i] = make(chan outcome, 1)
	}
	var all sync.WaitGroup
	all.Go(func() { p.start(ctx, ended, h) })
	defer all.Wait()
	defer cancel()
	var results []measure.Result
	for i, f := range p.Factories {
		o := <-ended[i]
		if o.err != nil && ctx.Err() != nil {
			return results, o.err // the context has the reason
		}
		if o.err != nil {
			return results, fmt.Errorf("policy %s: %w", f.Name, o.err)
		}
		results = append(results, o.result)
		if h.Result == nil {
			continue
		}
		if err := h.Result(o.result); err != nil {
			return results, err
		}
	}
	return results, nil
}

// start runs the policies in order, Parallel at once, and returns when all have ended.
func (p *Plan) start(ctx context.Context, ended []chan outcome, h Hooks) {
	var all sync.WaitGroup
	turns := make(chan struct{}, p.Parallel)
	var compare Comparison
	if p.Compare != nil {
		compare = p.Compare(p, h.Engine)
	}
	for i, f := range p.Factories {
		select {
		case turns <- struct{}{}:
		case <-ctx.Done():
			ended[i] <- outcome{err: context.Cause(ctx)}
			continue
		}
		all.Go(func() {
			r, err := p.runOne(ctx, f, h, compare)
			ended[i] <- outcome{r, err}
			<-turns
		})
	}
	all.Wait()
}

// runOne runs one policy.
func (p *Plan) runOne(ctx context.Context, f PolicyFactory, h Hooks, compare Comparison) (measure.Result, error) {
	r := Request{
		Policy: f, Nodes: p.Nodes, Trace: p.Trace, Table: p.Table, Seed: p.Workload.Seed, RestartDelay: p.RestartDelay,
		Slowdown: p.Slowdown, Mishaps: p.Mishaps, Mixed: p.Mixed || f.Mixed, Forks: p.Forks, ForkCosts: p.ForkCosts,
	}
	if h.Progress != nil {
		r.Progress = func(at Progress) { h.Progress(f.Name, at) }
	}
	if p.Charts && p.Devices() <= mostRows {
		r.Bars = MostBars
	}
	peak := watchMemory()
	var out measure.Result
	run := func(w io.Writer) (err error) {
		r.Events = w
		out, err = h.Engine(ctx, r)
		return err
	}
	var err error
	if h.Events == nil {
		err = run(nil)
	} else {
		err = h.Events(f.Name, run)
	}
	out.PeakMemory = peak()
	if err == nil && compare != nil {
		err = compare(ctx, &out)
	}
	if p.Timeless {
		out = out.Timeless()
	}
	return out, err
}
