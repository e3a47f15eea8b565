package themis

import (
	"math"

	"github.com/outbid-dev/outbid/orchestrator/policy"
)

// ask picks those that the offer is made to (line 17), by index in the order of rank: of the worst 1-f of all live apps,
// at least one, those that want something. With cover, no more of them than it takes to use the devices on offer so many
// times; apps that hold all they can use are then asked beside the others.
func ask(order []ranked, devices int, set *settings) []int {
	n := max(1, int(math.Ceil((1-set.knob)*float64(len(order))-1e-9)))
	if set.cover > 0 {
		return askCovering(order, n, float64(devices)*set.cover)
	}
	var asked []int
	for i := range order[:min(n, len(order))] {
		if len(order[i].open) > 0 {
			asked = append(asked, i)
		}
	}
	return asked
}

// askCovering asks the worst until n of them could use more, or what they could take is as much as the devices.
func askCovering(order []ranked, n int, devices float64) []int {
	var asked []int
	for i := range order {
		r := &order[i]
		if len(r.open) == 0 {
			continue
		}
		asked = append(asked, i)
		if !sated(r.app) {
			n--
		}
		for _, j := range r.open {
			devices -= float64(max(1, j.Demand.Max))
		}
		if n <= 0 || devices <= 0 {
			break
		}
	}
	return asked
}

// sated says whether an app's jobs all hold as much as they can use.
func sated(a *policy.App) bool {
	for _, j := range a.Jobs {
		if j.Waiting() || j.Running() && (j.Ending || j.Gang.Size() < j.Demand.Max) {
			return false
		}
	}
	return true
}
