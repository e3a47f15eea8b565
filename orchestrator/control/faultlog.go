package control

import (
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// logFaults logs which nodes new trials begin or cease to avoid. Faults for a single sweep are in its notes instead.
func (l *Loop) logFaults(changes []state.Change) {
	for i := range changes {
		c, now := &changes[i], l.clock.now()
		if fault := c.Fault(); fault != nil && fault.GetSweep() == "" && state.FaultActive(fault, now) && l.newFault(c.Node, fault) {
			l.cfg.Logger.Warn("new trials avoid a node", "node", c.Node.Info.GetName(), "how", state.FaultWord(fault, now),
				"reason", fault.GetReason(), "trials", fault.GetTrials(), "times", fault.GetTimes())
		}
		if sweep, reason, ok := c.Cleared(); ok && sweep == "" {
			delete(l.faults, c.Node.Info.GetName())
			l.cfg.Logger.Info("a node accepts new trials again", "node", c.Node.Info.GetName(), "reason", reason)
		}
	}
}

// newFault reports whether a fault has not been logged yet. A fault that only names another trial counts as logged.
func (l *Loop) newFault(n *state.Node, fault *outbidv1.NodeFault) bool {
	key := faultLogged{fault.GetReason(), fault.GetTimes(), fault.GetUnfit()}
	if l.faults[n.Info.GetName()] == key {
		return false
	}
	l.faults[n.Info.GetName()] = key
	return true
}

// faultLogged identifies the last logged fault of a node.
type faultLogged struct {
	reason string
	times  int32
	unfit  bool
}
