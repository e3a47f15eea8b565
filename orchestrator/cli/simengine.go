package cli

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/control"
	"github.com/outbid-dev/outbid/orchestrator/ledger"
	"github.com/outbid-dev/outbid/orchestrator/sim"
	"github.com/outbid-dev/outbid/orchestrator/sim/measure"
	"github.com/outbid-dev/outbid/orchestrator/tuner"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// runEngine runs one policy on the simulator.
func runEngine(ctx context.Context, r simRequest) (simResult, error) {
	types := map[string]bool{}
	for _, n := range r.nodes {
		for _, d := range n.Devices {
			types[d.Type] = true
		}
	}
	apps, err := sim.Apps(r.jobs, sim.Making{
		Types: slices.Sorted(maps.Keys(types)), Throughputs: r.table, Slowdown: r.slowdown,
	})
	if err != nil {
		return simResult{}, badInput("the workload: %w", err)
	}
	rules, err := r.make()
	if err != nil {
		return simResult{}, err
	}
	setup := sim.Setup{
		Nodes: r.nodes, Apps: apps, Policy: rules, Options: r.options, Seed: r.seed, RestartDelay: r.delay, Mishaps: r.mishaps, Bars: r.bars,
		Control: control.Settings{Lease: defaultLease, NewTuner: builtInTuner}, Clock: time.Now,
	}
	for _, t := range r.jobs.Tenants {
		setup.Tenants = append(setup.Tenants, measure.Tenant{Name: t.Name, Weight: t.Weight})
	}
	if r.progress != nil {
		setup.Progress = func(at time.Duration, done, jobs int) { r.progress(simProgress{at.Seconds(), done, jobs}) }
	}
	if r.events != nil {
		setup.Ledger = &writtenLedger{to: r.events}
	}
	got, err := sim.Run(ctx, setup)
	return got.Result, err
}

// builtInTuner starts a tuner; those of traces are never programs of their own.
func builtInTuner(s tuner.Settings, snapshot []byte) (tuner.Tuner, error) {
	if len(snapshot) > 0 {
		return tuner.Restore(s, snapshot)
	}
	return tuner.New(s)
}

// writtenLedger writes every batch as a line of JSON and keeps none.
type writtenLedger struct {
	to   io.Writer
	seq  uint64
	hash []byte
}

// errNotKept is what a ledger says that nobody can read.
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

// Resume implements ledger.Ledger.
func (l *writtenLedger) Resume(uint64, []byte) {}

// Last implements ledger.Ledger.
func (l *writtenLedger) Last(context.Context) (uint64, error) { return l.seq, nil }
