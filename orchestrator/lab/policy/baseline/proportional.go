package baseline

import (
	"github.com/outbid-dev/outbid/orchestrator/policy"
)

// Proportional is Fairness as defined in OGASched's evaluation (section 4.1): a resource is divided among the jobs that
// ask for it in proportion to their requests. OGASched divides each node in each time slot into fractions of devices.
// Here jobs hold whole devices until they release them, so a job gets its proportional share of all devices of the
// cluster, rounded down, but at least its gang's minimum and at most what it can use. Jobs come in order of arrival;
// nothing is preempted.
type Proportional struct{ stateless }

// Name implements policy.Policy.
func (Proportional) Name() string { return "proportional" }

// Decide implements policy.Policy.
func (Proportional) Decide(v *policy.View) policy.Plan {
	const round = "devices in proportion to what is asked for"
	p := policy.Extend(v)
	if p.Free().FreeDevices() == 0 {
		return p.Plan(round, "")
	}
	devices, asked := 0, 0
	for i := range v.Nodes {
		devices += len(v.Nodes[i].Devices)
	}
	for _, j := range v.Jobs() {
		asked += max(1, j.Demand.Max)
	}
	var unplaceable policy.Unplaceable
	for j := range v.Line() {
		if p.Free().FreeDevices() == 0 {
			break
		}
		d := j.Demand
		d.Max = max(d.Min, min(d.Max, d.Max*devices/asked))
		if unplaceable.Covers(d) {
			continue
		}
		if g, ok := p.Free().Best(d); !ok || !p.PlaceOn(j, g, "its share of all devices, in proportion to what it asks for") {
			unplaceable.Add(d)
		}
	}
	return p.Plan(round, "")
}
