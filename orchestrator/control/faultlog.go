package control

import (
	"github.com/outbid-dev/outbid/orchestrator/state"
)

// logFaults logs which nodes new trials keep off from now on, or no more. What keeps off one sweep alone is told in its notes.
func (l *Loop) logFaults(changes []state.Change) {
	for i := range changes {
		c, now := &changes[i], l.clock.now()
		if fault := c.Fault(); fault != nil && fault.GetSweep() == "" && state.FaultActive(fault, now) {
			l.cfg.Logger.Warn("new trials keep off a node", "node", c.Node.Info.GetName(), "how", state.FaultWord(fault, now),
				"reason", fault.GetReason(), "trials", fault.GetTrials(), "times", fault.GetTimes())
		}
		if sweep, reason, ok := c.Cleared(); ok && sweep == "" {
			l.cfg.Logger.Info("a node takes new trials again", "node", c.Node.Info.GetName(), "reason", reason)
		}
	}
}
