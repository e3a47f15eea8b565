package control

import (
	"fmt"
	"runtime/debug"

	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// sweep is a sweep as readers see it. mu is held for reading.
func (l *Loop) sweep(s *state.Sweep) *outbidv1.Sweep {
	v := &outbidv1.Sweep{Id: s.ID, Spec: s.Spec, State: s.State, Actor: s.Actor}
	l.part(s, "state", func() { v = l.core.st.View(s) })
	if s.State == outbidv1.SweepState_SWEEP_STATE_RUNNING && (len(s.Queued) > 0 || len(s.Running) == 0) {
		l.part(s, "waiting", func() { v.Waiting = l.core.whyWaiting(s) })
	}
	l.part(s, "outlook", func() {
		if o, known := l.core.outlook(s.ID); known {
			v.Outlook = o.Message()
		}
	})
	if !s.Done() {
		l.part(s, "fairness", func() {
			now := l.core.board.view
			now.Now = l.clock.now()
			now.AppSeconds = l.core.st.AppSeconds(now.Now)
			v.Fairness = l.core.fairness(&now, s, false)
		})
	}
	return v
}

// part computes one part of a sweep's view. If that panics, the view does without it, so that the other parts and the
// other sweeps of a list are shown all the same. A sweep's part is logged the first time only: readers come many times a
// second.
func (l *Loop) part(s *state.Sweep, name string, compute func()) {
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		if _, known := l.unshown.LoadOrStore(s.ID+" "+name, true); !known {
			l.cfg.Logger.Error("a part of a sweep cannot be shown; it is left out from now on", "sweep", s.ID, "part", name,
				"err", fmt.Sprint(p), "stack", string(debug.Stack()))
		}
	}()
	compute()
}
