package sim

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// guard checks, event by event and without looking at how the control loop got there, what must hold in every run: a
// device has one owner and is not leased twice, gangs are whole and where their demand allows, no process runs without
// its lease, leases last as long as they were promised, who is paused or has ended gets nothing, a trial has one lease
// at most, and steps are neither lost nor counted twice: what a trial has trained at its end is what its leases trained.
type guard struct {
	r *run
	// leases by id, and the lease that holds each device, and each trial's.
	leases map[uint64]*guarded
	owner  map[deviceKey]uint64
	holds  map[trialKey]uint64
	// runs are the devices that processes use, by lease and place.
	runs map[deviceKey]uint64
	// done is how far each trial was saved, as the sum of what its leases trained.
	done map[trialKey]float64
	// quiet trials are paused or have ended, and idle sweeps do not run: they want nothing.
	quiet map[trialKey]bool
	idle  map[string]bool
	// clones go on from where others were.
	clones map[trialKey]bool
	// deep has the whole state checked after each batch, where there is little of it.
	deep bool
	// pausing are the sweeps that were paused in this batch.
	pausing []string
}

type deviceKey struct {
	node   string
	device int32
}

type guarded struct {
	key    trialKey
	places []*outbidv1.LeasePlace
	// term ends then; zero for none.
	term time.Time
	// revoked; failed by itself; stale, as its trial is a clone of another by now.
	revoked, failed, stale bool
}

// fewApps is how many apps a run may have for its whole state to be checked after each batch.
const fewApps = 32

func newGuard(r *run) *guard {
	return &guard{
		r: r, leases: map[uint64]*guarded{}, owner: map[deviceKey]uint64{}, holds: map[trialKey]uint64{},
		runs: map[deviceKey]uint64{}, done: map[trialKey]float64{}, quiet: map[trialKey]bool{}, idle: map[string]bool{}, clones: map[trialKey]bool{},
		deep: len(r.set.Apps) <= fewApps,
	}
}

func (g *guard) see(e *outbidv1.Event) error {
	switch k := e.GetKind().(type) {
	case *outbidv1.Event_LeaseGranted:
		return g.granted(k.LeaseGranted)
	case *outbidv1.Event_LeaseRevoked:
		return g.leaseRevoked(k.LeaseRevoked)
	case *outbidv1.Event_LeaseRenewed:
		return g.leaseRenewed(k.LeaseRenewed)
	case *outbidv1.Event_PlaceEnded:
		return g.placeEnded(k.PlaceEnded)
	case *outbidv1.Event_LeaseEnded:
		return g.leaseEnded(k.LeaseEnded)
	case *outbidv1.Event_ForkStarted:
		return g.started(k.ForkStarted)
	case *outbidv1.Event_NodeChanged:
		return g.nodeChanged(k.NodeChanged)
	case *outbidv1.Event_Note:
		if k.Note.GetLevel() == "error" && k.Note.Trial != nil && strings.HasPrefix(k.Note.GetText(), "policy ") {
			return fmt.Errorf("sweep %s trial %d: %s", k.Note.GetSweep(), k.Note.GetTrial(), k.Note.GetText())
		}
	default:
		g.wishes(e)
	}
	return nil
}

// wishes notes who wants devices and who does not.
func (g *guard) wishes(e *outbidv1.Event) {
	switch k := e.GetKind().(type) {
	case *outbidv1.Event_TrialPaused:
		g.quiet[trialKey{k.TrialPaused.GetSweep(), k.TrialPaused.GetTrial()}] = true
	case *outbidv1.Event_TrialEnded:
		g.quiet[trialKey{k.TrialEnded.GetSweep(), k.TrialEnded.GetTrial()}] = true
	case *outbidv1.Event_TrialTargeted:
		delete(g.quiet, trialKey{k.TrialTargeted.GetSweep(), k.TrialTargeted.GetTrial()})
	case *outbidv1.Event_TrialCloned:
		g.cloned(k.TrialCloned)
	case *outbidv1.Event_ForkFailed:
		if l := g.leases[k.ForkFailed.GetLeaseId()]; l != nil {
			l.failed = true
		}
	case *outbidv1.Event_SweepChanged:
		id := k.SweepChanged.GetSweep()
		if k.SweepChanged.GetState() == outbidv1.SweepState_SWEEP_STATE_RUNNING {
			delete(g.idle, id)
			return
		}
		g.idle[id] = true
		if k.SweepChanged.GetState() == outbidv1.SweepState_SWEEP_STATE_PAUSED {
			g.pausing = append(g.pausing, id)
		}
	}
}

// cloned: the trial goes on from where another was when it saved last.
func (g *guard) cloned(e *outbidv1.TrialCloned) {
	key := trialKey{e.GetSweep(), e.GetTrial()}
	delete(g.quiet, key)
	g.clones[key] = true
	if l := g.leases[g.holds[key]]; l != nil {
		l.stale = true
	}
	g.done[key] = 0
	if start := g.r.core.State().Sweeps[key.sweep].Trials[key.trial].Start; start != nil {
		g.done[key] = g.r.exact[start.GetKey()]
	}
}

// batch checks what must hold once all events of a moment are told.
func (g *guard) batch() error {
	for _, id := range g.pausing {
		for epoch, l := range g.leases {
			if l.key.sweep == id && !l.revoked {
				return fmt.Errorf("sweep %s is paused, and lease %d of its trial %d was not revoked", id, epoch, l.key.trial)
			}
		}
	}
	g.pausing = g.pausing[:0]
	if g.deep {
		return Check(g.r.core.State())
	}
	return nil
}

func (g *guard) granted(e *outbidv1.LeaseGranted) error {
	l := &guarded{key: trialKey{e.GetSweep(), e.GetTrial()}}
	if err := g.mayHold(e, l); err != nil {
		return err
	}
	l.places = e.GetPlaces()
	what := g.r.apps[e.GetSweep()].Spec.GetResources()
	size, kind := 0, ""
	for _, p := range l.places {
		at, known := g.r.places[p.GetNode()]
		if !known || !g.r.machines[p.GetNode()].up {
			return fmt.Errorf("lease %d is on node %s, which is not up", e.GetLeaseId(), p.GetNode())
		}
		for _, d := range p.GetDevices() {
			key := deviceKey{p.GetNode(), d}
			if other, held := g.owner[key]; held {
				return fmt.Errorf("device %d of %s is given to lease %d while %d holds it", d, p.GetNode(), e.GetLeaseId(), other)
			}
			g.owner[key] = e.GetLeaseId()
			t := g.r.set.Nodes[at].Devices[d].Type
			if !(cluster.Demand{Types: what.GetTypes(), Exclude: what.GetExcludeTypes()}).Accepts(t) {
				return fmt.Errorf("lease %d holds a %s, which its trial does not accept", e.GetLeaseId(), t)
			}
			if kind != "" && kind != t && !what.GetMixed() {
				return fmt.Errorf("lease %d mixes %s and %s", e.GetLeaseId(), kind, t)
			}
			kind = t
			size++
		}
	}
	least := max(1, int(what.GetDevices().GetMin()))
	if size < least || size > max(least, int(what.GetDevices().GetMax())) || len(l.places) > 1 && !what.GetSpread() {
		return fmt.Errorf("lease %d has a gang of %d over %d nodes; its trial wants %s", e.GetLeaseId(), size, len(l.places), what)
	}
	g.leases[e.GetLeaseId()], g.holds[l.key] = l, e.GetLeaseId()
	return nil
}

// mayHold says what keeps a trial from having a lease of its own now, and sets the lease's term.
func (g *guard) mayHold(e *outbidv1.LeaseGranted, l *guarded) error {
	if e.GetTermEnd() != nil {
		if l.term = e.GetTermEnd().AsTime(); !l.term.After(g.r.clock.now) {
			return fmt.Errorf("lease %d is granted until %s, which is past", e.GetLeaseId(), l.term)
		}
	}
	if other, has := g.holds[l.key]; has {
		return fmt.Errorf("trial %d of %s is given lease %d while it has %d", e.GetTrial(), e.GetSweep(), e.GetLeaseId(), other)
	}
	if g.quiet[l.key] || g.idle[e.GetSweep()] {
		return fmt.Errorf("trial %d of %s is given lease %d, and wants none: paused or ended %t, its sweep %t",
			e.GetTrial(), e.GetSweep(), e.GetLeaseId(), g.quiet[l.key], g.idle[e.GetSweep()])
	}
	return nil
}

// leaseRevoked: before its term's end only a tuner, a person or a failure may end a lease.
func (g *guard) leaseRevoked(e *outbidv1.LeaseRevoked) error {
	l := g.leases[e.GetLeaseId()]
	if l == nil {
		return fmt.Errorf("lease %d is revoked, which does not exist", e.GetLeaseId())
	}
	excused := l.revoked || l.failed || l.stale || g.quiet[l.key] || g.idle[l.key.sweep]
	if g.r.clock.now.Before(l.term) && !excused {
		return fmt.Errorf("lease %d of trial %d of %s is revoked %s before the end of its term: %s", e.GetLeaseId(), l.key.trial,
			l.key.sweep, l.term.Sub(g.r.clock.now), e.GetReason())
	}
	l.revoked = true
	return nil
}

func (g *guard) leaseRenewed(e *outbidv1.LeaseRenewed) error {
	l := g.leases[e.GetLeaseId()]
	if l == nil || l.revoked {
		return fmt.Errorf("lease %d is renewed, which does not exist or is ending", e.GetLeaseId())
	}
	l.term = e.GetTermEnd().AsTime()
	return nil
}

// nodeChanged: nothing holds devices of a node that is gone.
func (g *guard) nodeChanged(e *outbidv1.NodeChanged) error {
	if e.GetState() != outbidv1.NodeState_NODE_STATE_LEFT && e.GetState() != outbidv1.NodeState_NODE_STATE_LOST {
		return nil
	}
	for d := range g.r.machines[e.GetNode()].node.Devices {
		if epoch, held := g.owner[deviceKey{e.GetNode(), int32(d)}]; held {
			return fmt.Errorf("node %s is gone, and lease %d holds device %d of it", e.GetNode(), epoch, d)
		}
	}
	return nil
}

func (g *guard) free(epoch uint64, p *outbidv1.LeasePlace) error {
	for _, d := range p.GetDevices() {
		key := deviceKey{p.GetNode(), d}
		if g.runs[key] == epoch {
			return fmt.Errorf("lease %d ended while its process uses device %d of %s", epoch, d, p.GetNode())
		}
		if g.owner[key] == epoch {
			delete(g.owner, key)
		}
	}
	return nil
}

func (g *guard) placeEnded(e *outbidv1.PlaceEnded) error {
	l := g.leases[e.GetLeaseId()]
	if l == nil {
		return fmt.Errorf("place of lease %d ended, which does not exist", e.GetLeaseId())
	}
	for _, p := range l.places {
		if p.GetNode() == e.GetNode() {
			return g.free(e.GetLeaseId(), p)
		}
	}
	return fmt.Errorf("lease %d has no place on %s", e.GetLeaseId(), e.GetNode())
}

func (g *guard) leaseEnded(e *outbidv1.LeaseEnded) error {
	l := g.leases[e.GetLeaseId()]
	if l == nil {
		return fmt.Errorf("lease %d ended, which does not exist", e.GetLeaseId())
	}
	delete(g.leases, e.GetLeaseId())
	if g.holds[l.key] == e.GetLeaseId() {
		delete(g.holds, l.key)
	}
	for _, p := range l.places {
		if err := g.free(e.GetLeaseId(), p); err != nil {
			return err
		}
	}
	return nil
}

// started: a fork goes on from what was saved, no more and no less.
func (g *guard) started(e *outbidv1.ForkStarted) error {
	if done := g.done[trialKey{e.GetSweep(), e.GetTrial()}]; int64(done) != e.GetFromStep() {
		return fmt.Errorf("trial %d of %s starts from step %d; its leases trained %g", e.GetTrial(), e.GetSweep(), e.GetFromStep(), done)
	}
	return nil
}

// claim and unclaim are a process's use of devices.
func (g *guard) claim(t *training) error {
	for _, d := range g.devices(t) {
		if g.owner[d] != t.ref.GetLeaseId() {
			return fmt.Errorf("a process of lease %d starts on device %d of %s, which lease %d holds", t.ref.GetLeaseId(), d.device, d.node, g.owner[d])
		}
		g.runs[d] = t.ref.GetLeaseId()
	}
	return nil
}

func (g *guard) unclaim(t *training) {
	for _, d := range g.devices(t) {
		if g.runs[d] == t.ref.GetLeaseId() {
			delete(g.runs, d)
		}
	}
}

func (g *guard) devices(t *training) []deviceKey {
	if t.place >= len(t.gang) {
		return nil
	}
	p := t.gang[t.place]
	keys := make([]deviceKey, len(p.Devices))
	for i, d := range p.Devices {
		keys[i] = deviceKey{t.m.node.Name, int32(d)}
	}
	return keys
}

// kept counts what a lease trained and saved.
func (g *guard) kept(t *training, step float64) {
	if l := g.leases[t.ref.GetLeaseId()]; l == nil || !l.stale {
		g.done[t.key] += step - t.from
	}
}

// end checks, once every app has ended, that all that was to be trained was.
func (g *guard) end() error {
	if len(g.owner) > 0 || len(g.runs) > 0 {
		return fmt.Errorf("every app has ended, and %d devices are leased and %d used", len(g.owner), len(g.runs))
	}
	for key, done := range g.done {
		s := g.r.core.State().Sweeps[key.sweep]
		t := s.Trials[key.trial]
		app := g.r.apps[key.sweep]
		steps := float64(app.Jobs[min(int(key.trial), len(app.Jobs)-1)].Steps)
		if t.State == outbidv1.TrialState_TRIAL_STATE_COMPLETED && t.UntilStep > 0 {
			steps = math.Min(steps, float64(t.UntilStep))
		} else if t.State != outbidv1.TrialState_TRIAL_STATE_COMPLETED {
			continue
		}
		if g.clones[key] {
			done = math.Min(done, steps) // it may have gone on from beyond its own end
		}
		if steps > 0 && math.Abs(done-steps) > 1e-6*steps+1e-3 {
			return fmt.Errorf("trial %d of %s completed after %g steps of %g", key.trial, key.sweep, done, steps)
		}
	}
	return nil
}
