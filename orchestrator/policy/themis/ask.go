package themis

import (
	"math"
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/policy"
)

// offered is the number of devices of a type on offer.
type offered struct {
	kind    string
	devices int
}

// ask returns the sweeps that receive the offer (line 17), as indexes into the ranking. For each type on offer these
// are the worst 1-f of the live sweeps that accept it, at least one, if they want something: a sweep that cannot use
// what is free does not keep it from the others. With one type, that is the worst 1-f of all. With Variant.Cover, the worst
// sweeps are asked until they could use cover times the devices on offer, of whatever type; sweeps that already hold
// all they can use are then asked in addition. Options also add new sweeps and sweeps that could end within a lease.
func ask(order []ranked, offer []offered, set *settings) []int {
	in := make([]bool, len(order))
	devices := 0
	for _, o := range offer {
		devices += o.devices
		if o.devices <= 0 {
			continue
		}
		if set.Cover == 0 {
			askWorst(order, o.kind, set.knob, in)
		}
		for i := range order {
			in[i] = in[i] || order[i].askedExtra && !order[i].leftoversOnly && order[i].wants(o.kind)
		}
	}
	if set.Cover > 0 {
		askCovering(order, float64(devices)*set.Cover, set.knob, in)
	}
	var asked []int
	for i := range in {
		if in[i] {
			asked = append(asked, i)
		}
	}
	return asked
}

// atMost returns the number of sweeps to ask for a fairness knob.
func atMost(knob float64, apps int) int {
	return max(1, int(math.Ceil((1-knob)*float64(apps)-1e-9)))
}

// askWorst asks the worst 1-f of the sweeps that accept a type.
func askWorst(order []ranked, kind string, knob float64, in []bool) {
	able := make([]int, 0, len(order))
	for i := range order {
		if order[i].app.Demand.Accepts(kind) && !order[i].leftoversOnly {
			able = append(able, i)
		}
	}
	for _, i := range able[:min(len(able), atMost(knob, len(able)))] {
		in[i] = in[i] || order[i].wants(kind)
	}
}

// wants reports whether a trial of the sweep could take devices of a type.
func (r *ranked) wants(kind string) bool {
	return slices.ContainsFunc(r.open, func(j *policy.Job) bool { return j.Demand.Accepts(kind) })
}

// askCovering asks the worst sweeps until they are 1-f of all, not counting sated ones, or until together they could
// take this many devices.
func askCovering(order []ranked, devices, knob float64, in []bool) {
	n := atMost(knob, len(order))
	for i := range order {
		r := &order[i]
		if len(r.open) == 0 || r.leftoversOnly {
			continue
		}
		in[i] = true
		if !isSated(r.app) {
			n--
		}
		for _, j := range r.open {
			devices -= float64(max(1, j.Demand.Max))
		}
		if n <= 0 || devices <= 0 {
			return
		}
	}
}

// isSated reports whether all trials of a sweep hold as many devices as they can use.
func isSated(a *policy.App) bool {
	for _, j := range a.Jobs {
		if j.Waiting() || j.Running() && (j.Ending || j.Gang().Size() < j.Demand.Max) {
			return false
		}
	}
	return true
}
