package state

import (
	"slices"
	"time"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

func (st *State) leaseGranted(at time.Time, s *Sweep, t *Trial, e *outbidv1.LeaseGranted) error {
	n, ok := st.Nodes[e.GetNode()]
	if !ok {
		return broken("lease on node %q, which does not exist", e.GetNode())
	}
	for _, d := range e.GetDevices() {
		if int(d) >= len(n.Holders) || d < 0 {
			return broken("lease on device %d of node %s, which has %d", d, e.GetNode(), len(n.Holders))
		}
		if h := n.Holders[d]; h != nil {
			return broken("device %d of node %s is held by %s under epoch %d", d, e.GetNode(), trialName(h.Sweep, h.Trial), h.Epoch)
		}
	}
	l := &Lease{
		Sweep: s.ID, Trial: t.Number, Epoch: e.GetEpoch(), Node: e.GetNode(), Devices: e.GetDevices(),
		Granted: at, Reason: e.GetReason(), Version: 1,
	}
	if e.GetTermEnd() != nil {
		l.TermEnd = e.GetTermEnd().AsTime()
	}
	if err := st.lease(s, t, l); err != nil {
		return err
	}
	n.hold(l)
	return nil
}

func (n *Node) hold(l *Lease) {
	n.Leases = append(n.Leases, l)
	for _, d := range l.Devices {
		n.Holders[d] = l
	}
}

func (st *State) trialAsked(at time.Time, s *Sweep, t *Trial, e *outbidv1.TrialAsked) error {
	return st.lease(s, t, &Lease{
		Sweep: s.ID, Trial: t.Number, Epoch: e.GetEpoch(), Granted: at, Client: e.GetClient(), Started: true,
		Version: 1, FromStep: t.Step,
	})
}

func (st *State) lease(s *Sweep, t *Trial, l *Lease) error {
	if err := checkTrial("lease granted", t.State); err != nil {
		return err
	}
	if l.Epoch != st.NextEpoch {
		return broken("lease has epoch %d, %d was to be next", l.Epoch, st.NextEpoch)
	}
	st.NextEpoch++
	t.Lease, t.LastReportSeq, t.AtTarget = l, 0, false
	s.setState(t, trialRunning)
	s.Running = append(s.Running, t.Number)
	return nil
}

func (s *Sweep) leaseRevoked(t *Trial, e *outbidv1.LeaseRevoked) error {
	if t.Lease == nil || t.Lease.Epoch != e.GetEpoch() {
		return broken("revoked epoch %d is not its lease", e.GetEpoch())
	}
	// A stop overrides a pause, never the other way round.
	if t.Lease.Revoking != outbidv1.RevokeKind_REVOKE_KIND_STOP {
		t.Lease.Revoking = e.GetHow()
	}
	t.Lease.Version++
	return nil
}

func (st *State) leaseEnded(at time.Time, s *Sweep, t *Trial, e *outbidv1.LeaseEnded) error {
	l := t.Lease
	if l == nil || l.Epoch != e.GetEpoch() {
		return broken("ended epoch %d is not its lease", e.GetEpoch())
	}
	t.Lease = nil
	s.Running = remove(s.Running, t.Number)
	t.DeviceSeconds += e.GetDeviceSeconds()
	s.DeviceSeconds += e.GetDeviceSeconds()
	if n, ok := st.Nodes[l.Node]; ok {
		n.release(l)
	}
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

func (n *Node) release(l *Lease) {
	n.Leases = slices.DeleteFunc(n.Leases, func(o *Lease) bool { return o == l })
	for _, d := range l.Devices {
		if int(d) < len(n.Holders) && n.Holders[d] == l {
			n.Holders[d] = nil
		}
	}
}

func (s *Sweep) forkStarted(t *Trial, e *outbidv1.ForkStarted) error {
	if t.Lease == nil || t.Lease.Epoch != e.GetEpoch() {
		return broken("started epoch %d is not its lease", e.GetEpoch())
	}
	t.Lease.Started, t.Lease.FromStep = true, e.GetFromStep()
	t.Step = e.GetFromStep()
	return nil
}

func (s *Sweep) forkFailed(t *Trial, e *outbidv1.ForkFailed) error {
	if t.Lease == nil || t.Lease.Epoch != e.GetEpoch() {
		return broken("failed epoch %d is not its lease", e.GetEpoch())
	}
	if e.GetKind() != outbidv1.FailureKind_FAILURE_KIND_NODE_LOST {
		t.Restarts++
	}
	return nil
}

func (st *State) nodeJoined(at time.Time, e *outbidv1.NodeJoined) error {
	info := e.GetNode()
	n, ok := st.Nodes[info.GetName()]
	if ok && len(n.Leases) > 0 {
		return broken("node %s joined anew while %d leases are on it", info.GetName(), len(n.Leases))
	}
	if !ok {
		n = &Node{}
		st.Nodes[info.GetName()] = n
		i, _ := slices.BinarySearch(st.NodeNames, info.GetName())
		st.NodeNames = slices.Insert(st.NodeNames, i, info.GetName())
	}
	*n = Node{
		Info: info, State: outbidv1.NodeState_NODE_STATE_UP, Changed: at,
		Holders: make([]*Lease, len(info.GetDevices())),
	}
	return nil
}

func (st *State) nodeChanged(at time.Time, e *outbidv1.NodeChanged) error {
	n, ok := st.Nodes[e.GetNode()]
	if !ok {
		return broken("node %q does not exist", e.GetNode())
	}
	n.State, n.Reason, n.Changed = e.GetState(), e.GetReason(), at
	return nil
}

func (st *State) uplinkSeen(e *outbidv1.UplinkSeen) error {
	n, ok := st.Nodes[e.GetNode()]
	if !ok || n.Info.GetBoot() != e.GetBoot() {
		return broken("uplink of node %q boot %q, which is not known", e.GetNode(), e.GetBoot())
	}
	n.SeenSeq = e.GetSeq()
	return nil
}
