package sweeps

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/outbid-dev/outbid/orchestrator/state"
	"github.com/outbid-dev/outbid/orchestrator/tuner/registry"
	"github.com/outbid-dev/outbid/orchestrator/tuner/space"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

const (
	// A sweep remembers at most mostRemembered sweeps and mostPoints trials of each, and no sweep with fewer than
	// leastPoints.
	mostRemembered, mostPoints, leastPoints = 4, 40, 5
	// Of the newest mostListed sweeps, the newest mostCompared with the same metric are compared by their newest mostTrials
	// trials: all tenants wait for it.
	mostListed, mostCompared, mostTrials = 2000, 16, 2000
	// leastShared is the least share of the new space's parameters that an earlier sweep must have.
	leastShared = 0.5
	// Trials further outside of the new space, in widths of a range, are left out.
	mostOutside = 1.0
)

// memory returns the results of earlier sweeps from which a new one starts, or nil. They are of the same tenant and
// have the same metric and mode. It is off by default because misleading ones cost more than 2 %
// (docs/research/samplers/memory.md).
func (sw *Sweeps) memory(spec *outbidv1.SweepSpec) *outbidv1.Memory {
	if spec.GetMemory() != "on" || !registry.Remembers(spec) {
		return nil
	}
	compiled, err := space.Compile(spec.GetSpace(), spec.GetConstraints())
	if err != nil || compiled.Dims() == 0 {
		return nil
	}
	var found []recollection
	compared, ids := 0, sw.st.SweepIDs
	for _, id := range slices.Backward(ids[max(0, len(ids)-mostListed):]) {
		s := sw.st.Sweeps[id]
		if s == nil || !isComparable(s.Spec, spec) {
			continue
		}
		if r, ok := recall(s, compiled); ok {
			found = append(found, r)
		}
		if compared++; compared == mostCompared {
			break
		}
	}
	slices.SortStableFunc(found, func(a, b recollection) int { return cmp.Compare(b.shared, a.shared) })
	m := &outbidv1.Memory{}
	room := sw.maxSpec() - proto.Size(spec)
	for _, r := range found[:min(len(found), mostRemembered)] {
		if room -= proto.Size(r.sweep); room > 0 {
			m.Sweeps = append(m.Sweeps, r.sweep)
		}
	}
	if len(m.GetSweeps()) == 0 {
		return nil
	}
	return m
}

// isComparable reports whether the results of an earlier sweep may tell something about those of a new one.
func isComparable(earlier, now *outbidv1.SweepSpec) bool {
	return state.TenantOf(earlier) == state.TenantOf(now) && earlier.GetMetric() == now.GetMetric() && earlier.GetMode() == now.GetMode()
}

// A recollection is an earlier sweep that may be remembered, with the share of the parameters that it has.
type recollection struct {
	sweep  *outbidv1.RememberedSweep
	shared float64
}

// recall returns the trials of an earlier sweep as points of a new one's space, or false if too few are near it.
func recall(s *state.Sweep, now *space.Space) (recollection, bool) {
	r := &outbidv1.RememberedSweep{Sweep: s.ID}
	has := make([]bool, now.Dims())
	for _, t := range chosen(ended(s)) {
		var config space.Config
		if json.Unmarshal([]byte(t.config), &config) != nil {
			continue
		}
		u := now.Beyond(config)
		if slices.ContainsFunc(u, func(x float64) bool { return x < -mostOutside || x > 1+mostOutside }) {
			continue
		}
		for i, x := range u {
			has[i] = has[i] || !math.IsNaN(x)
			r.Points = append(r.Points, float32(x))
		}
		r.Costs = append(r.Costs, t.cost)
	}
	r.Trials = int32(len(r.GetCosts()))
	shared := 0.0
	for _, known := range has {
		if known {
			shared += 1 / float64(len(has))
		}
	}
	return recollection{r, shared}, r.GetTrials() >= leastPoints && shared >= leastShared
}

// A result is what an ended trial cost.
type result struct {
	config string
	cost   float64
}

// ended returns the trials of a sweep that ended with a known cost, best first. A trial that was stopped early costs at
// least as much as half of those that trained to the end.
func ended(s *state.Sweep) (all []result) {
	cost := func(t *state.Trial) float64 {
		if s.Maximise() {
			return -t.Metric
		}
		return t.Metric
	}
	var whole []float64
	trials := s.Trials[max(0, len(s.Trials)-mostTrials):]
	for _, t := range trials {
		if c := cost(t); t.State == outbidv1.TrialState_TRIAL_STATE_COMPLETED && isFinite(c) {
			whole = append(whole, c)
			all = append(all, result{t.Config, c})
		}
	}
	if len(whole) == 0 {
		return nil
	}
	slices.Sort(whole)
	for _, t := range trials {
		if c := cost(t); t.State == outbidv1.TrialState_TRIAL_STATE_STOPPED && isFinite(c) {
			all = append(all, result{t.Config, max(c, whole[len(whole)/2])})
		}
	}
	slices.SortStableFunc(all, func(a, b result) int { return cmp.Compare(a.cost, b.cost) })
	return all
}

func isFinite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// chosen returns the best of many results, and others at even distances in the order of costs.
func chosen(all []result) []result {
	if len(all) <= mostPoints {
		return all
	}
	const best = mostPoints / 2
	picked := slices.Clone(all[:best])
	rest := all[best:]
	for i := range mostPoints - best {
		picked = append(picked, rest[i*(len(rest)-1)/(mostPoints-best-1)])
	}
	return picked
}
