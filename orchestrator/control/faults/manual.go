package faults

import (
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Close keeps new trials off a node until Open, because an administrator says so. It stays closed if its worker
// restarts.
func (fs *Faults) Close(n *state.Node, reason, actor string, drained bool) {
	if reason == "" {
		reason = "an administrator closed it"
	}
	old := n.Manual()
	fault := &outbidv1.NodeFault{
		Reason: reason, Since: timestamppb.New(fs.core.Now()), Manual: true, Actor: actor, Drained: drained || old.GetDrained(),
	}
	if old != nil {
		fault.Since = old.GetSince()
	}
	fs.emitFault(n, fault)
}

// Open lets trials onto a node again, and forgets its earlier failures too, because the administrator has repaired it.
// Faults that its worker reports remain.
func (fs *Faults) Open(n *state.Node, reason, actor string) {
	if reason == "" {
		reason = "an administrator opened it"
	}
	for _, o := range n.Faults {
		if !o.GetUnfit() && o.GetSweep() == "" {
			fs.clearFault(n, o, reason, actor)
		}
	}
}
