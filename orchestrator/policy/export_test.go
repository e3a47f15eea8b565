package policy

import "fmt"

// State formats the planner's whole state as text.
func (p *Planner) State() string {
	devices, rest := map[string]bool{}, map[int]need{}
	for node, some := range p.pending.devices {
		for d := range some {
			devices[fmt.Sprintf("%d/%d", node, d)] = true
		}
	}
	for node, n := range p.pending.needs {
		if n != (need{}) {
			rest[node] = n
		}
	}
	return fmt.Sprintf("free %+v\npending %v %v\ndecided %v\nplan %+v until %v\nreserved %+v\nnoted %d, open %d",
		*p.free, devices, rest, decisions(p.decided), p.plan, p.termEnd(nil), p.reserved, len(p.changes), p.openStatements)
}

// decisions maps job names to decisions, because the order of pointers varies from run to run.
func decisions(of map[*Job]decision) map[string]decision {
	named := map[string]decision{}
	for j, d := range of {
		named[fmt.Sprint(j.Name())] = d
	}
	return named
}
