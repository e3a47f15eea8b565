package rounds

import (
	"cmp"
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/policy/gavel"
)

// floor is where a round's jobs are placed.
type floor struct {
	p    *Policy
	v    *policy.View
	now  float64
	plan policy.Plan
	// stays and moves are jobs that run and will, where they are or elsewhere.
	stays, moves map[*policy.Job]bool
	// wait are the seats' jobs that wait and want a grant, by seat.
	wait map[int]*policy.Job
	// from is, by type, the first node that may have something free.
	from []int
	done []bool // by share: has a seat
}

// place gives the picks devices by the rules of gavel.Place: large jobs first; jobs stay where they are if that is free;
// the others go to the first node that has room, or take what is free node after node. What must be given up first is
// granted later in the round.
func (p *Policy) place(v *policy.View, picks []gavel.Pick) policy.Plan {
	f := &floor{
		p: p, v: v, now: p.clock(v.Now), stays: make(map[*policy.Job]bool, len(picks)), moves: map[*policy.Job]bool{},
		from: make([]int, len(p.s.Types)), done: make([]bool, len(p.turn.jobs)), wait: map[int]*policy.Job{},
	}
	mark := v.Free.Mark()
	f.eachRunning(func(j *policy.Job) { v.Free.Release(j.Gang, j.Demand) })
	failed := false
	slices.SortStableFunc(picks, func(a, b gavel.Pick) int { return cmp.Or(a.Type-b.Type, b.Scale-a.Scale) })
	for start := 0; start < len(picks); {
		end := start
		for end < len(picks) && picks[end].Type == picks[start].Type && picks[end].Scale == picks[start].Scale {
			end++
		}
		for _, pick := range picks[start:end] {
			f.stay(pick)
		}
		for _, pick := range picks[start:end] {
			failed = !f.seat(pick) || failed
		}
		start = end
	}
	f.fill(failed)
	v.Free.Rollback(mark)
	f.grant()
	f.revoke()
	return f.plan
}

// eachRunning goes through the jobs that hold devices which this policy may take; paused apps' jobs are ending by
// themselves.
func (f *floor) eachRunning(do func(*policy.Job)) {
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

// stay lets a job go on where it is.
func (f *floor) stay(pick gavel.Pick) {
	i := f.p.s.Rounds.Index(pick.Job)
	j := f.p.turn.jobs[i]
	if j == nil || !j.Running() || j.Ending || cluster.TypeOf(f.v.Nodes, j.Gang) != f.p.s.Types[pick.Type] || !f.v.Free.IsFree(j.Gang) {
		return
	}
	f.keep(i, pick)
}

func (f *floor) keep(i int, pick gavel.Pick) {
	j := f.p.turn.jobs[i]
	f.v.Free.Take(j.Gang, j.Demand)
	f.stays[j], f.done[i] = true, true
	f.p.s.Seats = append(f.p.s.Seats, seat{
		Job: pick.Job, Who: f.p.s.Names[i], Type: pick.Type, Gang: f.named(j.Gang), Given: true, From: f.now,
	})
}

// seat finds a pick a place, unless it has one.
func (f *floor) seat(pick gavel.Pick) bool {
	i := f.p.s.Rounds.Index(pick.Job)
	if f.done[i] {
		return true
	}
	j := f.p.turn.jobs[i]
	if j == nil { // it has ended but for Gavel's count: its devices idle
		f.p.s.Seats = append(f.p.s.Seats, seat{Job: pick.Job, Who: f.p.s.Names[i], Type: pick.Type, Given: true, Left: true})
		return true
	}
	g, ok := f.find(j, pick)
	if ok {
		f.put(i, pick, g)
	}
	return ok
}

// put gives a job a gang.
func (f *floor) put(i int, pick gavel.Pick, g cluster.Gang) {
	j := f.p.turn.jobs[i]
	f.v.Free.Take(g, j.Demand)
	f.done[i] = true
	if j.Running() {
		f.moves[j] = true
	}
	s := seat{Job: pick.Job, Who: f.p.s.Names[i], Type: pick.Type, Gang: f.named(g)}
	if j.Waiting() {
		f.wait[len(f.p.s.Seats)] = j
	}
	f.p.s.Seats = append(f.p.s.Seats, s)
}

// grant gives what is free now; the rest follows when it is.
func (f *floor) grant() {
	for i := range f.p.s.Seats {
		j := f.wait[i]
		if j == nil {
			continue
		}
		s := &f.p.s.Seats[i]
		if g, _ := s.gang(f.v); f.v.Free.Fits(g, j.Demand) {
			f.v.Free.Take(g, j.Demand)
			s.Given, s.From = true, f.now
			f.plan.Grants = append(f.plan.Grants, policy.Grant{Job: j, Gang: g, Reason: f.p.reason(s.Type)})
		}
	}
}

// named is a gang by the names of its nodes.
func (f *floor) named(g cluster.Gang) []place {
	places := make([]place, len(g))
	for i, at := range g {
		places[i] = place{Node: f.v.Nodes[at.Node].Name, Devices: slices.Clone(at.Devices), hint: at.Node}
	}
	return places
}

func (p *Policy) reason(t int) string { return "its turn on " + p.s.Types[t] + " in this round" }

// find finds devices for a pick: on the first node that has enough; if none has, on one after the other.
func (f *floor) find(j *policy.Job, pick gavel.Pick) (cluster.Gang, bool) {
	kind, free := f.p.s.Types[pick.Type], f.v.Free
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
		if j.Demand.Spread && left > 0 {
			if part, ok := free.PlaceAt(node, j.Demand, min(left, here), kind); ok {
				g = append(g, part...)
				left -= min(left, here)
			}
		}
	}
	return g, left == 0
}

// fill gives what the picks leave to whoever can have it, the longest here first: if somebody could not be placed, to
// all; otherwise to jobs that no single type has room for, which Gavel does not know.
func (f *floor) fill(all bool) {
	for i, j := range f.p.turn.jobs {
		if f.v.Free.FreeDevices() == 0 {
			return
		}
		switch {
		case f.done[i] || j == nil:
		case !slices.Contains(f.p.turn.may[i], true):
			f.squeeze(i, j)
		case all && !j.Running():
			for t, rate := range f.p.turn.rate[i] {
				pick := gavel.Pick{Job: f.p.s.Rounds.Shares[i].Job, Type: t, Scale: f.p.turn.scale[i]}
				if rate > 0 && f.seat(pick) {
					break
				}
			}
		}
	}
}

// squeeze finds a job of no single type a place.
func (f *floor) squeeze(i int, j *policy.Job) {
	number := f.p.s.Rounds.Shares[i].Job
	kind := func(g cluster.Gang) int {
		return slices.Index(f.p.s.Types, f.v.Nodes[g[0].Node].Devices[g[0].Devices[0]].Type)
	}
	if j.Running() && !j.Ending && f.v.Free.IsFree(j.Gang) {
		f.keep(i, gavel.Pick{Job: number, Type: kind(j.Gang)})
	} else if g, ok := f.v.Free.Best(j.Demand); ok {
		f.put(i, gavel.Pick{Job: number, Type: kind(g)}, g)
	}
}

// revoke takes everybody off who neither stays nor is leaving. Who runs on nodes that drain, where nobody else may, goes
// on.
func (f *floor) revoke() {
	drains := func(at cluster.Place) bool { return f.v.Nodes[at.Node].Draining }
	f.eachRunning(func(j *policy.Job) {
		if !f.stays[j] && !j.Ending && (f.moves[j] || !slices.ContainsFunc(j.Gang, drains)) {
			f.plan.Revokes = append(f.plan.Revokes, policy.Revoke{Job: j, Reason: "others' turn in this round"})
		}
	})
}
