package nodes

import (
	"fmt"

	"github.com/outbid-dev/outbid/orchestrator/limits"
	"github.com/outbid-dev/outbid/orchestrator/sanitize"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Control does what an administrator asks of a node. Draining it again asks the trials that still run there again.
func (ns *Nodes) Control(name string, command outbidv1.NodeCommand, reason, actor string) error {
	n := ns.st.Nodes[name]
	if n == nil {
		return fmt.Errorf("%w: there is no node %q", state.ErrNotFound, name)
	}
	reason = sanitize.Line(reason, limits.Detail)
	switch command {
	case outbidv1.NodeCommand_NODE_COMMAND_CORDON:
		ns.faults.Close(n, reason, actor, false)
	case outbidv1.NodeCommand_NODE_COMMAND_DRAIN:
		ns.faults.Close(n, reason, actor, true)
		ns.moveAway(n, outbidv1.RevokeKind_REVOKE_KIND_PAUSE, drained(n))
	case outbidv1.NodeCommand_NODE_COMMAND_EVICT:
		ns.faults.Close(n, reason, actor, true)
		ns.moveAway(n, outbidv1.RevokeKind_REVOKE_KIND_STOP, drained(n))
	case outbidv1.NodeCommand_NODE_COMMAND_UNCORDON:
		ns.faults.Open(n, reason, actor)
	default:
		return fmt.Errorf("%w: command: want cordon, drain, evict or uncordon, got %s", state.ErrInvalid, command)
	}
	return nil
}

// drained says that an administrator drains a node, and why.
func drained(n *state.Node) string {
	return fmt.Sprintf("node %s is drained: %s", n.Info.GetName(), n.Manual().GetReason())
}

// moveAway asks the trials on a node to end. They continue on other nodes.
func (ns *Nodes) moveAway(n *state.Node, how outbidv1.RevokeKind, why string) {
	for _, l := range append([]*state.Lease(nil), n.Leases...) {
		s := ns.st.Sweeps[l.Sweep]
		ns.trials.RevokeLease(s, s.Trials[l.Trial], l, how, why)
	}
}
