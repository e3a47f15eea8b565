package state

import (
	"cmp"
	"slices"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

func (f *foldContext) leaseGranted(e *outbidv1.LeaseGranted) error {
	st, s, t, at := f.st, f.sweep, f.trial, f.at
	l := &Lease{
		Sweep: s.ID, Trial: t.Number, ID: e.GetLeaseId(), Places: PlacesOf(e.GetPlaces()),
		Granted: at, Reason: e.GetReason(), Version: 1,
	}
	if len(l.Places) == 0 {
		return broken("lease %d has no places", l.ID)
	}
	if err := st.canHold(l); err != nil {
		return err
	}
	if e.GetTermEnd() != nil {
		l.TermEnd = e.GetTermEnd().AsTime()
	}
	if beside := len(t.Leases) > 0; beside != e.GetFork() {
		return broken("lease %d: the trial holds %d leases, but fork is %t", l.ID, len(t.Leases), e.GetFork())
	}
	f.lease = l
	if err := st.lease(s, t, l); err != nil {
		return err
	}
	st.hold(l)
	st.meter(s, l)
	st.setHourPrice(l)
	return f.joinRound(e)
}

// CanGrant returns why a lease cannot be granted, or nil: devices may be held or missing.
func (st *State) CanGrant(e *outbidv1.LeaseGranted) error {
	l := &Lease{ID: e.GetLeaseId(), Places: PlacesOf(e.GetPlaces())}
	for _, p := range l.Places {
		if n := st.Nodes[p.Node]; n == nil || !n.Up() {
			return broken("node %q is not up", p.Node)
		}
	}
	return st.canHold(l)
}

// canHold returns why a lease's devices cannot be held by it, or nil.
func (st *State) canHold(l *Lease) error {
	for _, p := range l.Places {
		if p.Ended {
			continue // other leases may hold its devices
		}
		n, ok := st.Nodes[p.Node]
		if !ok {
			return broken("lease %d on node %q, which does not exist", l.ID, p.Node)
		}
		for _, d := range p.Devices {
			if int(d) >= len(n.Holders) || d < 0 {
				return broken("lease %d on device %d of node %s, which has %d", l.ID, d, p.Node, len(n.Holders))
			}
			if h := n.Holders[d]; h != nil {
				return broken("device %d of node %s is held by %s under lease %d", d, p.Node, trialName(h.Sweep, h.Trial), h.ID)
			}
		}
	}
	return nil
}

// hold assigns a lease its devices, and computes their type and locality.
func (st *State) hold(l *Lease) {
	l.types = make([]string, len(l.Places))
	for i, p := range l.Places {
		n := st.Nodes[p.Node]
		if !p.Ended {
			n.Leases = append(n.Leases, l)
			for _, d := range p.Devices {
				n.Holders[d] = l
			}
		}
		if p.Ended && len(p.Devices) > 0 && int(slices.Max(p.Devices)) >= len(n.Shape.Devices) {
			continue // the node came back with fewer devices
		}
		here, gang := []cluster.Node{n.Shape}, cluster.Gang{gangPlace(0, p)}
		kind, spread := cluster.TypeOf(here, gang), cluster.LocalityOf(here, gang)
		l.types[i] = kind
		switch first := st.Nodes[l.Rank0()]; {
		case i == 0:
			l.kind, l.spread = kind, spread
			continue
		case n.Shape.Rack == first.Shape.Rack:
			l.spread = max(l.spread, cluster.SameRack)
		default:
			l.spread = cluster.AcrossRacks
		}
		if kind != l.kind {
			l.kind = ""
		}
	}
}

func (f *foldContext) trialAsked(e *outbidv1.TrialAsked) error {
	s, t := f.sweep, f.trial
	if len(t.Leases) > 0 {
		return broken("a client asked for it, but it holds lease %d", t.Lead().ID)
	}
	f.lease = &Lease{
		Sweep: s.ID, Trial: t.Number, ID: e.GetLeaseId(), Granted: f.at, Holder: Client, Client: e.GetClient(), Started: true,
		Version: 1, FromStep: t.Step,
	}
	return f.st.lease(s, t, f.lease)
}

func (st *State) lease(s *Sweep, t *Trial, l *Lease) error {
	if l.ID != st.NextLease {
		return broken("lease has ID %d, want %d", l.ID, st.NextLease)
	}
	st.NextLease++
	l.Step = t.Step
	t.Leases = append(t.Leases, l)
	t.LeaseCount++
	if len(t.Leases) > 1 {
		return nil // the trial is running already
	}
	t.AtTarget, t.forkFailed = false, false
	s.setState(t, trialRunning)
	s.Running = append(s.Running, t.Number)
	return nil
}

func (f *foldContext) leaseRevoked(e *outbidv1.LeaseRevoked) error {
	l := f.lease
	if l == nil {
		return broken("revoked lease %d, which it does not hold", e.GetLeaseId())
	}
	// A stop overrides a pause, but not the other way round.
	if l.Revoking != outbidv1.RevokeKind_REVOKE_KIND_STOP {
		l.Revoking = e.GetHow()
	}
	l.Version++
	return nil
}

func (f *foldContext) leaseEnded(e *outbidv1.LeaseEnded) error {
	st, s, t, at := f.st, f.sweep, f.trial, f.at
	l := f.lease
	if l == nil {
		return broken("ended lease %d, which it does not hold", e.GetLeaseId())
	}
	led := t.Lead() == l
	t.Leases = slices.DeleteFunc(t.Leases, func(o *Lease) bool { return o == l })
	t.DeviceSeconds += e.GetDeviceSeconds()
	s.DeviceSeconds += e.GetDeviceSeconds()
	s.Cost += l.costAt(at)
	st.charge(at, s, l)
	st.countLease(at, s, l)
	if l.Started && l.Step > l.FromStep && !t.forkFailed {
		st.trainedOn(s, l)
	}
	for _, p := range l.Places {
		st.release(l, p)
	}
	f.dropUnsavedSteps(l)
	if len(t.Leases) > 0 {
		if led {
			s.lead(t)
		}
		return nil
	}
	s.Running = remove(s.Running, t.Number)
	switch {
	case t.Done():
	case t.Pausing, t.AtTarget:
		t.Pausing = false
		s.setState(t, trialPaused)
	default:
		s.enqueue(at, t)
	}
	return nil
}

// lead makes the trial's oldest lease the leading one after the previous one has ended.
func (s *Sweep) lead(t *Trial) {
	l := t.Lead()
	s.Running = remove(s.Running, t.Number)
	i, _ := slices.BinarySearchFunc(s.Running, l.ID, func(n int32, id uint64) int {
		return cmp.Compare(s.Trials[n].Lead().ID, id)
	})
	s.Running = slices.Insert(s.Running, i, t.Number)
	if t.Done() || t.Pausing {
		return // its forks end, and the trial keeps its step
	}
	if t.Part(l) != nil {
		return // the steps of all forks count
	}
	if t.AtTarget = l.AtTarget; l.Started {
		t.recordRollback(l.ID, l.Step)
		s.advance(t, l.Step)
	}
}

// placeEnded frees what a lease held on one node, while the rest of its gang ends too.
func (f *foldContext) placeEnded(e *outbidv1.PlaceEnded) error {
	st, l := f.st, f.lease
	if l == nil {
		return broken("ended place of lease %d, which it does not hold", e.GetLeaseId())
	}
	i := l.PlaceOn(e.GetNode())
	if i < 0 {
		return broken("lease %d has no place on node %s, or the place has ended", l.ID, e.GetNode())
	}
	st.release(l, l.Places[i])
	l.Places[i].Ended = true
	if i == 0 {
		l.Training = time.Time{}
	}
	return nil
}

func (f *foldContext) leaseRenewed(e *outbidv1.LeaseRenewed) error {
	if f.lease == nil {
		return broken("renewed lease %d, which it does not hold", e.GetLeaseId())
	}
	f.lease.TermEnd = from(e.GetTermEnd())
	return nil
}

func (st *State) release(l *Lease, p Place) {
	n, ok := st.Nodes[p.Node]
	if !ok || p.Ended {
		return
	}
	n.Leases = slices.DeleteFunc(n.Leases, func(o *Lease) bool { return o == l })
	for _, d := range p.Devices {
		if int(d) < len(n.Holders) && n.Holders[d] == l {
			n.Holders[d] = nil
		}
	}
}

func (f *foldContext) forkStarted(e *outbidv1.ForkStarted) error {
	t, l := f.trial, f.lease
	if l == nil {
		return broken("started lease %d, which it does not hold", e.GetLeaseId())
	}
	l.Started, l.FromStep, l.Step, l.Training = true, e.GetFromStep(), e.GetFromStep(), f.at
	if l == t.Lead() {
		t.recordRollback(l.ID, l.FromStep)
		t.Step = l.FromStep
	}
	f.countForkSteps(l)
	f.st.startedOn(f.sweep, t, l)
	return nil
}

func (f *foldContext) nodeJoined(e *outbidv1.NodeJoined) error {
	st, at := f.st, f.at
	info := e.GetNode()
	n, ok := st.Nodes[info.GetName()]
	var kept []*outbidv1.NodeFault
	if ok && n.Manual() != nil { // it outlives the worker: the machine may be in repair
		kept = append(kept, n.Manual())
	}
	if ok && len(n.Leases) > 0 {
		return broken("node %s joined again while it has %d leases", info.GetName(), len(n.Leases))
	}
	if !ok {
		n = &Node{}
		st.Nodes[info.GetName()] = n
		i, _ := slices.BinarySearch(st.NodeNames, info.GetName())
		st.NodeNames = slices.Insert(st.NodeNames, i, info.GetName())
	}
	*n = Node{
		Info: info, State: outbidv1.NodeState_NODE_STATE_UP, Changed: at, Shape: shape(info),
		Holders: make([]*Lease, len(info.GetDevices())), Faults: kept,
	}
	st.joins++
	st.noteFaulty(n)
	st.avoidNoMore(info.GetName(), "")
	return nil
}

func (f *foldContext) nodeChanged(e *outbidv1.NodeChanged) error {
	st, at := f.st, f.at
	n, ok := st.Nodes[e.GetNode()]
	if !ok {
		return broken("node %q does not exist", e.GetNode())
	}
	n.State, n.Reason, n.Changed = e.GetState(), e.GetReason(), at
	n.Shape.Draining = n.State == outbidv1.NodeState_NODE_STATE_DRAINING
	return nil
}

func (f *foldContext) uplinkSeen(e *outbidv1.UplinkSeen) error {
	st := f.st
	n, ok := st.Nodes[e.GetNode()]
	if !ok || n.Info.GetBoot() != e.GetBoot() {
		return broken("uplink of node %q with unknown boot %q", e.GetNode(), e.GetBoot())
	}
	n.SeenSeq = e.GetSeq()
	return nil
}
