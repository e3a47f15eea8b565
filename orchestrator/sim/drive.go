package sim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/control"
	"github.com/outbid-dev/outbid/orchestrator/ledger"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/sim/measure"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// open starts the first orchestrator.
func (w *World) open() error {
	l := w.set.Ledger
	if l == nil && (w.set.Mishaps.OrchestratorFails > 0 || !w.set.Transport.Perfect()) {
		l = ledger.NewMemory()
	}
	if l == nil {
		l = &forgetful{}
	}
	w.ledger = l
	w.memory, _ = l.(*ledger.Memory)
	if w.set.Mishaps.OrchestratorFails > 0 && w.memory == nil {
		return errors.New("simulating: an orchestrator that crashes needs a ledger in memory")
	}
	set := w.control()
	w.core = control.NewCore(set, w.decider(), state.New())
	return w.begin()
}

// control returns the settings for the next start of the orchestrator.
func (w *World) control() control.Settings {
	w.term++
	set := w.set.Control
	set.Term = w.term
	set.Trust = func(string) bool { return true }
	set.Prices = w.prices
	return set
}

// decider creates the policy, with timing if a clock is set.
func (w *World) decider() policy.Policy {
	w.policy = w.set.Policy()
	if w.set.Clock == nil {
		return w.policy
	}
	return &stopwatch{Policy: w.policy, w: w}
}

// begin writes the policy and its options to the ledger, if options are set.
func (w *World) begin() error {
	if w.set.Options == nil {
		return nil
	}
	started, err := w.core.Begin(w.clock.now, "", w.set.Options)
	if err != nil {
		return fmt.Errorf("simulating: %w", err)
	}
	w.append([]*outbidv1.Event{started}, nil)
	return w.err
}

// crash ends the orchestrator, losing everything that is not in the ledger, and starts another.
func (w *World) crash() {
	w.crashes++
	w.ledger = w.memory.Another()
	core, err := control.Restore(context.Background(), w.control(), w.decider(), w.ledger, nil)
	if err != nil {
		w.fail(fmt.Errorf("restoring after %d crashes: %w", w.crashes, err))
		return
	}
	w.core, w.pending, w.wakeAt = core, nil, time.Time{}
	w.fail(w.begin())
	for _, n := range slices.Sorted(maps.Keys(w.asked)) {
		w.pending = append(w.pending, w.asked[n]())
	}
}

// crashBetween crashes between two steps, when every decision is in the ledger. The policy's state must be the same
// before and after.
func (w *World) crashBetween() {
	before, err1 := w.policy.Snapshot()
	w.crash()
	if w.err != nil {
		return
	}
	after, err2 := w.policy.Snapshot()
	if err1 != nil || err2 != nil || !bytes.Equal(before, after) {
		w.fail(fmt.Errorf("after crash %d the state of policy %s is\n%s, and it was\n%s (%w)", w.crashes, w.policy.Name(), after, before,
			errors.Join(err1, err2)))
	}
}

// tick gives the orchestrator a tick each second, and sometimes crashes it.
func (w *World) tick() {
	if mean := w.set.Mishaps.OrchestratorFails; mean > 0 && w.rng.Float64() < float64(time.Second)/float64(mean) {
		w.crashBetween()
	}
	w.fail(w.invariants.waits())
	w.pending = append(w.pending, control.Tick{})
	w.clock.after(time.Second, w.tick)
}

// strikes reports whether the orchestrator crashes at this point. This is rarer than crashes between steps, because
// there are many steps.
func (w *World) strikes() bool {
	mean := w.set.Mishaps.OrchestratorFails
	return mean > 0 && w.rng.Float64() < float64(time.Second)/float64(mean)/20
}

// instant advances to the next moment with a timer and handles everything due then. It returns false if that is after
// end.
func (w *World) instant(end time.Time) bool {
	if len(w.clock.timers) == 0 || w.clock.timers[0].at.After(end) {
		return false
	}
	now := w.clock.timers[0].at
	for len(w.clock.timers) > 0 && w.clock.timers[0].at.Equal(now) {
		w.clock.next(now)
	}
	w.settle()
	return true
}

// mostTalk is the maximum number of exchanges between core and workers at one moment; more indicates an endless loop.
const mostTalk = 10_000

// settle steps the core until it and the workers stop exchanging messages at this moment.
func (w *World) settle() {
	talk := 0
	for again := true; w.err == nil && (again || len(w.pending) > 0); {
		if talk++; talk > mostTalk {
			w.fail(fmt.Errorf("endless loop at %s: policy %s gives and takes the same devices repeatedly",
				w.clock.now.Sub(w.start), w.policy.Name()))
			return
		}
		again = w.step()
	}
	w.wake()
}

// step decides, appends and acts, as control.Loop does. The orchestrator may crash between any two of these. It reports
// whether there is more to do at once.
func (w *World) step() (again bool) {
	inputs := w.pending
	w.pending = nil
	out, err := w.core.Step(w.clock.now, inputs...)
	if err != nil {
		w.fail(err)
		return false
	}
	if w.strikes() {
		w.crash()
		return true
	}
	if len(out.Events) > 0 && !w.append(out.Events, out.Changes) {
		return false
	}
	if w.strikes() {
		w.crash()
		return true
	}
	for _, reply := range out.Replies {
		reply()
	}
	for _, key := range out.Delete {
		delete(w.exact, key)
	}
	for _, o := range out.Orders {
		w.set.Transport.Down(o, func(o *outbidv1.Orders) { w.workers[o.GetNode()].obey(o) })
	}
	return out.More
}

// append writes events to the ledger and passes their changes to the invariants and the recorder.
func (w *World) append(events []*outbidv1.Event, changes []state.Change) bool {
	b, err := w.ledger.Append(context.Background(), w.clock.now, events)
	if err != nil {
		w.fail(fmt.Errorf("append: %w", err))
		return false
	}
	w.core.Appended(b)
	w.events += int64(len(events))
	at := w.clock.now.Sub(w.start).Seconds()
	for i := range changes {
		w.know(&changes[i])
		if err := w.invariants.see(changes[i].Event); err != nil {
			w.fail(fmt.Errorf("invariant broken at %g s in batch %d: %w", at, b.GetSeq(), err))
			return false
		}
		if w.recorder != nil {
			w.recorder.see(at, &changes[i])
		}
	}
	if w.recorder != nil {
		w.recorder.flush(at)
	}
	if err := w.invariants.batch(); err != nil {
		w.fail(fmt.Errorf("invariant broken at %g s after batch %d: %w", at, b.GetSeq(), err))
		return false
	}
	if err := w.snapshots.save(w.core, w.ledger, b.GetSeq()); err != nil {
		w.fail(err)
		return false
	}
	return true
}

// know records what workers and models need to know of sweeps and leases.
func (w *World) know(c *state.Change) {
	switch {
	case c.SweepBegan():
		if i, err := strconv.Atoi(c.Sweep.IdempotencyKey); err == nil {
			w.apps[c.Sweep.ID] = w.all[i]
		}
	case c.LeaseBegan():
		// A fork that joins others begins from a checkpoint, like one whose trial had devices before.
		beside := c.Trial.Lead() != c.Lease && c.Trial.From() != nil
		part := c.Trial.Part(c.Lease) != nil
		w.leases[c.Lease.ID] = grant{w.gang(c.Lease.Places), w.had[keyOf(c)] || beside, part}
	case c.LeaseEnded():
		w.had[keyOf(c)] = true
		delete(w.leases, c.Lease.ID)
	}
}

func keyOf(c *state.Change) trialKey { return trialKey{c.Sweep.ID, c.Trial.Number} }

// gang converts places to the form that policies use.
func (w *World) gang(places []state.Place) cluster.Gang {
	return state.GangOf(places, func(p state.Place) (int, bool) { return w.places[p.Node], true })
}

// snapshots stores a snapshot of the orchestrator every few batches: the whole state first, then changes, and the whole
// state again.
type snapshots struct {
	// every is the number of batches between two snapshots, or 0 for none; batches is the number of appended batches.
	every, batches int
	// frozen is the newest snapshot, and encoded its encoding at that time.
	frozen  control.Frozen
	encoded []byte
	// core is the one of the newest stored snapshot, and saved identifies its state then. changes counts the changes since
	// the newest whole snapshot.
	core    *control.Core
	saved   *state.Saved
	changes int
}

// mostChanges is how many changes follow a whole snapshot.
const mostChanges = 4

// save stores a snapshot if it is time for one. The real orchestrator encodes it while it continues, so the previous one
// must still give the same bytes.
func (s *snapshots) save(core *control.Core, l ledger.Ledger, seq uint64) error {
	s.batches++
	if s.every == 0 || s.batches%s.every > 0 {
		return nil
	}
	if s.core != core { // another server
		s.core, s.saved = core, core.Loaded()
	}
	if s.encoded != nil {
		if again, err := s.frozen.Encode(); err != nil || !bytes.Equal(again, s.encoded) {
			return fmt.Errorf("the snapshot before batch %d has changed while the orchestrator went on: %w", seq, err)
		}
	}
	since := s.saved
	if s.changes == mostChanges {
		since = nil
	}
	var err error
	if s.frozen, err = core.FreezeSince(since); err == nil {
		s.encoded, err = s.frozen.Encode()
	}
	switch {
	case err != nil:
	case since == nil:
		s.changes, err = 0, l.SaveSnapshot(context.Background(), seq, s.encoded)
	default:
		s.changes++
		if err = l.SaveChanges(context.Background(), since.Seq(), seq, s.encoded); err == nil {
			err = s.compare(core, l)
		}
	}
	if err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	s.saved = s.frozen.Saved()
	return nil
}

// compare returns an error if the stored snapshot with the changes since then is another than that of the whole state.
func (s *snapshots) compare(core *control.Core, l ledger.Ledger) error {
	whole, err := core.Snapshot()
	if err != nil {
		return err
	}
	seq, stored, err := l.LoadSnapshot(context.Background())
	if err != nil {
		return err
	}
	changes, err := l.LoadChanges(context.Background(), seq)
	if err != nil {
		return err
	}
	_, got, err1 := control.Merge(stored, changes...)
	_, want, err2 := control.Merge(whole) // in the same encoding
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	if !bytes.Equal(got, want) {
		return fmt.Errorf("%d changes since batch %d lead to another state than that of batch %d", len(changes), seq, core.State().Seq)
	}
	return nil
}

// wake sets a timer for the time when the policy wants to be called again.
func (w *World) wake() {
	next := w.core.Next()
	if next.IsZero() || !next.After(w.clock.now) || next.Equal(w.wakeAt) {
		return
	}
	w.wakeAt = next
	w.clock.after(next.Sub(w.clock.now), func() {
		if w.wakeAt.Equal(w.clock.now) {
			w.wakeAt = time.Time{} // the following step has no input except the time
		}
	})
}

// stopwatch times a policy's decisions.
type stopwatch struct {
	policy.Policy
	w *World
}

// ForksJobs implements policy.Forking.
func (s *stopwatch) ForksJobs() bool { return policy.ForksJobs(s.Policy) }

// Decide implements policy.Policy.
func (s *stopwatch) Decide(v *policy.View) policy.Plan {
	began := s.w.set.Clock()
	plan := s.Policy.Decide(v)
	if s.w.recorder != nil {
		s.w.recorder.meter.Decided(s.w.set.Clock().Sub(began))
	}
	return plan
}

// Preempts implements policy.Preemptive.
func (s *stopwatch) Preempts() bool {
	p, ok := s.Policy.(policy.Preemptive)
	return ok && p.Preempts()
}

// newMeasured is New with a recorder.
func newMeasured(set Setup) (*World, error) {
	name := set.Policy().Name()
	w, err := New(set)
	if err == nil {
		w.recorder = newRecorder(w, measure.Config{Policy: name, Tenants: set.Tenants, Bars: set.Bars})
	}
	return w, err
}

// errRead is the error of reading a forgetful ledger.
var errRead = errors.New("this run's ledger was not kept")

// forgetful is a ledger that counts batches and does not store them.
type forgetful struct{ seq uint64 }

// Append implements ledger.Ledger.
func (f *forgetful) Append(_ context.Context, at time.Time, _ []*outbidv1.Event) (*outbidv1.Batch, error) {
	f.seq++
	return &outbidv1.Batch{Seq: f.seq, Time: timestamppb.New(at)}, nil
}

func (f *forgetful) Read(context.Context, uint64, func(*outbidv1.Batch) error) error { return errRead }
func (f *forgetful) Resume(uint64, []byte)                                           {}
func (f *forgetful) SaveSnapshot(context.Context, uint64, []byte) error              { return errRead }

func (f *forgetful) SaveChanges(context.Context, uint64, uint64, []byte) error { return errRead }

func (f *forgetful) LoadChanges(context.Context, uint64) ([][]byte, error) { return nil, errRead }

func (f *forgetful) Last(context.Context) (uint64, error) { return f.seq, nil }

func (f *forgetful) LoadSnapshot(context.Context) (uint64, []byte, error) { return 0, nil, errRead }
