package experiment

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/control"
	"github.com/outbid-dev/outbid/orchestrator/ledger"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/sim"
	"github.com/outbid-dev/outbid/orchestrator/sim/measure"
	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/registry"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// lease is the duration of the leases of simulated nodes, the default of servers.
const lease = 15 * time.Second

// Simulate is the Engine that runs a policy on the simulator.
func Simulate(ctx context.Context, r Request) (measure.Result, error) {
	types := map[string]bool{}
	for _, n := range r.Nodes {
		for _, d := range n.Devices {
			types[d.Type] = true
		}
	}
	apps, err := sim.Apps(r.Trace, sim.Making{
		Types: slices.Sorted(maps.Keys(types)), Throughputs: r.Table, Slowdown: r.Slowdown,
		Mixed: r.Mixed, Forks: r.Forks,
	})
	if err != nil {
		return measure.Result{}, BadInput("the workload: %w", err)
	}
	rules, err := r.Policy.New()
	if err != nil {
		return measure.Result{}, err
	}
	if !policy.ForksJobs(rules) {
		apps = sim.WithoutForks(apps)
	}
	setup := sim.Setup{
		Nodes: r.Nodes, Apps: apps, Policy: func() policy.Policy { return rules }, Options: r.Policy.Options, Seed: r.Seed, RestartDelay: r.RestartDelay, Mishaps: r.Mishaps, Bars: r.Bars,
		Control: settings(), Clock: time.Now, Forks: r.ForkCosts,
	}
	for _, t := range r.Trace.Tenants {
		setup.Tenants = append(setup.Tenants, measure.Tenant{Name: t.Name, Weight: t.Weight})
	}
	if r.Progress != nil {
		setup.Progress = func(at time.Duration, done, jobs int) { r.Progress(Progress{at.Seconds(), done, jobs}) }
	}
	if r.Events != nil {
		setup.Ledger = &writtenLedger{to: r.Events}
	}
	got, err := sim.Run(ctx, setup)
	return got.Result, err
}

// settings returns the control loop's settings in a simulation or a replay.
func settings() control.Settings { return control.Settings{Lease: lease, NewTuner: builtInTuner} }

// builtInTuner creates a tuner; traces never use plugins.
func builtInTuner(s tuner.Settings, snapshot []byte) (tuner.Tuner, error) {
	if len(snapshot) > 0 {
		return registry.Restore(s, snapshot)
	}
	return registry.New(s)
}

// writtenLedger writes every batch as a line of JSON and keeps none.
type writtenLedger struct {
	to   io.Writer
	seq  uint64
	hash []byte
}

// errNotKept is the error of reading such a ledger.
var errNotKept = errors.New("the ledger of this run is written to a file only")

// Append implements ledger.Ledger.
func (l *writtenLedger) Append(_ context.Context, at time.Time, events []*outbidv1.Event) (*outbidv1.Batch, error) {
	b, err := ledger.NewBatch(l.seq+1, at, l.hash, events)
	if err != nil {
		return nil, err
	}
	if err := ledger.WriteLine(l.to, b); err != nil {
		return nil, err
	}
	l.seq, l.hash = b.GetSeq(), b.GetHash()
	return b, nil
}

// Read implements ledger.Ledger.
func (l *writtenLedger) Read(context.Context, uint64, func(*outbidv1.Batch) error) error {
	return errNotKept
}

// SaveSnapshot implements ledger.Ledger.
func (l *writtenLedger) SaveSnapshot(context.Context, uint64, []byte) error { return errNotKept }

// LoadSnapshot implements ledger.Ledger.
func (l *writtenLedger) LoadSnapshot(context.Context) (uint64, []byte, error) {
	return 0, nil, errNotKept
}

// SaveChanges implements ledger.Ledger.
func (l *writtenLedger) SaveChanges(context.Context, uint64, uint64, []byte) error { return errNotKept }

// LoadChanges implements ledger.Ledger.
func (l *writtenLedger) LoadChanges(context.Context, uint64) ([][]byte, error) {
	return nil, errNotKept
}

// Resume implements ledger.Ledger.
func (l *writtenLedger) Resume(uint64, []byte) {}

// Last implements ledger.Ledger.
func (l *writtenLedger) Last(context.Context) (uint64, error) { return l.seq, nil }
