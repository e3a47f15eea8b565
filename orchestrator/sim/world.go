// Package sim runs the control loop itself on a virtual clock, with an in-memory ledger and simulated workers that
// keep to the real protocol. Everything random comes from one seed: the same seed gives the same run. Faults can be
// switched on: lost, doubled and late messages, crashed workers and orchestrators, failing trials.
package sim

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/control"
	"github.com/outbid-dev/outbid/orchestrator/ledger"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/spec"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Faults are chances of things going wrong, each from 0 to 1.
type Faults struct {
	// Lose and Double a message between orchestrator and worker, either way.
	Lose, Double float64
	// Late is how much later than at once a message may arrive.
	Late time.Duration
	// FailStep is the chance that a trial fails at a step.
	FailStep float64
	// Deadly is the name of a sweep whose trials take their worker down at their third step. It is back after a while.
	Deadly string
	// CrashWorker and CrashOrchestrator are chances per second of virtual time.
	CrashWorker, CrashOrchestrator float64
}

// Config is what a world is made of.
type Config struct {
	Seed   uint64
	Faults Faults
	// Policy makes the policy, anew after each crash of the orchestrator.
	Policy func() policy.Policy
	// Settings of the control loop; Term and Trust are the world's own.
	Settings control.Settings
	// StepTime is how long a step takes on a device of full speed.
	StepTime time.Duration
	// SnapshotEvery is the number of batches between two snapshots; 0 for none.
	SnapshotEvery int
}

// World is a simulated cluster and its orchestrator.
type World struct {
	cfg   Config
	set   control.Settings
	clock clock
	rng   *rand.Rand

	record  *ledger.Memory
	ledger  ledger.Ledger
	core    *control.Core
	policy  policy.Policy
	batches int
	// frozen is the newest snapshot, and encoded what it was encoded as.
	frozen  control.Frozen
	encoded []byte

	workers map[string]*worker
	names   []string
	owners  map[string]string
	trained int64
	// err is the first broken promise.
	err error
	// killed counts the workers that trials took down.
	killed int
	// crashes counts those of the orchestrator.
	crashes int
	term    uint64
}

// start of virtual time.
func epoch() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }

// New returns a world without nodes and sweeps.
func New(cfg Config) (*World, error) {
	w := &World{
		cfg: cfg, rng: rand.New(rand.NewPCG(cfg.Seed, 1)), record: ledger.NewMemory(), workers: map[string]*worker{},
		owners: map[string]string{}, clock: clock{now: epoch()},
	}
	if err := w.boot(); err != nil {
		return nil, err
	}
	w.tick()
	return w, nil
}

// boot starts an orchestrator from what the ledger holds.
func (w *World) boot() error {
	w.term++
	w.set = w.cfg.Settings
	w.set.Term = w.term
	w.set.Trust = func(string) bool { return true }
	w.ledger = w.record.Another()
	w.policy = w.cfg.Policy()
	core, err := control.Restore(context.Background(), w.set, w.policy, w.ledger, nil)
	if err != nil {
		return fmt.Errorf("restoring after %d crashes: %w", w.crashes, err)
	}
	w.core = core
	return nil
}

// Now is the virtual time.
func (w *World) Now() time.Time { return w.clock.now }

// State is the orchestrator's state.
func (w *World) State() *state.State { return w.core.State() }

// Killed counts the workers that deadly trials took down.
func (w *World) Killed() int { return w.killed }

// Trained counts the steps that workers did, repeated ones each time.
func (w *World) Trained() int64 { return w.trained }

// AddNode adds a node with n devices of a type.
func (w *World) AddNode(name, deviceType string, n int, speed float64) {
	k := &worker{w: w, name: name}
	for i := range n {
		k.devices = append(k.devices, &outbidv1.Device{Index: int32(i), Type: deviceType, Speed: speed})
	}
	w.workers[name] = k
	w.names = append(w.names, name)
	k.start()
}

// Submit starts a sweep and returns its id; "" if the orchestrator crashed before it could answer.
func (w *World) Submit(sweep *outbidv1.SweepSpec) (string, error) {
	spec.Default(sweep)
	var id string
	var failed error
	w.step(control.Submit{Spec: sweep, Actor: "sim", Key: sweep.GetName(), Done: func(got string, err error) { id, failed = got, err }})
	return id, failed
}

// Do hands an input to the orchestrator at once.
func (w *World) Do(in control.Input) { w.step(in) }

// tick lets the orchestrator notice the time, and faults strike.
func (w *World) tick() {
	f := w.cfg.Faults
	if f.CrashOrchestrator > 0 && w.rng.Float64() < f.CrashOrchestrator {
		w.crashBetween()
	}
	for _, name := range w.names {
		k := w.workers[name]
		if k.up && f.CrashWorker > 0 && w.rng.Float64() < f.CrashWorker {
			w.disown(k)
			k.crash()
			w.clock.after(time.Duration(1+w.rng.IntN(60))*time.Second, k.start)
		}
	}
	w.step(control.Tick{})
	w.clock.after(time.Second, w.tick)
}

// crash ends the orchestrator and starts another from the ledger.
func (w *World) crash() {
	w.crashes++
	if err := w.boot(); err != nil {
		w.fail("%v", err)
	}
}

// crashBetween is a crash between two steps, when everything decided is in the ledger: what the policy remembers must be
// the same before and after.
func (w *World) crashBetween() {
	before, err1 := w.policy.Snapshot()
	w.crash()
	if w.err != nil {
		return
	}
	after, err2 := w.policy.Snapshot()
	if err1 != nil || err2 != nil || !bytes.Equal(before, after) {
		w.fail("after crash %d policy %s remembers\n%s, and before\n%s (%v)", w.crashes, w.policy.Name(), after, before,
			errors.Join(err1, err2))
	}
}

// Ledger returns another reader of the world's ledger.
func (w *World) Ledger() ledger.Ledger { return w.record.Another() }

// step decides, appends and acts, as control.Loop does. The orchestrator may crash between any two of these.
func (w *World) step(inputs ...control.Input) {
	for again := true; again && w.err == nil; inputs = nil {
		out, err := w.core.Step(w.clock.now, inputs...)
		if err != nil {
			w.fail("step: %v", err)
			return
		}
		if w.strikes() {
			w.crash()
			return
		}
		if len(out.Events) > 0 && !w.append(out.Events) {
			return
		}
		if w.strikes() {
			w.crash()
			return
		}
		for _, r := range out.Replies {
			r()
		}
		for _, o := range out.Orders {
			w.deliver(func() { w.workers[o.GetNode()].orders(o) })
		}
		again = out.More
	}
}

// strikes says whether the orchestrator dies right here; rarer than between steps, as there are many steps.
func (w *World) strikes() bool {
	return w.cfg.Faults.CrashOrchestrator > 0 && w.rng.Float64() < w.cfg.Faults.CrashOrchestrator/20
}

func (w *World) append(events []*outbidv1.Event) bool {
	ctx := context.Background()
	b, err := w.ledger.Append(ctx, w.clock.now, events)
	if err != nil {
		w.fail("append: %v", err)
		return false
	}
	w.core.Appended(b)
	w.batches++
	if w.cfg.SnapshotEvery > 0 && w.batches%w.cfg.SnapshotEvery == 0 {
		if err := w.snapshot(ctx, b.GetSeq()); err != nil {
			w.fail("snapshot: %v", err)
			return false
		}
	}
	if err := Check(w.core.State()); err != nil {
		w.fail("after batch %d: %v", b.GetSeq(), err)
		return false
	}
	return true
}

// snapshot saves a snapshot. The orchestrator encodes it while it goes on: so the one before must still give the same bytes.
func (w *World) snapshot(ctx context.Context, seq uint64) error {
	if w.encoded != nil {
		if again, err := w.frozen.Encode(); err != nil || !bytes.Equal(again, w.encoded) {
			return fmt.Errorf("the one before has changed while the orchestrator went on: %w", err)
		}
	}
	var err error
	if w.frozen, err = w.core.Freeze(); err != nil {
		return err
	}
	if w.encoded, err = w.frozen.Encode(); err != nil {
		return err
	}
	return w.ledger.SaveSnapshot(ctx, seq, w.encoded)
}

func (w *World) fail(format string, args ...any) {
	if w.err == nil {
		w.err = fmt.Errorf(format, args...)
	}
}

// toOrchestrator carries a worker's message.
func (w *World) toOrchestrator(up *outbidv1.Uplink) {
	w.deliver(func() { w.step(control.Uplink{Message: up}) })
}

// deliver carries a message, which faults may lose, double or delay.
func (w *World) deliver(arrive func()) {
	f := w.cfg.Faults
	if f.Lose > 0 && w.rng.Float64() < f.Lose {
		return
	}
	times := 1
	if f.Double > 0 && w.rng.Float64() < f.Double {
		times = 2
	}
	for range times {
		late := time.Millisecond
		if f.Late > 0 {
			late += time.Duration(w.rng.Int64N(int64(f.Late)))
		}
		w.clock.after(late, func() {
			if w.err == nil {
				arrive()
			}
		})
	}
}

// claim and release watch over the one promise that leases make: no device has two processes.
func (w *World) claim(k *worker, f *fork) {
	for _, d := range f.body.GetDevices() {
		key := fmt.Sprintf("%s/%d", k.name, d)
		if owner := w.owners[key]; owner != "" {
			w.fail("device %s has two owners: %s and %s", key, owner, f.ref)
		}
		w.owners[key] = f.ref.String()
	}
}

func (w *World) release(k *worker, f *fork) {
	if !f.started {
		return
	}
	for _, d := range f.body.GetDevices() {
		delete(w.owners, fmt.Sprintf("%s/%d", k.name, d))
	}
}

func (w *World) disown(k *worker) {
	for i := range k.devices {
		delete(w.owners, fmt.Sprintf("%s/%d", k.name, i))
	}
}

// stepTime is that of the device's speed, a little uneven.
func (w *World) stepTime(k *worker, f *fork) time.Duration {
	speed := 1.0
	if s := k.devices[f.body.GetDevices()[0]].GetSpeed(); s > 0 {
		speed = s
	}
	return time.Duration(float64(w.cfg.StepTime) / speed * (0.9 + 0.2*w.rng.Float64()))
}

func (w *World) stopTime() time.Duration { return time.Duration(w.rng.IntN(500)) * time.Millisecond }

func (w *World) failsNow() bool {
	return w.cfg.Faults.FailStep > 0 && w.rng.Float64() < w.cfg.Faults.FailStep
}

// metric is a learning curve: how good a configuration is shows more and more as it trains. It depends on nothing
// else, so that a run with faults must end as one without.
func (w *World) metric(config string, step int64) float64 {
	h := fnv.New64a()
	if !json.Valid([]byte(config)) {
		w.fail("configuration %q is no JSON", config)
	}
	_, _ = h.Write([]byte(config))
	quality := float64(h.Sum64()%1_000_003) / 1_000_003
	return quality * (1 - math.Exp(-float64(step)/3))
}

// Run lets time pass until every sweep is done, and fails if that takes longer than limit or a promise is broken.
func (w *World) Run(limit time.Duration) error {
	end := w.clock.now.Add(limit)
	for w.err == nil && !w.done() {
		if !w.clock.next(end) {
			w.fail("not done after %s: %s", limit, w.summary())
		}
	}
	return w.err
}

// RunUntil lets time pass until a moment.
func (w *World) RunUntil(at time.Time) error {
	for w.err == nil && w.clock.next(at) {
		continue
	}
	w.clock.now = at
	return w.err
}

func (w *World) done() bool { return len(w.core.State().Live) == 0 && len(w.core.State().Sweeps) > 0 }

func (w *World) summary() string {
	text := ""
	for _, s := range w.core.State().Live {
		text += fmt.Sprintf("%s is %s with %v; ", s.ID, state.SweepWord(s.State), s.Counts)
		for _, n := range s.Running {
			t := s.Trials[n]
			text += fmt.Sprintf("trial %d is %s at step %d of %d (%s), lease %+v; ", n, state.TrialWord(t.State), t.Step, t.UntilStep, t.Reason, *t.Lease)
		}
	}
	return text
}
