package control

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/benbjohnson/immutable"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/control/rounds"
	"github.com/outbid-dev/outbid/orchestrator/control/trials"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/state"
	"github.com/outbid-dev/outbid/orchestrator/tuner"
)

// view is an immutable state for readers. After each append a new view replaces it, which shares the unchanged parts.
// It contains only the state in the ledger and the outlooks of tuners.
type view struct {
	*state.Published
	outlooks *immutable.Map[string, tuner.Outlook]
}

// ask updates the total work that a sweep's tuner expects.
func (v *view) ask(c *Core, id string) {
	if o, known := c.tuning.Outlook(id); known {
		v.outlooks = v.outlooks.Set(id, o)
	} else {
		v.outlooks = v.outlooks.Delete(id)
	}
}

// each calls f with every sweep, without its trials, in order of submission.
func (v *view) each(f func(*state.Sweep)) {
	for _, id := range v.SweepIDs {
		if s, err := v.Sweep(id); err == nil {
			f(s.Sweep())
		}
	}
}

// app returns a sweep as policies see it.
func (v *view) app(s *state.PublishedSweep) *policy.App {
	of := s.Sweep()
	numbers := slices.Concat(of.Running, of.Queued)
	slices.Sort(numbers)
	var active []*state.Trial
	for _, n := range slices.Compact(numbers) {
		active = append(active, s.At(n))
	}
	return rounds.App(of, s.Len(), active, v.Inventory.Index, func() tuner.Outlook { o, _ := v.outlooks.Get(of.ID); return o })
}

// whyWaiting returns why a sweep's trials wait for devices at a time of the ledger.
func (v *view) whyWaiting(s *state.PublishedSweep, now time.Time) string {
	if s.Sweep().Spec.GetExternal() != nil {
		return ""
	}
	if why := cluster.Impossible(v.Inventory.Nodes, s.Sweep().Terms.Demand); why != "" {
		return why
	}
	if why := v.keptOff(s, now); why != "" {
		return why
	}
	if why := v.TenantFull(state.TenantOf(s.Sweep().Spec), s.Sweep().Terms.Demand, now); why != "" {
		return why
	}
	queued := s.Sweep().Queued
	if len(queued) > 0 && trials.Alone(s.At(queued[0])) {
		return fmt.Sprintf("trial %d waits for a node without other trials, because it lost nodes before", queued[0])
	}
	if len(queued) > 0 {
		return "waits for devices that other trials hold"
	}
	return fmt.Sprintf("waits for devices; %d of the cluster's devices are held", v.Held())
}

// keptOff returns why no node that could run a sweep's trials accepts them now, or "" if one does.
func (v *view) keptOff(s *state.PublishedSweep, now time.Time) string {
	open, reasons := slices.Clone(v.Inventory.Nodes), []string{}
	v.Nodes(func(name string, n *state.PublishedNode) {
		i, up := v.Inventory.Index[name]
		if !up || len(n.View.GetFaults()) == 0 {
			return
		}
		for _, o := range n.View.GetFaults() {
			if (o.GetSweep() == "" || o.GetSweep() == s.Sweep().ID) && state.FaultActive(o, now) && !open[i].Draining {
				open[i].Draining = true
				reasons = append(reasons, fmt.Sprintf("%s (%s): %s", name, state.FaultWord(o, now), o.GetReason()))
			}
		}
	})
	if len(reasons) == 0 || cluster.Impossible(open, s.Sweep().Terms.Demand) == "" {
		return ""
	}
	if more := len(reasons) - 3; more > 0 {
		reasons = append(reasons[:3], fmt.Sprintf("and %d more", more))
	}
	return "waits for a node that can start its trials; " + strings.Join(reasons, "; ")
}
