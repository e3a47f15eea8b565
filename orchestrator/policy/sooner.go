package policy

import "github.com/outbid-dev/outbid/orchestrator/cluster"

// IsLate says whether a device that is planned with has still to be given up by somebody.
func (p *Planner) IsLate(node, device int) bool { return p.owed.Device(node, device) }

// Sooner finds, for a job that was to have a gang some devices of which have still to be given up, as many of the same
// type that are free now, on no more nodes. If there are none, or the plan is one that makes all devices be given up, it
// returns the gang as it is.
func (p *Planner) Sooner(j *Job, g cluster.Gang) cluster.Gang {
	if p.held != nil || !j.Waiting() || !p.owed.Devices(g) {
		return g
	}
	var late cluster.Gang
	for node, devices := range p.owed.devices {
		place := cluster.Place{Node: node}
		for d := range devices {
			if p.soon.IsFree(cluster.Gang{{Node: node, Devices: []int{d}}}) {
				place.Devices = append(place.Devices, d)
			}
		}
		late = append(late, place)
	}
	mark := p.soon.Mark()
	p.soon.Take(late, cluster.Demand{})
	now, ok := p.soon.Place(j.Demand, g.Size(), cluster.TypeOf(p.v.Nodes, g))
	p.soon.Rollback(mark)
	if !ok || len(now) > len(g) {
		return g
	}
	return now
}
