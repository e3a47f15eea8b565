package rounds

import (
	"cmp"
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/lab/policy/gavel"
	"github.com/outbid-dev/outbid/orchestrator/policy"
)

// placing is the state of placing a round's jobs, in a plan that may reassign the devices of running jobs.
type placing struct {
	p    *Policy
	v    *policy.View
	now  float64
	plan *policy.Planner
	// from is, by type, the first node that may have free devices.
	from []int
	done []bool // by share: has an assignment
}

// place gives the picks devices by the rules of gavel.Place: large jobs first; jobs stay where they are if those
// devices are free; the others go to the first node that has room, or take what is free node after node. Devices that
// must be released first are reserved by the assignments, and granted later in the round.
func (p *Policy) place(v *policy.View, picks []gavel.Pick) policy.Plan {
	f := &placing{
		p: p, v: v, now: p.clock(v.Now), plan: policy.Extend(v),
		from: make([]int, len(p.s.Types)), done: make([]bool, len(p.turn.jobs)),
	}
	f.eachRunning(f.plan.Reclaim)
	failed := false
	slices.SortStableFunc(picks, func(a, b gavel.Pick) int { return cmp.Or(a.Type-b.Type, b.Scale-a.Scale) })
	for start := 0; start < len(picks); {
		end := start
		for end < len(picks) && picks[end].Type == picks[start].Type && picks[end].Scale == picks[start].Scale {
			end++
		}
		for _, pick := range picks[start:end] {
			f.keepOnType(pick)
		}
		for _, pick := range picks[start:end] {
			failed = !f.place(pick) || failed
		}
		start = end
	}
	f.fill(failed)
	// A job on a draining node continues, because no other job may run there.
	f.eachRunning(func(j *policy.Job) {
		if v.Draining(j.Gang()) {
			f.plan.Keep(j)
		}
	})
	return f.plan.Plan("", "others' turn in this round")
}

// eachRunning calls do for the jobs whose devices this policy may reassign; the jobs of paused sweeps are ending
// anyway.
func (f *placing) eachRunning(do func(*policy.Job)) {
	for _, a := range f.v.Apps {
		if a.Paused {
			continue
		}
		for _, j := range a.Jobs {
			if j.Running() {
				do(j)
			}
		}
	}
}

// keepOnType lets a job continue where it is if that is of the type for which it was picked.
func (f *placing) keepOnType(pick gavel.Pick) {
	i := f.p.s.Rounds.Index(pick.Job)
	if j := f.p.turn.jobs[i]; j != nil && j.Running() && cluster.TypeOf(f.v.Nodes, j.Gang()) == f.p.s.Types[pick.Type] {
		f.keep(i, pick)
	}
}

// keep lets a job continue where it is unless its devices were given away.
func (f *placing) keep(i int, pick gavel.Pick) bool {
	j := f.p.turn.jobs[i]
	if !f.plan.Keep(j) {
		return false
	}
	f.done[i] = true
	f.p.s.Assignments = append(f.p.s.Assignments, assignment{
		Job: pick.Job, Who: f.p.s.Names[i], Type: pick.Type, Gang: f.v.Named(j.Gang()), Given: true, From: f.now,
	})
	return true
}

// place finds a place for a pick unless it has one.
func (f *placing) place(pick gavel.Pick) bool {
	i := f.p.s.Rounds.Index(pick.Job)
	if f.done[i] {
		return true
	}
	j := f.p.turn.jobs[i]
	if j == nil { // it has ended except in Gavel's count: its devices idle
		f.p.s.Assignments = append(f.p.s.Assignments, assignment{Job: pick.Job, Who: f.p.s.Names[i], Type: pick.Type, Given: true, Left: true})
		return true
	}
	g, ok := f.find(j, pick)
	return ok && f.placeGang(i, pick, g)
}

// placeGang gives a job a gang, now or once it is free.
func (f *placing) placeGang(i int, pick gavel.Pick, g cluster.Gang) bool {
	j := f.p.turn.jobs[i]
	if !f.plan.PlaceOn(j, g, f.p.reason(pick.Type)) {
		return false
	}
	f.done[i] = true
	s := assignment{Job: pick.Job, Who: f.p.s.Names[i], Type: pick.Type, Gang: f.v.Named(g)}
	if f.plan.Granted(j) {
		s.Given, s.From = true, f.now
	}
	f.p.s.Assignments = append(f.p.s.Assignments, s)
	return true
}

func (p *Policy) reason(t int) string { return "its turn on " + p.s.Types[t] + " in this round" }

// find finds devices for a pick: on the first node that has enough, or else on several nodes in order.
func (f *placing) find(j *policy.Job, pick gavel.Pick) (cluster.Gang, bool) {
	kind, free := f.p.s.Types[pick.Type], f.plan.Free()
	for f.from[pick.Type] < len(f.v.Nodes) && free.FreeAt(f.from[pick.Type], kind) == 0 {
		f.from[pick.Type]++
	}
	var g cluster.Gang
	left := pick.Scale
	for node := f.from[pick.Type]; node < len(f.v.Nodes); node++ {
		here := free.FreeAt(node, kind)
		if here == 0 {
			continue
		}
		if here >= pick.Scale {
			if one, ok := free.PlaceAt(node, j.Demand, pick.Scale, kind); ok {
				return one, true
			}
			continue
		}
		if j.Demand.MultiNode && left > 0 {
			if part, ok := free.PlaceAt(node, j.Demand, min(left, here), kind); ok {
				g = append(g, part...)
				left -= min(left, here)
			}
		}
	}
	return g, left == 0
}

// fill distributes what the picks leave, earliest arrivals first: to all jobs if some pick could not be placed;
// otherwise to jobs for which no single type has room, which Gavel does not have.
func (f *placing) fill(all bool) {
	for i, j := range f.p.turn.jobs {
		if f.plan.Free().FreeDevices() == 0 {
			return
		}
		switch {
		case f.done[i] || j == nil:
		case !slices.Contains(f.p.turn.may[i], true):
			f.placeMixed(i, j)
		case all && !j.Running():
			for t, rate := range f.p.turn.rate[i] {
				pick := gavel.Pick{Job: f.p.s.Rounds.Shares[i].Job, Type: t, Scale: f.p.turn.scale[i]}
				if rate > 0 && f.place(pick) {
					break
				}
			}
		}
	}
}

// placeMixed finds a place for a job that needs several types.
func (f *placing) placeMixed(i int, j *policy.Job) {
	number := f.p.s.Rounds.Shares[i].Job
	kind := func(g cluster.Gang) int {
		return slices.Index(f.p.s.Types, f.v.Nodes[g[0].Node].Devices[g[0].Devices[0]].Type)
	}
	if j.Running() && f.keep(i, gavel.Pick{Job: number, Type: kind(j.Gang())}) {
		return
	}
	if g, ok := f.plan.Free().Best(j.Demand); ok {
		f.placeGang(i, gavel.Pick{Job: number, Type: kind(g)}, g)
	}
}
