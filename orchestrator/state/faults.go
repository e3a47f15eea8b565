package state

import (
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// maxAvoided bounds the nodes that a trial keeps off; the one that it has avoided longest is tried again first.
const maxAvoided = 64

// Avoided is a node that a trial keeps off until a time.
type Avoided struct {
	Node  string
	Until time.Time
	// Starts counts how often in a row the trial could not be started there; 0 after another failure. If no other node can
	// run the trial, it may return after Until in the first case, and at once in the second.
	Starts int32
}

// nodeFaulted: new trials keep off a node.
func (f *folding) nodeFaulted(e *outbidv1.NodeFaulted) error {
	n := f.st.Nodes[e.GetNode()]
	n.clear(e.GetFault())
	n.Faults = append(n.Faults, e.GetFault())
	f.st.noteFaulty(n)
	return nil
}

// nodeCleared: a fault of a node has ended.
func (f *folding) nodeCleared(e *outbidv1.NodeCleared) error {
	n := f.st.Nodes[e.GetNode()]
	n.clear(e)
	f.st.noteFaulty(n)
	if !e.GetUnfit() && !e.GetAfterStart() {
		f.st.avoidNoMore(e.GetNode(), e.GetSweep())
	}
	return nil
}

// avoidNoMore lets the trials of a sweep ("" for all) return to a node on which they could not be started.
func (st *State) avoidNoMore(node, sweep string) {
	for t, s := range st.avoiding { // in any order: each changes its own trial only
		if a := t.Avoids(node); a == nil || a.Starts == 0 || sweep != "" && sweep != s.ID {
			continue
		}
		t.Avoided = slices.DeleteFunc(slices.Clone(t.Avoided), func(a Avoided) bool { return a.Node == node })
		st.watch(s, t)
	}
}

// noteFaulty keeps the list of nodes with faults.
func (st *State) noteFaulty(n *Node) {
	i, known := slices.BinarySearch(st.faulty, n.Info.GetName())
	switch faulty := len(n.Faults) > 0; {
	case faulty && !known:
		st.faulty = slices.Insert(st.faulty, i, n.Info.GetName())
	case !faulty && known:
		st.faulty = slices.Delete(st.faulty, i, i+1)
	}
}

// Faulty are the nodes that new trials keep off, or kept off, by name: all of them or those of some sweeps.
func (st *State) Faulty() []*Node {
	nodes := make([]*Node, len(st.faulty))
	for i, name := range st.faulty {
		nodes[i] = st.Nodes[name]
	}
	return nodes
}

// Avoiding are the trials that keep off a node, or did, with their sweeps.
func (st *State) Avoiding() map[*Trial]*Sweep { return st.avoiding }

// faultKey is what faults of a node differ by.
type faultKey interface {
	GetSweep() string
	GetUnfit() bool
	GetAfterStart() bool
}

// clear removes a fault. The slice is a new one: readers have the old.
func (n *Node) clear(k faultKey) {
	n.Faults = slices.DeleteFunc(slices.Clone(n.Faults), func(o *outbidv1.NodeFault) bool {
		return o.GetSweep() == k.GetSweep() && o.GetUnfit() == k.GetUnfit() && o.GetAfterStart() == k.GetAfterStart()
	})
}

// Fault returns the fault by which the trials of a sweep ("" for all trials) keep off a node because some could not be started
// there, or nil if there is none.
func (n *Node) Fault(sweep string) *outbidv1.NodeFault {
	return n.find(&outbidv1.NodeFault{Sweep: sweep})
}

// Unfit returns the fault that the node's worker reports, or nil if there is none.
func (n *Node) Unfit() *outbidv1.NodeFault { return n.find(&outbidv1.NodeFault{Unfit: true}) }

// AfterStart returns the fault by which the trials of a sweep ("" for all trials) keep off a node because some failed there after
// they had started, or nil if there is none.
func (n *Node) AfterStart(sweep string) *outbidv1.NodeFault {
	return n.find(&outbidv1.NodeFault{Sweep: sweep, AfterStart: true})
}

func (n *Node) find(k faultKey) *outbidv1.NodeFault {
	for _, o := range n.Faults {
		if o.GetSweep() == k.GetSweep() && o.GetUnfit() == k.GetUnfit() && o.GetAfterStart() == k.GetAfterStart() {
			return o
		}
	}
	return nil
}

// KeepsOff returns why a node takes no new trials of any sweep at a time; nil if it takes them.
func (n *Node) KeepsOff(at time.Time) *outbidv1.NodeFault {
	for _, o := range n.Faults {
		if o.GetSweep() == "" && FaultActive(o, at) {
			return o
		}
	}
	return nil
}

// FaultActive reports whether a fault keeps trials off at a time. A node that is cordoned is opened by an event.
func FaultActive(o *outbidv1.NodeFault, at time.Time) bool {
	return o != nil && (o.GetUnfit() || o.GetCordoned() || at.Before(from(o.GetUntil())))
}

// avoid notes which node a trial keeps off after a failure.
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

// Avoids returns what a trial knows of a node that it keeps off; nil for nothing. Its time may be over.
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

// startedOn notes that a trial of the sweep has started on the nodes of a lease.
func (st *State) startedOn(s *Sweep, t *Trial, l *Lease) {
	t.Avoided = slices.DeleteFunc(slices.Clone(t.Avoided), func(a Avoided) bool { return a.Starts > 0 && l.PlaceOn(a.Node) >= 0 })
	st.markNodes(&s.started, l)
}

// TrainedWell is how long a trial has to train under a lease until that shows that its node can train.
const TrainedWell = time.Minute

// trainedOn notes that a trial of the sweep has trained well on the nodes of a lease: those that failed there may return.
func (st *State) trainedOn(s *Sweep, l *Lease) {
	l.trainedWell = true
	st.markNodes(&s.trained, l)
	for t, of := range st.avoiding { // in any order: each changes its own trial only
		if of == s {
			t.Avoided = slices.DeleteFunc(slices.Clone(t.Avoided), func(a Avoided) bool { return a.Starts == 0 && l.PlaceOn(a.Node) >= 0 })
			st.watch(s, t)
		}
	}
}

// markNodes notes the boots of a lease's nodes.
func (st *State) markNodes(boots *map[string]string, l *Lease) {
	for _, p := range l.Places {
		n := st.Nodes[p.Node]
		if n == nil || (*boots)[p.Node] == n.Info.GetBoot() {
			continue
		}
		if *boots == nil {
			*boots = map[string]string{}
		}
		(*boots)[p.Node] = n.Info.GetBoot()
	}
}

// StartedOn reports whether a trial of the sweep has started on a node since its worker did.
func (s *Sweep) StartedOn(n *Node) bool { return isMarked(s.started, n) }

func isMarked(boots map[string]string, n *Node) bool {
	boot, ok := boots[n.Info.GetName()]
	return ok && boot == n.Info.GetBoot()
}

// StartedElsewhere reports whether a trial of the sweep has started on another node since that node's worker did.
func (st *State) StartedElsewhere(s *Sweep, n *Node) bool { return st.markedElsewhere(s.started, n) }

// TrainedElsewhere reports whether a trial of the sweep has trained well on another node since that node's worker started.
func (st *State) TrainedElsewhere(s *Sweep, n *Node) bool { return st.markedElsewhere(s.trained, n) }

func (st *State) markedElsewhere(boots map[string]string, n *Node) bool {
	for name := range boots {
		if o := st.Nodes[name]; o != nil && o != n && isMarked(boots, o) {
			return true
		}
	}
	return false
}

// markedNodes are the nodes that are marked with the boots that they have, sorted.
func (st *State) markedNodes(boots map[string]string) []string {
	var nodes []string
	for _, name := range slices.Sorted(maps.Keys(boots)) {
		if n := st.Nodes[name]; n != nil && isMarked(boots, n) {
			nodes = append(nodes, name)
		}
	}
	return nodes
}

// restoreMarks is the counterpart of markedNodes.
func (st *State) restoreMarks(nodes []string) map[string]string {
	if len(nodes) == 0 {
		return nil
	}
	boots := make(map[string]string, len(nodes))
	for _, name := range nodes {
		if n := st.Nodes[name]; n != nil {
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

// FaultWord names what a fault does to a node at a time, in one word or two: "unfit" if its worker reports it, "cordoned",
// "backing off", or "open again" while the next start has yet to show whether it is over.
func FaultWord(o *outbidv1.NodeFault, at time.Time) string {
	switch {
	case o.GetUnfit():
		return "unfit"
	case o.GetCordoned():
		return "cordoned"
	case FaultActive(o, at):
		return "backing off"
	default:
		return "open again"
	}
}
