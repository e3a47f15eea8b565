package faults

import (
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// refuses reports whether the trials of a sweep avoid a node because of failures there that may be their own.
func (fs *Faults) refuses(n *state.Node, s *state.Sweep) bool {
	start := n.Fault(s.ID)
	return start.GetAmbiguous() && state.FaultActive(start, fs.core.Now()) || state.FaultActive(n.AfterStart(s.ID), fs.core.Now())
}

// CouldRun reports whether the nodes for which usable returns true could run a trial of a sweep if they were
// otherwise idle.
func (fs *Faults) CouldRun(s *state.Sweep, usable func(*state.Node) bool) bool {
	var nodes []cluster.Node
	for _, name := range fs.st.NodeNames {
		if n := fs.st.Nodes[name]; n.Up() && !n.Shape.Draining && usable(n) {
			nodes = append(nodes, n.Shape)
		}
	}
	_, ok := cluster.NewCapacity(nodes).Best(s.Terms.Demand)
	return ok
}

// KeptOff returns the nodes that are not given new trials, because their workers say so or trials could not be
// started there.
func (fs *Faults) KeptOff() map[string]bool {
	var off map[string]bool
	for _, n := range fs.st.Faulty() {
		if n.KeepsOff(fs.core.Now()) != nil {
			if off == nil {
				off = map[string]bool{}
			}
			off[n.Info.GetName()] = true
		}
	}
	return off
}

// Avoids returns the nodes that a trial of a sweep must not be given now. If t is nil, it returns those of the whole
// sweep.
func (fs *Faults) Avoids(s *state.Sweep, t *state.Trial) []string {
	var avoid []string
	refused := false
	for _, n := range fs.st.Faulty() {
		refuses := fs.refuses(n, s)
		if refused = refused || refuses; refuses || state.FaultActive(n.Fault(s.ID), fs.core.Now()) {
			avoid = append(avoid, n.Info.GetName())
		}
	}
	// If no other node is left, let the sweep find out that its own code is wrong.
	if refused && !fs.CouldRun(s, func(n *state.Node) bool { return !fs.refuses(n, s) }) {
		avoid = slices.DeleteFunc(avoid, func(name string) bool { return fs.refuses(fs.st.Nodes[name], s) })
	}
	if t == nil || len(t.Avoided) == 0 {
		return avoid
	}
	var soft []string
	for _, a := range t.Avoided {
		switch over := !fs.core.Now().Before(a.Until); {
		case fs.st.Nodes[a.Node] == nil || slices.Contains(avoid, a.Node):
		case a.Starts > 0 && !over:
			avoid = append(avoid, a.Node)
		case a.Starts > 0 || !over:
			soft = append(soft, a.Node)
		}
	}
	off := slices.Concat(avoid, soft)
	if len(soft) > 0 && fs.CouldRun(s, func(n *state.Node) bool {
		return !slices.Contains(off, n.Info.GetName()) && n.KeepsOff(fs.core.Now()) == nil
	}) {
		avoid = off
	}
	slices.Sort(avoid)
	return avoid
}

// OffLimits returns a node of a grant that the trial must avoid, or "".
func (fs *Faults) OffLimits(s *state.Sweep, t *state.Trial, g *outbidv1.LeaseGranted) string {
	if len(fs.st.Faulty()) == 0 && len(t.Avoided) == 0 {
		return ""
	}
	avoid := fs.Avoids(s, t)
	for _, p := range g.GetPlaces() {
		if slices.Contains(avoid, p.GetNode()) || fs.st.Nodes[p.GetNode()].KeepsOff(fs.core.Now()) != nil {
			return p.GetNode()
		}
	}
	return ""
}
