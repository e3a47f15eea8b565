package state

import (
	"slices"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// nodeIndex owns the nodes, and which leases hold their devices.
type nodeIndex struct {
	// Nodes by name. NodeNames are sorted.
	Nodes     map[string]*Node
	NodeNames []string

	// faulty are the sorted names of the nodes that trials avoid.
	faulty []string
	// joins counts the joins of nodes since this value was made.
	joins uint64
}

// Node is a machine with a worker.
type Node struct {
	Info    *outbidv1.NodeInfo
	State   outbidv1.NodeState
	Reason  string
	Changed time.Time
	// SeenSeq is the last uplink message of this boot that is in the ledger.
	SeenSeq uint64
	// Shape is the node as policies see it.
	Shape cluster.Node
	// Holders holds the lease of each device by index, or nil.
	Holders []*Lease
	// Leases on this node, by lease ID.
	Leases []*Lease
	// Faults keep new trials off the node. The slice and the faults must not be changed.
	Faults []*outbidv1.NodeFault
}

// FreeDevices returns the indexes of a node's devices that no lease holds.
func (n *Node) FreeDevices() []int32 {
	var free []int32
	for i, l := range n.Holders {
		if l == nil {
			free = append(free, int32(i))
		}
	}
	return free
}

// Up reports whether the node is up or draining.
func (n *Node) Up() bool {
	return n.State == outbidv1.NodeState_NODE_STATE_UP || n.State == outbidv1.NodeState_NODE_STATE_DRAINING
}

// nodeJoined adds a node, or replaces it with a new boot.
func (f *foldContext) nodeJoined(e *outbidv1.NodeJoined) error {
	if err := f.st.join(f.at, e.GetNode()); err != nil {
		return err
	}
	f.st.letReturn(e.GetNode().GetName(), "")
	return nil
}

// join adds a node, or replaces it with a new boot.
func (x *nodeIndex) join(at time.Time, info *outbidv1.NodeInfo) error {
	n, ok := x.Nodes[info.GetName()]
	var kept []*outbidv1.NodeFault
	if ok && n.Manual() != nil { // it outlives the worker: the machine may be in repair
		kept = append(kept, n.Manual())
	}
	if ok && len(n.Leases) > 0 {
		return broken("node %s joined again while it has %d leases", info.GetName(), len(n.Leases))
	}
	if !ok {
		n = &Node{}
		x.Nodes[info.GetName()] = n
		i, _ := slices.BinarySearch(x.NodeNames, info.GetName())
		x.NodeNames = slices.Insert(x.NodeNames, i, info.GetName())
	}
	*n = Node{
		Info: info, State: outbidv1.NodeState_NODE_STATE_UP, Changed: at, Shape: shape(info),
		Holders: make([]*Lease, len(info.GetDevices())), Faults: kept,
	}
	x.joins++
	x.noteFaulty(n)
	return nil
}

func (x *nodeIndex) nodeChanged(at time.Time, e *outbidv1.NodeChanged) error {
	n := x.Nodes[e.GetNode()]
	n.State, n.Reason, n.Changed = e.GetState(), e.GetReason(), at
	n.Shape.Draining = n.State == outbidv1.NodeState_NODE_STATE_DRAINING
	return nil
}

func (x *nodeIndex) uplinkSeen(_ time.Time, e *outbidv1.UplinkSeen) error {
	n := x.Nodes[e.GetNode()]
	if n.Info.GetBoot() != e.GetBoot() {
		return broken("uplink of node %q with unknown boot %q", e.GetNode(), e.GetBoot())
	}
	n.SeenSeq = e.GetSeq()
	return nil
}

// CanGrant returns why a lease cannot be granted, or nil: devices may be held or missing.
func (x *nodeIndex) CanGrant(e *outbidv1.LeaseGranted) error {
	l := &Lease{ID: e.GetLeaseId(), Places: PlacesOf(e.GetPlaces())}
	for _, p := range l.Places {
		if n := x.Nodes[p.Node]; n == nil || !n.Up() {
			return broken("node %q is not up", p.Node)
		}
	}
	return x.canHold(l)
}

// canHold returns why a lease's devices cannot be held by it, or nil.
func (x *nodeIndex) canHold(l *Lease) error {
	for _, p := range l.Places {
		if p.Ended {
			continue // other leases may hold its devices
		}
		n, ok := x.Nodes[p.Node]
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
func (x *nodeIndex) hold(l *Lease) {
	l.types = make([]string, len(l.Places))
	for i, p := range l.Places {
		n := x.Nodes[p.Node]
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
		switch first := x.Nodes[l.Rank0()]; {
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

func (x *nodeIndex) release(l *Lease, p Place) {
	n, ok := x.Nodes[p.Node]
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

// TypesAt returns the types of a place's devices that are still held.
func (x *nodeIndex) TypesAt(p Place) []string {
	n := x.Nodes[p.Node]
	if p.Ended || n == nil {
		return nil
	}
	kinds := make([]string, 0, len(p.Devices))
	for _, d := range p.Devices {
		kinds = append(kinds, n.Info.GetDevices()[d].GetType())
	}
	return kinds
}

// countTypes returns how many devices of each type a lease holds, which canHold has accepted.
func (x *nodeIndex) countTypes(l *Lease) map[string]int {
	counts := map[string]int{}
	for _, p := range l.Places {
		if p.Ended {
			continue
		}
		all := x.Nodes[p.Node].Info.GetDevices()
		for _, d := range p.Devices {
			counts[all[d].GetType()]++
		}
	}
	return counts
}

func (x *nodeIndex) inventory() *Inventory {
	inv := &Inventory{Index: map[string]int{}}
	for _, name := range x.NodeNames {
		if n := x.Nodes[name]; n.Up() {
			inv.Index[name] = len(inv.Nodes)
			inv.Nodes = append(inv.Nodes, n.Shape)
		}
	}
	return inv
}

// restoreNode adds a node of a snapshot.
func (x *nodeIndex) restoreNode(r *outbidv1.NodeRecord) {
	name := r.GetInfo().GetName()
	n := &Node{
		Info: r.GetInfo(), State: r.GetState(), Reason: r.GetReason(), SeenSeq: r.GetSeenSeq(),
		Changed: from(r.GetChanged()), Holders: make([]*Lease, len(r.GetInfo().GetDevices())), Shape: shape(r.GetInfo()),
		Faults: r.GetFaults(),
	}
	n.Shape.Draining = r.GetState() == outbidv1.NodeState_NODE_STATE_DRAINING
	x.Nodes[name] = n
	x.NodeNames = append(x.NodeNames, name)
	x.noteFaulty(n)
}

func (x *nodeIndex) restoreLease(s *Sweep, t *Trial, r *outbidv1.LeaseRecord) error {
	l := &Lease{
		Sweep: s.ID, Trial: t.Number, ID: r.GetLeaseId(), Places: PlacesOf(r.GetPlaces()),
		Granted: from(r.GetGranted()), TermEnd: from(r.GetTermEnd()), Reason: r.GetReason(), Revoking: r.GetRevoking(),
		Started: r.GetStarted(), FromStep: r.GetFromStep(), Version: r.GetVersion(), Client: r.GetClient(),
		Step: r.GetStep(), AtTarget: r.GetAtTarget(), Training: from(r.GetTraining()), LastReportSeq: r.GetLastReportSeq(),
		Void: r.GetVoid(), trainedWell: r.GetTrainedWell(), metered: r.GetMetered(), Shards: r.GetShards(), hourPrice: r.GetHourPrice(),
	}
	t.Leases = append(t.Leases, l)
	if len(l.Places) == 0 {
		l.Holder = Client
		return nil
	}
	if err := x.canHold(l); err != nil {
		return err
	}
	x.hold(l)
	return nil
}
