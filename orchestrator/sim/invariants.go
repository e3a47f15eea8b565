package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// invariants checks conditions that must hold in every run, whatever is lost or crashes. It checks them event by event,
// independently of the control loop's own state:
//
//   - A device has one owner. It is not leased on a node that is gone or draining.
//   - A lease is a complete gang that meets its trial's demand. A trial has at most one lease, except for forks. A
//     trial that is paused or has ended, or whose sweep is not running, gets none.
//   - A lease lasts as long as promised, and a paused sweep keeps none.
//   - A process runs under a lease in the ledger, on devices that no other process uses. It is gone before its lease
//     ends. A trial trains only under leases that it holds.
//   - A process starts from the newest readable checkpoint. A fork that joins others starts from one that was newest at
//     some time since its lease was granted. Steps are neither lost nor counted twice: what a trial has trained at its
//     end is the sum of what its leading leases trained, each from its starting step.
//   - Messages of training code count only under a lease that its trial holds. Each report of a fork is in the ledger
//     once, in order.
//   - What the forks of a fork slot trained and saved is counted exactly once (slotbook.go).
//   - No trial fails because of a node while another node could run it (badnodes.go).
//   - With a real network, a revoked lease ends within minutes, not counting the time when one of its nodes receives
//     nothing. Such a node stops training.
type invariants struct {
	w *World
	// up are the nodes that may be given work, according to the ledger.
	up map[string]bool
	// leases by number, the lease that holds each device, and the leases of each trial, oldest first. The oldest leads.
	leases map[uint64]*watched
	owner  map[deviceKey]uint64
	holds  map[trialKey][]uint64
	// runs are the devices used by processes, by lease. trains counts the processes of each trial, by lease.
	runs   map[deviceKey]uint64
	trains map[trialKey][]processes
	steps  *stepChecker
	slots  *slotChecker
	// quiet trials are paused or have ended, and idle sweeps are not running: they must get no devices.
	quiet map[trialKey]bool
	idle  map[string]bool
	// cancelled are the cancelled trials by sweep. They continue if it does.
	cancelled map[string][]trialKey
	// deep checks the whole state after each batch, if it is small.
	deep bool
	// pausing are the sweeps that were paused in this batch.
	pausing []string
}

type deviceKey struct {
	node   string
	device int32
}

// processes is the number of a trial's processes under a lease.
type processes struct {
	lease uint64
	n     int
}

// watched is a lease.
type watched struct {
	key    trialKey
	places []*outbidv1.LeasePlace
	// term is the end of its term, or zero for none.
	term time.Time
	// The lease is revoked since revokedAt, its process failed, its trial has since become a clone of another (stale),
	// or its trial was given a later target (targeted).
	revoked, failed, stale, targeted bool
	revokedAt                        time.Time
	// said are the steps that its process reported, in order; heard is the number of them in the ledger.
	said  []int64
	heard int
}

// fewApps is the number of apps up to which the whole state is checked after each batch.
const fewApps = 32

func newInvariants(w *World) *invariants {
	return &invariants{
		w: w, up: map[string]bool{}, leases: map[uint64]*watched{}, owner: map[deviceKey]uint64{}, holds: map[trialKey][]uint64{},
		runs: map[deviceKey]uint64{}, trains: map[trialKey][]processes{}, steps: newStepChecker(w.exact),
		slots: newSlotChecker(), quiet: map[trialKey]bool{}, idle: map[string]bool{}, cancelled: map[string][]trialKey{}, deep: len(w.set.Apps) <= fewApps,
	}
}

// see handles an event, after the state did.
func (v *invariants) see(e *outbidv1.Event) error {
	switch k := e.GetKind().(type) {
	case *outbidv1.Event_LeaseGranted:
		return v.granted(k.LeaseGranted)
	case *outbidv1.Event_LeaseRevoked:
		return v.leaseRevoked(k.LeaseRevoked)
	case *outbidv1.Event_LeaseRenewed:
		return v.leaseRenewed(k.LeaseRenewed)
	case *outbidv1.Event_PlaceEnded:
		return v.placeEnded(k.PlaceEnded)
	case *outbidv1.Event_LeaseEnded:
		return v.leaseEnded(k.LeaseEnded)
	case *outbidv1.Event_NodeJoined:
		v.up[k.NodeJoined.GetNode().GetName()] = true
	case *outbidv1.Event_NodeChanged:
		return v.nodeChanged(k.NodeChanged)
	case *outbidv1.Event_Note:
		if k.Note.GetKind() == outbidv1.NoteKind_NOTE_KIND_GRANT_REFUSED {
			return fmt.Errorf("sweep %s trial %d: %s", k.Note.GetSweep(), k.Note.GetTrial(), k.Note.GetText())
		}
	default:
		return v.handleTraining(e)
	}
	return nil
}

// handleTraining handles events about what trials did and should do.
func (v *invariants) handleTraining(e *outbidv1.Event) error {
	switch k := e.GetKind().(type) {
	case *outbidv1.Event_ForkStarted:
		key := trialKey{k.ForkStarted.GetSweep(), k.ForkStarted.GetTrial()}
		if err := v.checkHolds(key, k.ForkStarted.GetLeaseId(), "started"); err != nil {
			return err
		}
		if part := v.slots.parts[k.ForkStarted.GetLeaseId()]; part != nil {
			return part.checkStart(k.ForkStarted)
		}
		return v.steps.checkStart(key, v.standing(key, k.ForkStarted.GetLeaseId()), k.ForkStarted.GetFromStep())
	case *outbidv1.Event_TrialEnded:
		v.trackEligible(e)
		return v.failedByNode(k.TrialEnded)
	case *outbidv1.Event_TrialReported:
		return v.reported(k.TrialReported)
	case *outbidv1.Event_TrialReached:
		if part := v.slots.parts[k.TrialReached.GetLeaseId()]; part != nil {
			part.reached = true
		}
		return v.checkHolds(trialKey{k.TrialReached.GetSweep(), k.TrialReached.GetTrial()}, k.TrialReached.GetLeaseId(), "reached its target")
	case *outbidv1.Event_CheckpointSaved:
		key, c := trialKey{k.CheckpointSaved.GetSweep(), k.CheckpointSaved.GetTrial()}, k.CheckpointSaved.GetCheckpoint()
		if err := v.checkHolds(key, c.GetLeaseId(), "saved"); err != nil {
			return err
		}
		if part := v.slots.parts[c.GetLeaseId()]; part != nil {
			return part.handleSave(c, v.steps.confirm(c.GetKey()))
		}
		v.steps.handleSave(key, v.standing(key, c.GetLeaseId()), c.GetKey(), v.leases[c.GetLeaseId()].stale)
	case *outbidv1.Event_ForksBegan:
		return v.forksBegan(k.ForksBegan)
	case *outbidv1.Event_ConsolidationOrdered:
		return v.handleOrder(k.ConsolidationOrdered)
	case *outbidv1.Event_ForksEnded:
		return v.forksEnded(k.ForksEnded)
	case *outbidv1.Event_MergeJudged:
		return v.mergeJudged(k.MergeJudged)
	case *outbidv1.Event_CheckpointDropped:
		v.steps.dropCheckpoint(trialKey{k.CheckpointDropped.GetSweep(), k.CheckpointDropped.GetTrial()}, k.CheckpointDropped.GetKey())
	default:
		v.trackEligible(e)
	}
	return nil
}

// checkHolds checks that a trial holds the lease under which it did something.
func (v *invariants) checkHolds(key trialKey, lease uint64, what string) error {
	if v.slots.voided[lease] && what != "started" {
		return fmt.Errorf("trial %d of %s %s under lease %d, whose fork began with an average that was dropped", key.trial, key.sweep, what, lease)
	}
	if holds := v.holds[key]; !slices.Contains(holds, lease) {
		return fmt.Errorf("trial %d of %s %s under lease %d, but it holds %d", key.trial, key.sweep, what, lease, holds)
	}
	return nil
}

// standing returns the position of a lease among the leases of its trial.
func (v *invariants) standing(key trialKey, lease uint64) standing {
	return standing{lease, v.holds[key][0] == lease, v.leases[lease].revoked}
}

// reported checks that a report is the next one that a process of its lease made.
func (v *invariants) reported(e *outbidv1.TrialReported) error {
	if err := v.checkHolds(trialKey{e.GetSweep(), e.GetTrial()}, e.GetLeaseId(), "reported"); err != nil {
		return err
	}
	l, r := v.leases[e.GetLeaseId()], e.GetReport()
	step := r.GetStep()
	if part := v.slots.parts[e.GetLeaseId()]; part != nil {
		step = r.GetForkStep()
		if err := part.checkReport(r); err != nil {
			return err
		}
	}
	if l.heard == len(l.said) || int(r.GetSeq()) != l.heard+1 || step != l.said[l.heard] {
		return fmt.Errorf("trial %d of %s has report %d of step %d under lease %d, whose process made %d reports; the ledger has %d",
			e.GetTrial(), e.GetSweep(), r.GetSeq(), r.GetStep(), e.GetLeaseId(), len(l.said), l.heard)
	}
	l.heard++
	return nil
}

// trackEligible records which trials may have devices.
func (v *invariants) trackEligible(e *outbidv1.Event) {
	switch k := e.GetKind().(type) {
	case *outbidv1.Event_TrialPaused:
		v.quiet[trialKey{k.TrialPaused.GetSweep(), k.TrialPaused.GetTrial()}] = true
	case *outbidv1.Event_TrialEnded:
		key := trialKey{k.TrialEnded.GetSweep(), k.TrialEnded.GetTrial()}
		v.quiet[key] = true
		if k.TrialEnded.GetState() == outbidv1.TrialState_TRIAL_STATE_CANCELLED {
			v.cancelled[key.sweep] = append(v.cancelled[key.sweep], key)
		}
		if k.TrialEnded.GetState() == outbidv1.TrialState_TRIAL_STATE_COMPLETED && !k.TrialEnded.GetByTuner() {
			v.steps.handleCodeEnd(key)
		}
	case *outbidv1.Event_TrialTargeted:
		key := trialKey{k.TrialTargeted.GetSweep(), k.TrialTargeted.GetTrial()}
		delete(v.quiet, key)
		for _, lease := range v.holds[key] {
			v.leases[lease].targeted = true
		}
	case *outbidv1.Event_TrialCloned:
		v.handleClone(k.TrialCloned)
	case *outbidv1.Event_ForkFailed:
		if l := v.leases[k.ForkFailed.GetLeaseId()]; l != nil {
			l.failed = true
		}
		if key := k.ForkFailed.GetUnreadable(); key != "" {
			v.steps.dropCheckpoint(trialKey{k.ForkFailed.GetSweep(), k.ForkFailed.GetTrial()}, key)
		}
	case *outbidv1.Event_SweepChanged:
		v.setSweepState(k.SweepChanged.GetSweep(), k.SweepChanged.GetState())
	case *outbidv1.Event_SweepExtended:
		v.setSweepState(k.SweepExtended.GetSweep(), v.w.core.State().Sweeps[k.SweepExtended.GetSweep()].State)
	}
}

// setSweepState records the state of a sweep. If it runs again, the trials that were cancelled when it was stopped
// continue.
func (v *invariants) setSweepState(id string, now outbidv1.SweepState) {
	v.idle[id] = now != outbidv1.SweepState_SWEEP_STATE_RUNNING
	switch now {
	case outbidv1.SweepState_SWEEP_STATE_PAUSED:
		v.pausing = append(v.pausing, id)
	case outbidv1.SweepState_SWEEP_STATE_RUNNING:
		for _, key := range v.cancelled[id] {
			delete(v.quiet, key)
		}
		delete(v.cancelled, id)
	}
}

// handleClone handles a trial that continues from another's newest checkpoint, or from its own if the other's were
// deleted.
func (v *invariants) handleClone(e *outbidv1.TrialCloned) {
	key := trialKey{e.GetSweep(), e.GetTrial()}
	delete(v.quiet, key)
	start := v.w.core.State().Sweeps[key.sweep].Trials[key.trial].Start
	if start == nil {
		return
	}
	for _, lease := range v.holds[key] {
		v.leases[lease].stale = true
	}
	v.steps.handleClone(key, start.GetKey(), v.w.exact[start.GetKey()])
}

// batch checks conditions that hold after all events of a moment.
func (v *invariants) batch() error {
	for _, id := range v.pausing {
		for lease, l := range v.leases {
			if l.key.sweep == id && !l.revoked {
				return fmt.Errorf("sweep %s is paused, but lease %d of its trial %d was not revoked", id, lease, l.key.trial)
			}
		}
	}
	v.pausing = v.pausing[:0]
	if v.deep {
		return Check(v.w.core.State())
	}
	return nil
}

func (v *invariants) granted(e *outbidv1.LeaseGranted) error {
	l := &watched{key: trialKey{e.GetSweep(), e.GetTrial()}, places: e.GetPlaces()}
	if err := v.mayHold(e, l); err != nil {
		return err
	}
	if before := v.leases[e.GetLeaseId()]; before != nil {
		return fmt.Errorf("lease %d is granted a second time, to trial %d of %s; trial %d of %s has it", e.GetLeaseId(), e.GetTrial(),
			e.GetSweep(), before.key.trial, before.key.sweep)
	}
	what := v.w.apps[e.GetSweep()].Spec.GetResources()
	size, kind := 0, ""
	for _, p := range l.places {
		if !v.up[p.GetNode()] {
			return fmt.Errorf("lease %d is on node %s, which is not up", e.GetLeaseId(), p.GetNode())
		}
		for _, d := range p.GetDevices() {
			key := deviceKey{p.GetNode(), d}
			if other, held := v.owner[key]; held {
				return fmt.Errorf("device %d of %s is given to lease %d while %d holds it", d, p.GetNode(), e.GetLeaseId(), other)
			}
			v.owner[key] = e.GetLeaseId()
			t := v.w.nodes[v.w.places[p.GetNode()]].Devices[d].Type
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
	sweep := v.w.core.State().Sweeps[e.GetSweep()]
	want := sweep.Terms.DemandUntil(sweep.Trials[e.GetTrial()].UntilStep)
	if size < want.Min || size > want.Max || len(l.places) > 1 && !what.GetSpread() {
		return fmt.Errorf("lease %d has a gang of %d over %d nodes; its trial needs %s", e.GetLeaseId(), size, len(l.places), what)
	}
	v.leases[e.GetLeaseId()], v.holds[l.key] = l, append(v.holds[l.key], e.GetLeaseId())
	if e.GetShare() > 0 {
		return v.handleSlotLease(l.key, e)
	}
	if v.slots.active[l.key] != nil {
		return fmt.Errorf("trial %d of %s is given lease %d, which is not part of its fork slot", e.GetTrial(), e.GetSweep(), e.GetLeaseId())
	}
	v.steps.handleGrant(l.key, v.standing(l.key, e.GetLeaseId()))
	return nil
}

// mayHold returns an error if a trial must not have this lease, and sets the lease's term.
func (v *invariants) mayHold(e *outbidv1.LeaseGranted, l *watched) error {
	if e.GetTermEnd() != nil {
		if l.term = e.GetTermEnd().AsTime(); !l.term.After(v.w.clock.now) {
			return fmt.Errorf("lease %d is granted until %s, which is past", e.GetLeaseId(), l.term)
		}
	}
	if others := v.holds[l.key]; len(others) > 0 != e.GetFork() {
		return fmt.Errorf("trial %d of %s is given lease %d while it has %d: as a fork %t", e.GetTrial(), e.GetSweep(), e.GetLeaseId(),
			others, e.GetFork())
	}
	if v.quiet[l.key] || v.idle[e.GetSweep()] {
		return fmt.Errorf("trial %d of %s is given lease %d, but must have none: paused or ended %t, its sweep %t",
			e.GetTrial(), e.GetSweep(), e.GetLeaseId(), v.quiet[l.key], v.idle[e.GetSweep()])
	}
	return nil
}

// leaseRevoked checks the reason. Before the end of its term, only a tuner, a person, a failure, or a new target of a
// gang over several nodes may end a lease. Also, a policy may end that of a trial that may be forked, to use idle
// nodes, and, if it grows running jobs, that of a trial that may have more devices.
func (v *invariants) leaseRevoked(e *outbidv1.LeaseRevoked) error {
	l := v.leases[e.GetLeaseId()]
	if l == nil {
		return fmt.Errorf("lease %d is revoked, which does not exist", e.GetLeaseId())
	}
	part := v.slots.parts[e.GetLeaseId()]
	excused := l.revoked || l.failed || l.stale || v.slots.voided[e.GetLeaseId()] || v.quiet[l.key] || v.idle[l.key.sweep] || l.targeted && len(l.places) > 1 ||
		part != nil && (part.reached || part.suspected(v.w.core.State())) ||
		part == nil && len(l.places) == 1 && v.w.core.State().Sweeps[l.key.sweep].Terms.MostForks > 1 ||
		policy.GrowsJobs(v.w.policy) && v.mayGrow(l)
	if v.w.clock.now.Before(l.term) && !excused {
		return fmt.Errorf("lease %d of trial %d of %s is revoked %s before the end of its term: %s", e.GetLeaseId(), l.key.trial,
			l.key.sweep, l.term.Sub(v.w.clock.now), e.GetReason())
	}
	if !l.revoked {
		l.revoked, l.revokedAt = true, v.w.clock.now
	}
	return nil
}

// mayGrow reports whether a lease's trial may have more devices than the lease has.
func (v *invariants) mayGrow(l *watched) bool {
	held := 0
	for _, p := range l.places {
		held += len(p.GetDevices())
	}
	sweep := v.w.core.State().Sweeps[l.key.sweep]
	return held < sweep.Terms.DemandUntil(sweep.Trials[l.key.trial].UntilStep).Max
}

func (v *invariants) leaseRenewed(e *outbidv1.LeaseRenewed) error {
	l := v.leases[e.GetLeaseId()]
	if l == nil || l.revoked {
		return fmt.Errorf("lease %d is renewed, which does not exist or is ending", e.GetLeaseId())
	}
	l.term = e.GetTermEnd().AsTime()
	return nil
}

// nodeChanged checks that no lease holds devices of a node that is gone.
func (v *invariants) nodeChanged(e *outbidv1.NodeChanged) error {
	v.up[e.GetNode()] = e.GetState() == outbidv1.NodeState_NODE_STATE_UP
	if e.GetState() != outbidv1.NodeState_NODE_STATE_LEFT && e.GetState() != outbidv1.NodeState_NODE_STATE_LOST {
		return nil
	}
	for d := range v.w.workers[e.GetNode()].node.Devices {
		if lease, held := v.owner[deviceKey{e.GetNode(), int32(d)}]; held {
			return fmt.Errorf("node %s is gone, but lease %d holds its device %d", e.GetNode(), lease, d)
		}
	}
	return nil
}

func (v *invariants) free(lease uint64, p *outbidv1.LeasePlace) error {
	for _, d := range p.GetDevices() {
		key := deviceKey{p.GetNode(), d}
		if v.runs[key] == lease {
			return fmt.Errorf("lease %d ended while its process uses device %d of %s", lease, d, p.GetNode())
		}
		if v.owner[key] == lease {
			delete(v.owner, key)
		}
	}
	return nil
}

func (v *invariants) placeEnded(e *outbidv1.PlaceEnded) error {
	l := v.leases[e.GetLeaseId()]
	if l == nil {
		return fmt.Errorf("place of lease %d ended, which does not exist", e.GetLeaseId())
	}
	at := slices.IndexFunc(l.places, func(p *outbidv1.LeasePlace) bool { return p.GetNode() == e.GetNode() })
	if at < 0 {
		return fmt.Errorf("lease %d has no place on %s", e.GetLeaseId(), e.GetNode())
	}
	return v.free(e.GetLeaseId(), l.places[at])
}

func (v *invariants) leaseEnded(e *outbidv1.LeaseEnded) error {
	l := v.leases[e.GetLeaseId()]
	if l == nil {
		return fmt.Errorf("lease %d ended, which does not exist", e.GetLeaseId())
	}
	delete(v.leases, e.GetLeaseId())
	holds := v.holds[l.key]
	led := holds[0] == e.GetLeaseId()
	if holds = slices.DeleteFunc(holds, func(o uint64) bool { return o == e.GetLeaseId() }); len(holds) > 0 {
		v.holds[l.key] = holds
	} else {
		delete(v.holds, l.key)
	}
	part := v.slots.parts[e.GetLeaseId()]
	part.handleLeaseEnd()
	if led && len(holds) > 0 && part == nil {
		v.steps.changeLead(l.key, holds[0], !v.quiet[l.key])
	}
	v.steps.handleLeaseEnd(e.GetLeaseId())
	for _, p := range l.places {
		if err := v.free(e.GetLeaseId(), p); err != nil {
			return err
		}
	}
	return nil
}
