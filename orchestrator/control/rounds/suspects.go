package rounds

import (
	"cmp"
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/control/faults"
	"github.com/outbid-dev/outbid/orchestrator/control/tenants"
	"github.com/outbid-dev/outbid/orchestrator/control/trials"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Trials that lost several nodes run alone, so that they cannot harm other trials and are not blamed for them.
// Policies do not see these trials, and see their nodes as draining.

// suspects places the trials that must run alone.
type suspects struct {
	core    Core
	st      *state.State
	faults  *faults.Faults
	tenants *tenants.Tenants
}

// place grants idle nodes to trials that must run alone.
func (su *suspects) place() {
	for _, sus := range su.st.Suspects() {
		s, t := sus.Sweep, sus.Trial
		if t.State != outbidv1.TrialState_TRIAL_STATE_QUEUED || t.Slot != nil || s.State != outbidv1.SweepState_SWEEP_STATE_RUNNING {
			continue
		}
		nodes := su.openNodes(func(n *state.Node) bool { return len(n.Leases) == 0 })
		demand := s.Terms.Demand
		demand.Avoid = su.faults.Avoids(s, t)
		gang, ok := cluster.NewCapacity(nodes).Best(demand)
		if !ok {
			continue
		}
		grant := &outbidv1.LeaseGranted{
			Sweep: s.ID, Trial: t.Number, LeaseId: su.st.NextLease, Places: state.LeasePlaces(nodes, gang),
			Reason: "alone on its node, because it lost nodes before",
		}
		if !su.tenants.BeyondQuota(s, grant) {
			su.core.Emit(&outbidv1.Event{Kind: &outbidv1.Event_LeaseGranted{LeaseGranted: grant}})
		}
	}
}

// apart returns the nodes that other trials must not be given: those of trials that run alone, and those kept for the
// first one that waits for some. So at most one trial at a time keeps nodes idle.
func (su *suspects) apart() map[string]bool {
	var apart map[string]bool
	kept := false
	for _, sus := range su.st.Suspects() {
		if apart == nil {
			apart = map[string]bool{}
		}
		switch s, t := sus.Sweep, sus.Trial; {
		case len(t.Leases) > 0:
			for _, l := range t.Leases {
				for _, p := range l.Places {
					apart[p.Node] = apart[p.Node] || !p.Ended
				}
			}
		case !kept && t.State == outbidv1.TrialState_TRIAL_STATE_QUEUED && s.State == outbidv1.SweepState_SWEEP_STATE_RUNNING:
			for _, name := range su.toEmpty(s.Terms.Demand) {
				apart[name], kept = true, true
			}
		}
	}
	return apart
}

// toEmpty returns the nodes that a trial that must run alone will get once others have ended there: the node with the
// fewest leases on which it fits, or several if it may spread.
func (su *suspects) toEmpty(d cluster.Demand) []string {
	all := su.openNodes(func(*state.Node) bool { return true })
	order := make([]int, len(all))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Compare(len(su.st.Nodes[all[a].Name].Leases), len(su.st.Nodes[all[b].Name].Leases))
	})
	for _, i := range order {
		if _, ok := cluster.NewCapacity(all[i : i+1]).Best(d); ok {
			return []string{all[i].Name}
		}
	}
	gang, ok := cluster.NewCapacity(all).Best(d)
	if !ok {
		return nil
	}
	var names []string
	for _, p := range gang {
		names = append(names, all[p.Node].Name)
	}
	return names
}

// openNodes returns the nodes that accept new trials, do not run a trial alone, and fulfil as.
func (su *suspects) openNodes(as func(*state.Node) bool) []cluster.Node {
	var nodes []cluster.Node
	for _, name := range su.st.NodeNames {
		n := su.st.Nodes[name]
		own := slices.ContainsFunc(n.Leases, func(l *state.Lease) bool { return trials.Alone(su.st.Sweeps[l.Sweep].Trials[l.Trial]) })
		if n.Up() && !n.Shape.Draining && !own && n.KeepsOff(su.core.Now()) == nil && as(n) {
			nodes = append(nodes, n.Shape)
		}
	}
	return nodes
}
