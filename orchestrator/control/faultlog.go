package control

import (
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// logFaults logs which nodes new trials keep off from now on, or no more. What keeps off one sweep alone is told in its notes.
func (l *Loop) logFaults(changes []state.Change) {
	for i := range changes {
		c, now := &changes[i], l.clock.now()
		if fault := c.Fault(); fault != nil && fault.GetSweep() == "" && state.FaultActive(fault, now) && l.newFault(c.Node, fault) {
			l.cfg.Logger.Warn("new trials keep off a node", "node", c.Node.Info.GetName(), "how", state.FaultWord(fault, now),
				"reason", fault.GetReason(), "trials", fault.GetTrials(), "times", fault.GetTimes())
		}
		if sweep, reason, ok := c.Cleared(); ok && sweep == "" {
			delete(l.faults, c.Node.Info.GetName())
			l.cfg.Logger.Info("a node takes new trials again", "node", c.Node.Info.GetName(), "reason", reason)
		}
	}
}

// newFault reports whether a fault has not been logged yet: one that only names a further trial has.
func (l *Loop) newFault(n *state.Node, fault *outbidv1.NodeFault) bool {
	key := faultLogged{fault.GetReason(), fault.GetTimes(), fault.GetUnfit()}
	if l.faults[n.Info.GetName()] == key {
		return false
	}
	l.faults[n.Info.GetName()] = key
	return true
}

// faultLogged is what was logged last of a node's faults.
type faultLogged struct {
	reason string
	times  int32
	unfit  bool
}
