// Package nodes owns what the core knows of nodes besides the state. It applies the messages of workers and the commands
// of administrators, and makes the workers' orders.
package nodes

import (
	"fmt"
	"slices"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/control/faults"
	"github.com/outbid-dev/outbid/orchestrator/control/merging"
	"github.com/outbid-dev/outbid/orchestrator/control/tenants"
	"github.com/outbid-dev/outbid/orchestrator/control/trials"
	"github.com/outbid-dev/outbid/orchestrator/sanitize"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Core is the part of the core that this package needs.
type Core interface {
	// Now returns the time of the current step.
	Now() time.Time
	// Failed reports whether an event could not be applied.
	Failed() bool
	// Emit decides an event.
	Emit(e *outbidv1.Event)
	// Note adds a line for the user to the log of a sweep or a trial.
	Note(sweep string, trial *int32, level, format string, args ...any)
}

// Settings configure Nodes.
type Settings struct {
	// Lease is how long a node may run without contact to the server, and how long it must be silent before its
	// devices are given to other trials.
	Lease time.Duration
	// Overlap is how long an earlier server that was cut off may have given orders after this one began. Nodes from
	// which this server has no message are not lost before that time is over either.
	Overlap time.Duration
	// Version of this server. Workers of another major version are refused.
	Version string
	// Term of this server: workers ignore orders of a lower term.
	Term uint64
	// Store is the name of the object store that is sent to workers that do not have one.
	Store string
	// Tenants reports that sweeps come from users other than the one that runs the server, so workers must isolate
	// them.
	Tenants bool
	// Trust reports whether a node's worker has joined this server, and so may run functions. If nil, no node is
	// trusted.
	Trust func(node string) bool
	// Sign returns the proof that this server accepted a function, given the SHA-256 of its blob. If nil, no proof is
	// sent.
	Sign func(blob string) []byte
	// Seal encrypts the values of a tenant's secrets, which are given by variable, for the worker of a node. The
	// error names the missing secret. If nil, as in the simulator, no secrets are sent.
	Seal func(node *outbidv1.NodeInfo, tenant string, secrets map[string]string) ([]byte, error)
}

// Nodes talks to workers.
type Nodes struct {
	core    Core
	st      *state.State
	set     Settings
	trials  *trials.Trials
	merging *merging.Merging
	faults  *faults.Faults
	tenants *tenants.Tenants
	// started is the time of this core's first decision. Nodes that have not been seen since are given a lease's
	// time.
	started time.Time
	// nodes are the contacts by name.
	nodes map[string]*nodeContact
	// ordersDue names the nodes that get orders at the end of the step.
	ordersDue map[string]bool
	// up is how many nodes were up at the last check.
	up int
	// unordered holds the leases for which no orders can be made. Their trials fail in the next step.
	unordered []unordered
}

// New returns the Nodes of a core that decides on a state.
func New(
	core Core, st *state.State, t *trials.Trials, m *merging.Merging, f *faults.Faults, tn *tenants.Tenants, set Settings,
) *Nodes {
	return &Nodes{
		core: core, st: st, set: set, trials: t, merging: m, faults: f, tenants: tn,
		nodes: map[string]*nodeContact{}, ordersDue: map[string]bool{},
	}
}

// Start records the time of the core's first decision.
func (ns *Nodes) Start() {
	if ns.started.IsZero() {
		ns.started = ns.core.Now()
	}
}

// nodeContact is the contact with a node since this server began to lead. It is not in the state, because it must not
// survive a restart.
type nodeContact struct {
	// seen is when the node was last seen.
	seen time.Time
	// heard is set once it has been seen since the start.
	heard bool
	// own is when the worker that owns the node's name was last seen, or zero if it has not been since the start.
	own time.Time
	// boot is the boot ID that was last seen. The core asks for the info of unknown boots.
	boot string
	// taken is the version of each assignment that the node acts on, by lease ID.
	taken map[uint64]uint64
	// missing is the time since when the node has not named a fork that it had accepted, by lease ID.
	missing map[uint64]time.Time
	// said are the assignments of the last orders, by lease ID. Most are the same in the next orders. They must not
	// be changed.
	said map[uint64]*outbidv1.Assignment
	// generation of the last orders.
	generation uint64
	// hello reports that the node must send its info.
	hello bool
	// refused is why the worker is refused, or "".
	refused string
}

func (ns *Nodes) contact(node string) *nodeContact {
	l, ok := ns.nodes[node]
	if !ok {
		l = &nodeContact{seen: ns.started, missing: map[uint64]time.Time{}}
		ns.nodes[node] = l
	}
	return l
}

// OrdersDue marks a node as needing orders.
func (ns *Nodes) OrdersDue(node string) {
	if node != "" {
		ns.ordersDue[node] = true
	}
}

// join registers a node, or a new boot of a node. The trials of an earlier boot are gone.
func (ns *Nodes) join(up *outbidv1.Uplink, old *state.Node) {
	switch {
	case old != nil && up.GetInfo().GetKilled() != "" && up.GetInfo().GetKilled() == old.Info.GetBoot():
		ns.freeNode(old, "its worker was killed from outside and restarted", false)
	case old != nil:
		ns.freeNode(old, "its worker restarted", true)
	}
	info := boundInfo(up.GetInfo())
	sanitize.RepairFields(info)
	info.Trusted = ns.set.Trust != nil && ns.set.Trust(up.GetNode())
	info.Name, info.Boot = up.GetNode(), up.GetBoot()
	ns.merging.TouchForked()
	ns.core.Emit(&outbidv1.Event{Kind: &outbidv1.Event_NodeJoined{NodeJoined: &outbidv1.NodeJoined{Node: info}}})
}

// changeNode records a node's new state. Averages that were assigned to the node are reassigned.
func (ns *Nodes) changeNode(node string, to outbidv1.NodeState, reason string) {
	ns.merging.TouchForked()
	ns.core.Emit(&outbidv1.Event{Kind: &outbidv1.Event_NodeChanged{NodeChanged: &outbidv1.NodeChanged{
		Node: node, State: to, Reason: reason,
	}}})
}

// freeNode ends every lease on a node whose processes are gone. died is false if its worker shut down cleanly, or was
// killed by something that no trial can have caused.
func (ns *Nodes) freeNode(n *state.Node, why string, died bool) {
	for _, l := range slices.Clone(n.Leases) {
		s := ns.st.Sweeps[l.Sweep]
		ns.trials.ForkFailed(s, s.Trials[l.Trial], l, n.Info.GetName(), trials.Failure{
			Kind: outbidv1.FailureKind_FAILURE_KIND_NODE_LOST, Died: died,
			Detail: fmt.Sprintf("node %s: %s", n.Info.GetName(), why),
		})
	}
}

// checkNode marks a node as lost if it was silent for longer than its lease, because its worker has ended its forks
// by then.
func (ns *Nodes) checkNode(n *state.Node) {
	if !n.Up() {
		return
	}
	l := ns.contact(n.Info.GetName())
	silent, allowed := ns.core.Now().Sub(l.seen), ns.set.Lease+LeaseMargin
	if !l.heard {
		allowed += ns.set.Overlap
	}
	if silent <= allowed {
		return
	}
	ns.freeNode(n, fmt.Sprintf("silent for %s", silent.Round(time.Second)), true)
	ns.changeNode(n.Info.GetName(), outbidv1.NodeState_NODE_STATE_LOST, fmt.Sprintf("silent for %s", silent.Round(time.Second)))
}

// CheckAll marks silent nodes as lost.
func (ns *Nodes) CheckAll() {
	up := 0
	for _, name := range ns.st.NodeNames {
		n := ns.st.Nodes[name]
		ns.checkNode(n)
		if n.Up() {
			up++
		}
	}
	ns.up = up
}

const (
	// beatEvery is the time between two heartbeats of a node that knows no other.
	beatEvery = time.Second
	// beatsPerSecond is how many heartbeats a second all nodes together send at most, unless that would take one of them
	// longer than a part of its lease (beatsPerLease). The server verifies each one and signs an answer.
	beatsPerSecond = 2500
	beatsPerLease  = 5
)

// beat returns the time between two heartbeats of a node.
func (ns *Nodes) beat() time.Duration {
	return max(beatEvery, min(time.Duration(ns.up)*time.Second/beatsPerSecond, ns.set.Lease/beatsPerLease))
}

// Seen records when nodes were last seen, including messages that have not been applied yet.
func (ns *Nodes) Seen(at map[string]time.Time) {
	for name, at := range at {
		if l, known := ns.nodes[name]; known && at.After(l.seen) {
			l.seen, l.heard = at, true
		}
	}
}

// Stalled gives every node the time for which the loop did not run. Nodes are not to blame for their silence during
// that time, and orders may have been late by as much.
func (ns *Nodes) Stalled(by time.Duration) {
	later := func(t time.Time) time.Time {
		if t = t.Add(by); t.After(ns.core.Now()) {
			return ns.core.Now()
		}
		return t
	}
	ns.started = later(ns.started)
	for _, l := range ns.nodes {
		l.seen = later(l.seen)
		if !l.own.IsZero() {
			l.own = later(l.own)
		}
		for id, since := range l.missing {
			l.missing[id] = later(since)
		}
	}
}

// LeaseMargin covers the delivery of orders and the time that a worker takes to end a process when its lease expires.
const LeaseMargin = 2 * time.Second
