package control

import (
	"context"
	"log/slog"

	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// faultLog logs the faults of nodes, each once. Only the loop's goroutine uses it.
type faultLog struct {
	time   *timekeeper
	logger *slog.Logger
	// told holds the last logged faults of avoided nodes.
	told map[string]faultLogged
}

// log logs which nodes new trials begin or cease to avoid. Faults for a single sweep are in its notes instead.
func (l *faultLog) log(changes []state.Change) {
	for i := range changes {
		c, now := &changes[i], l.time.now()
		if fault := c.Fault(); fault != nil && fault.GetSweep() == "" && state.FaultActive(fault, now) && l.isNew(c.Node, fault) {
			level := slog.LevelWarn
			if fault.GetUnfit() && fault.GetDrained() { // its worker stops, or has logged the notice itself
				level = slog.LevelInfo
			}
			l.logger.Log(context.Background(), level, "new trials avoid a node", "node", c.Node.Info.GetName(), "how", state.FaultWord(fault, now),
				"reason", fault.GetReason(), "trials", fault.GetTrials(), "times", fault.GetTimes())
		}
		if sweep, reason, ok := c.Cleared(); ok && sweep == "" {
			delete(l.told, c.Node.Info.GetName())
			if !c.Node.Up() {
				continue
			}
			l.logger.Info("a node accepts new trials again", "node", c.Node.Info.GetName(), "reason", reason)
		}
	}
}

// isNew reports whether a fault has not been logged yet. A fault that only names another trial counts as logged.
func (l *faultLog) isNew(n *state.Node, fault *outbidv1.NodeFault) bool {
	key := faultLogged{fault.GetReason(), fault.GetTimes(), fault.GetUnfit()}
	if l.told[n.Info.GetName()] == key {
		return false
	}
	l.told[n.Info.GetName()] = key
	return true
}

// faultLogged identifies the last logged fault of a node.
type faultLogged struct {
	reason string
	times  int32
	unfit  bool
}
