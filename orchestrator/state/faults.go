package state

import (
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// maxAvoided limits the nodes that a trial avoids. The one that it has avoided longest is dropped first.
const maxAvoided = 64

// Avoided is a node that a trial avoids until a time.
type Avoided struct {
	Node  string
	Until time.Time
	// Starts counts how often in a row the trial could not be started there, and is 0 after another failure. If no
	// other node can run the trial, it may return after Until if Starts is above 0, and at once otherwise.
	Starts int32
}

// nodeFaulted records that new trials avoid a node.
func (x *nodeIndex) nodeFaulted(_ time.Time, e *outbidv1.NodeFaulted) error {
	n := x.Nodes[e.GetNode()]
	n.clear(e.GetFault())
	n.Faults = append(n.Faults, e.GetFault())
	x.noteFaulty(n)
	return nil
}

// nodeCleared records that a fault of a node has ended.
func (f *foldContext) nodeCleared(e *outbidv1.NodeCleared) error {
	n := f.st.Nodes[e.GetNode()]
	n.clear(e)
	f.st.noteFaulty(n)
	if !e.GetUnfit() && !e.GetAfterStart() && !e.GetManual() {
		f.st.letReturn(e.GetNode(), e.GetSweep())
	}
	return nil
}

// noteFaulty updates the list of nodes with faults.
func (x *nodeIndex) noteFaulty(n *Node) {
	i, known := slices.BinarySearch(x.faulty, n.Info.GetName())
	switch faulty := len(n.Faults) > 0; {
	case faulty && !known:
		x.faulty = slices.Insert(x.faulty, i, n.Info.GetName())
	case !faulty && known:
		x.faulty = slices.Delete(x.faulty, i, i+1)
	}
}

// Faulty returns the nodes with faults, by name. New trials of all or some sweeps avoid them, or did until the
// fault's time was over.
func (x *nodeIndex) Faulty() []*Node {
	nodes := make([]*Node, len(x.faulty))
	for i, name := range x.faulty {
		nodes[i] = x.Nodes[name]
	}
	return nodes
}

// faultKey identifies a fault of a node.
type faultKey interface {
	GetSweep() string
	GetUnfit() bool
	GetAfterStart() bool
	GetManual() bool
}

func sameFault(a, b faultKey) bool {
	return a.GetSweep() == b.GetSweep() && a.GetUnfit() == b.GetUnfit() && a.GetAfterStart() == b.GetAfterStart() && a.GetManual() == b.GetManual()
}

// clear removes a fault. It makes a new slice, because readers have the old one.
func (n *Node) clear(k faultKey) {
	n.Faults = slices.DeleteFunc(slices.Clone(n.Faults), func(o *outbidv1.NodeFault) bool { return sameFault(o, k) })
}

// Fault returns the fault that makes the trials of a sweep, or all trials if it is "", avoid a node after failed
// starts, or nil.
func (n *Node) Fault(sweep string) *outbidv1.NodeFault {
	return n.find(&outbidv1.NodeFault{Sweep: sweep})
}

// Unfit returns the fault that the node's worker reports, or nil.
func (n *Node) Unfit() *outbidv1.NodeFault { return n.find(&outbidv1.NodeFault{Unfit: true}) }

// AfterStart returns the fault that makes the trials of a sweep, or all trials if it is "", avoid a node after
// failures of started trials, or nil.
func (n *Node) AfterStart(sweep string) *outbidv1.NodeFault {
	return n.find(&outbidv1.NodeFault{Sweep: sweep, AfterStart: true})
}

// Manual returns the fault that an administrator set to keep new trials off a node, or nil.
func (n *Node) Manual() *outbidv1.NodeFault { return n.find(&outbidv1.NodeFault{Manual: true}) }

func (n *Node) find(k faultKey) *outbidv1.NodeFault {
	for _, o := range n.Faults {
		if sameFault(o, k) {
			return o
		}
	}
	return nil
}

// KeepsOff returns why a node accepts no new trials of any sweep at a time, or nil if it does.
func (n *Node) KeepsOff(at time.Time) *outbidv1.NodeFault {
	for _, o := range n.Faults {
		if o.GetSweep() == "" && FaultActive(o, at) {
			return o
		}
	}
	return nil
}

// FaultActive reports whether trials avoid a node because of a fault at a time. A node that is cordoned or closed by an
// administrator is opened by an event.
func FaultActive(o *outbidv1.NodeFault, at time.Time) bool {
	return o != nil && (o.GetUnfit() || o.GetCordoned() || o.GetManual() || at.Before(from(o.GetUntil())))
}

// avoid records that a trial avoids a node after a failure.
func (t *Trial) avoid(e *outbidv1.ForkFailed) {
	if e.GetAvoidUntil() == nil || e.GetNode() == "" {
		return
	}
	a := Avoided{Node: e.GetNode(), Until: from(e.GetAvoidUntil())}
	kept := make([]Avoided, 0, len(t.Avoided)+1)
	for _, o := range t.Avoided {
		if o.Node == a.Node {
			a.Starts = o.Starts
		} else {
			kept = append(kept, o)
		}
	}
	if CouldNotStart(e.GetKind()) {
		a.Starts++
	} else {
		a.Starts = 0
	}
	t.Avoided = append(kept[max(0, len(kept)+1-maxAvoided):], a)
}

// Avoids returns the entry of a node that a trial avoids, or nil. Its time may be over.
func (t *Trial) Avoids(node string) *Avoided {
	for i := range t.Avoided {
		if t.Avoided[i].Node == node {
			return &t.Avoided[i]
		}
	}
	return nil
}

// CouldNotStart reports whether a failure means that the training process never ran.
func CouldNotStart(kind outbidv1.FailureKind) bool {
	return kind == outbidv1.FailureKind_FAILURE_KIND_START || kind == outbidv1.FailureKind_FAILURE_KIND_NODE
}

// startedOn records that a trial of the sweep has started on the nodes of a lease.
func (x *nodeIndex) startedOn(s *Sweep, t *Trial, l *Lease) {
	t.Avoided = slices.DeleteFunc(slices.Clone(t.Avoided), func(a Avoided) bool { return a.Starts > 0 && l.PlaceOn(a.Node) >= 0 })
	x.markNodes(&s.started, l)
}

// TrainedWell is how long a trial must train under a lease to show that its node can train.
const TrainedWell = time.Minute

// trainedOn records that a trial of the sweep has trained well on the nodes of a lease. Trials that failed there may
// return.
func (st *State) trainedOn(s *Sweep, l *Lease) {
	l.trainedWell = true
	st.markNodes(&s.trained, l)
	st.letReturnTo(s, l)
}

// markNodes records the boots of a lease's nodes.
func (x *nodeIndex) markNodes(boots *map[string]string, l *Lease) {
	for _, p := range l.Places {
		n := x.Nodes[p.Node]
		if n == nil || (*boots)[p.Node] == n.Info.GetBoot() {
			continue
		}
		if *boots == nil {
			*boots = map[string]string{}
		}
		(*boots)[p.Node] = n.Info.GetBoot()
	}
}

// StartedOn reports whether a trial of the sweep has started on a node since the node's worker started.
func (s *Sweep) StartedOn(n *Node) bool { return isMarked(s.started, n) }

func isMarked(boots map[string]string, n *Node) bool {
	boot, ok := boots[n.Info.GetName()]
	return ok && boot == n.Info.GetBoot()
}

// StartedElsewhere reports whether a trial of the sweep has started on another node since that node's worker started.
func (x *nodeIndex) StartedElsewhere(s *Sweep, n *Node) bool { return x.markedElsewhere(s.started, n) }

// TrainedElsewhere reports whether a trial of the sweep has trained well on another node since that node's worker
// started.
func (x *nodeIndex) TrainedElsewhere(s *Sweep, n *Node) bool { return x.markedElsewhere(s.trained, n) }

func (x *nodeIndex) markedElsewhere(boots map[string]string, n *Node) bool {
	for name := range boots {
		if o := x.Nodes[name]; o != nil && o != n && isMarked(boots, o) {
			return true
		}
	}
	return false
}

// markedNodes returns the sorted names of the nodes that are marked with their current boots.
func (x *nodeIndex) markedNodes(boots map[string]string) []string {
	var nodes []string
	for _, name := range slices.Sorted(maps.Keys(boots)) {
		if n := x.Nodes[name]; n != nil && isMarked(boots, n) {
			nodes = append(nodes, name)
		}
	}
	return nodes
}

// restoreMarks is the counterpart of markedNodes.
func (x *nodeIndex) restoreMarks(nodes []string) map[string]string {
	if len(nodes) == 0 {
		return nil
	}
	boots := make(map[string]string, len(nodes))
	for _, name := range nodes {
		if n := x.Nodes[name]; n != nil {
			boots[name] = n.Info.GetBoot()
		}
	}
	return boots
}

func avoidedRecords(all []Avoided) []*outbidv1.NodeAvoided {
	var records []*outbidv1.NodeAvoided
	for _, a := range all {
		records = append(records, &outbidv1.NodeAvoided{Node: a.Node, Until: timestamppb.New(a.Until), Starts: a.Starts})
	}
	return records
}

func avoidedOf(records []*outbidv1.NodeAvoided) []Avoided {
	var all []Avoided
	for _, r := range records {
		all = append(all, Avoided{Node: r.GetNode(), Until: from(r.GetUntil()), Starts: r.GetStarts()})
	}
	return all
}

// FaultWord describes a fault at a time: "unfit" if the node's worker reports it, "drained" if trials were moved away too,
// "cordoned", "backing off", or "open again" until the next start shows whether the fault is over.
func FaultWord(o *outbidv1.NodeFault, at time.Time) string {
	switch {
	case o.GetDrained():
		return "drained"
	case o.GetUnfit():
		return "unfit"
	case o.GetCordoned(), o.GetManual():
		return "cordoned"
	case FaultActive(o, at):
		return "backing off"
	default:
		return "open again"
	}
}
