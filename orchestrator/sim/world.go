// Package sim runs the real control loop on a virtual clock, with simulated workers that use the real protocol. A
// Transport carries messages: Perfect, or a Network with faults. A Model determines how trials train. Everything random
// comes from one seed, so the same setup gives the same events. Every event is checked against the invariants
// (invariants.go); a violation is an error.
package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/control"
	"github.com/outbid-dev/outbid/orchestrator/ledger"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/sim/measure"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// World is a simulated cluster and its orchestrator. It is not safe for concurrent use.
type World struct {
	set   Setup
	clock clock
	start time.Time
	rng   *rand.Rand
	model Model

	core   *control.Core
	policy policy.Policy
	ledger ledger.Ledger
	// memory is the ledger if it can be read again, or nil.
	memory *ledger.Memory
	// term is the orchestrator's term, crashes the number of its crashes.
	term    uint64
	crashes int

	nodes []cluster.Node
	// places is the index of a node, by name; names are in the order in which nodes were added.
	places  map[string]int
	names   []string
	workers map[string]*worker
	// leases are the current leases in the ledger.
	leases map[uint64]grant
	// had are the trials that had a lease that ended.
	had map[trialKey]bool
	// exact is the exact step of each checkpoint, by key; the checkpoint itself has the whole step below.
	exact map[string]float64
	// pending are the inputs of the core's next step.
	pending []control.Input
	*people
	*snapshots
	// wakeAt is the time when the core must step even without input.
	wakeAt     time.Time
	invariants *invariants
	// recorder is nil if no figures are needed.
	recorder *recorder
	events   int64
	// trained counts reports, killed the workers that trials crashed.
	trained int64
	killed  int
	err     error
}

// grant is the simulator's data of a lease.
type grant struct {
	gang cluster.Gang
	// again is set if its trial had devices before, part if it is part of a fork slot.
	again, part bool
}

type trialKey struct {
	sweep string
	trial int32
}

// beginning is the start of virtual time.
func beginning() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }

// New returns a world at the start of its time.
func New(set Setup) (*World, error) {
	if set.SaveEvery == 0 {
		set.SaveEvery = 30 * time.Minute
	}
	if set.Transport == nil {
		set.Transport = Perfect()
	}
	if set.Model == nil {
		set.Model = Curves{}
		set.Control.MayReportNothing = true
	}
	if set.Mishaps.OrchestratorFails > 0 && set.Transport.Perfect() {
		return nil, errors.New("simulating: crashes of the orchestrator need a transport that is not perfect, so that workers repeat messages")
	}
	w := &World{
		set: set, start: beginning(), clock: clock{now: beginning()}, rng: rand.New(rand.NewPCG(set.Seed, 2)), model: set.Model,
		places: map[string]int{}, workers: map[string]*worker{}, leases: map[uint64]grant{}, had: map[trialKey]bool{}, exact: map[string]float64{},
		snapshots: &snapshots{every: set.SnapshotEvery},
	}
	w.people = &people{world: w, apps: map[string]*App{}, asked: map[int]func() control.Input{}}
	set.Transport.Open(w.clock.after, w.rng)
	w.invariants = newInvariants(w)
	if err := w.open(); err != nil {
		return nil, err
	}
	for _, t := range set.Tenants {
		w.addTenant(&outbidv1.Tenant{Name: t.Name, Weight: t.Weight})
	}
	for _, c := range set.Prices {
		w.at(c.At, func() { w.pending = append(w.pending, control.ReadPrices{}) })
	}
	w.addNodes()
	for i := range set.Apps {
		w.arrive(&set.Apps[i])
	}
	if !set.Transport.Perfect() {
		w.tick()
	}
	return w, w.err
}

// Run lets the control loop run the setup's apps to their ends. Without faults, an undisturbed job needs only a few
// messages.
func Run(ctx context.Context, set Setup) (Result, error) {
	began := time.Time{}
	if set.Clock != nil {
		began = set.Clock()
	}
	w, err := newMeasured(set)
	if err != nil {
		return Result{}, err
	}
	if err := w.runApps(ctx); err != nil {
		return Result{}, err
	}
	cost := measure.Cost{Events: int(w.events)}
	if set.Clock != nil {
		cost.Wall = set.Clock().Sub(began)
	}
	figures, err := w.recorder.meter.Result(cost)
	if err != nil {
		return Result{}, err
	}
	return Result{Result: figures, State: w.core.State()}, nil
}

// addNodes boots the setup's nodes, at once or at their stays.
func (w *World) addNodes() {
	for _, n := range w.set.Nodes {
		k := w.addWorker(n)
		if !slices.ContainsFunc(w.set.Stays, func(s Stay) bool { return s.Node == n.Name }) {
			w.clock.after(0, k.boot)
		}
	}
	for _, s := range w.set.Stays {
		if k := w.workers[s.Node]; k != nil {
			w.at(s.From, k.boot)
			if s.To > 0 {
				w.at(s.To, k.leave)
			}
		}
	}
}

func (w *World) addWorker(n cluster.Node) *worker {
	k := &worker{w: w, node: n}
	w.places[n.Name] = len(w.nodes)
	w.nodes, w.names = append(w.nodes, n), append(w.names, n.Name)
	w.workers[n.Name] = k
	return k
}

// AddNode adds a node with n devices of a type and boots it.
func (w *World) AddNode(name, deviceType string, n int, speed float64) {
	node := cluster.Node{Name: name}
	for i := range n {
		node.Devices = append(node.Devices, cluster.Device{Index: i, Type: deviceType, Speed: speed})
	}
	w.addWorker(node).boot()
	w.settle()
}

// Now returns the virtual time.
func (w *World) Now() time.Time { return w.clock.now }

// State returns the orchestrator's state.
func (w *World) State() *state.State { return w.core.State() }

// Policy returns the current policy.
func (w *World) Policy() policy.Policy { return w.policy }

// Killed returns the number of workers that deadly trials crashed.
func (w *World) Killed() int { return w.killed }

// Trained returns the number of reports that workers made. With the model Steps these are the steps, including repeated
// ones.
func (w *World) Trained() int64 { return w.trained }

// Ledger returns another reader of the world's ledger, or nil if it discards batches.
func (w *World) Ledger() ledger.Ledger {
	if w.memory == nil {
		return nil
	}
	return w.memory.Another()
}

// Run lets time pass until every sweep has ended. It returns an error if that takes longer than limit or an invariant
// is violated.
func (w *World) Run(limit time.Duration) error {
	end := w.clock.now.Add(limit)
	for w.err == nil && !w.done() {
		if !w.instant(end) {
			w.fail(fmt.Errorf("not done after %s: %s", limit, w.summary()))
		}
	}
	if w.err == nil {
		w.fail(w.invariants.end())
	}
	return w.err
}

// RunUntil lets time pass until a moment.
func (w *World) RunUntil(at time.Time) error {
	for w.err == nil && w.instant(at) {
		continue
	}
	w.clock.now = at
	return w.err
}

func (w *World) done() bool {
	return w.left == 0 && len(w.asked) == 0 && len(w.core.State().Live) == 0 && len(w.core.State().Sweeps) > 0
}

func (w *World) summary() string {
	text := ""
	for _, s := range w.core.State().Live {
		text += fmt.Sprintf("%s is %s with %v; ", s.ID, state.SweepWord(s.State), s.Counts)
		for _, n := range s.Running {
			t := s.Trials[n]
			text += fmt.Sprintf("trial %d is %s at step %d of %d (%s), lease %+v; ", n, state.TrialWord(t.State), t.Step, t.UntilStep, t.Reason, *t.Lead())
		}
	}
	return text
}

// fail stores the first error.
func (w *World) fail(err error) {
	if w.err == nil {
		w.err = err
	}
}

// at sets a timer for a time after the beginning.
func (w *World) at(after time.Duration, do func()) {
	w.clock.after(w.start.Add(after).Sub(w.clock.now), do)
}

// up carries a worker's uplink to the orchestrator.
func (w *World) up(u *outbidv1.Uplink) {
	w.set.Transport.Up(u, func(u *outbidv1.Uplink) { w.pending = append(w.pending, control.Uplink{Message: u}) })
}

// quiet reports whether workers omit what is unnecessary with a perfect transport.
func (w *World) quiet() bool { return w.set.Transport.Perfect() }
