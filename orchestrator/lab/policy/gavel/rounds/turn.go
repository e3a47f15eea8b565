package rounds

import (
	"cmp"
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/lab/policy/gavel"
	"github.com/outbid-dev/outbid/orchestrator/policy"
)

// turn is the input of a round's decision; its slices are reused.
type turn struct {
	// jobs, and their rows, by share.
	jobs  []*policy.Job
	scale []int
	rate  [][]float64
	may   [][]bool
	rates []float64
	mays  []bool
	// known lists the shares in the order of the view.
	known []int
	// speeds caches looked-up speeds.
	speeds map[speedKey][]float64
}

type speedKey struct {
	of *cluster.Speeds
	n  int
}

// count counts the devices of each type. If types have changed it converts the mechanism's accounts.
func (p *Policy) count(v *policy.View) {
	types := v.Free.Types()
	workers := make([]int, len(types))
	last, at := "", 0
	for i := range v.Nodes {
		if v.Nodes[i].Draining {
			continue
		}
		for d := range v.Nodes[i].Devices {
			if kind := v.Nodes[i].Devices[d].Type; d == 0 || kind != last {
				last, at = kind, slices.Index(types, kind)
			}
			workers[at]++
		}
	}
	if p.s.Rounds == nil {
		p.s.Rounds = gavel.NewRounds(len(types), p.seconds, p.minimum)
	}
	if !slices.Equal(types, p.s.Types) {
		p.s.Rounds.Retype(p.s.Types, types)
		p.s.FIFO.Retype(p.s.Types, types)
	}
	if !slices.Equal(workers, p.s.Workers) {
		p.s.Rounds.Changed = true
	}
	p.s.Types, p.s.Workers = slices.Clone(types), workers
}

// matchJobs finds each share's job, drops those that are gone, and adds new ones in order of arrival.
func (p *Policy) matchJobs(v *policy.View) {
	t := &p.turn
	shares := p.s.Rounds.Shares
	t.known = t.known[:0]
	for i := range shares {
		t.known = append(t.known, i)
	}
	if !slices.IsSortedFunc(p.s.Names, name.compare) {
		slices.SortFunc(t.known, func(a, b int) int { return p.s.Names[a].compare(p.s.Names[b]) })
	}
	found := append(t.jobs[:0], make([]*policy.Job, len(shares))...)
	var fresh []*policy.Job
	at, left := 0, len(shares)
	for _, a := range v.Apps {
		if a.Paused {
			continue
		}
		for _, j := range a.Jobs {
			who := name{App: a.ID, Order: a.Order, Trial: j.Trial}
			for at < len(t.known) && p.s.Names[t.known[at]].compare(who) < 0 {
				at++
			}
			if at < len(t.known) && p.s.Names[t.known[at]] == who {
				found[t.known[at]] = j
				if p.whole && p.s.Counts[t.known[at]].Left <= 0 {
					p.s.Counts[t.known[at]].Left = max(1, int64(v.StepsLeft(j)))
				}
				at++
				left--
				continue
			}
			fresh = append(fresh, j)
		}
	}
	t.jobs = found
	if left > 0 {
		p.forget(func(i int) bool { return found[i] == nil && !(p.whole && p.s.Counts[i].Left > 0) })
	}
	slices.SortStableFunc(fresh, func(a, b *policy.Job) int { return a.Created.Compare(b.Created) })
	for _, j := range fresh {
		p.s.Last++
		p.s.Rounds.Add(p.s.Last)
		p.s.Names = append(p.s.Names, name{App: j.App.ID, Order: j.App.Order, Trial: j.Trial})
		t.jobs = append(t.jobs, j)
		if p.whole {
			p.s.Counts = append(p.s.Counts, count{Left: int64(v.StepsLeft(j)), Came: p.clock(j.Created)})
		}
	}
}

// forget drops shares, by index, and everything recorded about them.
func (p *Policy) forget(gone func(i int) bool) {
	dropped, kept := make([]bool, len(p.s.Names)), 0
	for i := range dropped {
		if dropped[i] = gone(i); dropped[i] {
			continue
		}
		p.s.Names[kept], p.turn.jobs[kept] = p.s.Names[i], p.turn.jobs[i]
		if p.whole {
			p.s.Counts[kept] = p.s.Counts[i]
		}
		kept++
	}
	p.s.Rounds.Retain(func(i int) bool { return !dropped[i] })
	p.s.Names, p.turn.jobs = p.s.Names[:kept], p.turn.jobs[:kept]
	if p.whole {
		p.s.Counts = p.s.Counts[:kept]
	}
}

func (n name) compare(o name) int {
	return cmp.Or(n.Order-o.Order, cmp.Compare(n.App, o.App), int(n.Trial)-int(o.Trial))
}

// lookUpRates looks up each job's scale and its rate on each type.
func (p *Policy) lookUpRates(v *policy.View) {
	t, r := &p.turn, len(p.s.Types)
	if t.speeds == nil {
		t.speeds = map[speedKey][]float64{}
	}
	clear(t.speeds)
	most := p.largest(v)
	size := len(t.jobs) * r
	t.rates, t.mays = slices.Grow(t.rates[:0], size)[:size], slices.Grow(t.mays[:0], size)[:size]
	rates, mays := t.rates, t.mays
	t.scale, t.rate, t.may = t.scale[:0], t.rate[:0], t.may[:0]
	for i, j := range t.jobs {
		if j == nil {
			p.remember(i, &rates, &mays)
			continue
		}
		n := max(1, j.Demand.Min)
		if size := j.Gang().Size(); !j.Ending && size > n && size <= j.Demand.Max {
			n = size
		}
		row, may := cut(&rates, r), cut(&mays, r)
		speeds := p.speedsOf(j.Speeds, n)
		for k, kind := range p.s.Types {
			enough := most[k] >= n || j.Demand.MultiNode && p.s.Workers[k] >= n
			may[k] = enough && (j.Demand.Plain() || j.Demand.Accepts(kind) && fits(v, j.Demand, n, kind))
			row[k] = 0
			if may[k] {
				row[k] = speeds[k]
			}
		}
		t.scale, t.rate, t.may = append(t.scale, n), append(t.rate, row), append(t.may, may)
		if p.whole {
			c := &p.s.Counts[i]
			c.Scale, c.Rate, c.Weight = n, slices.Clone(row), weight(j)
		}
	}
}

func (p *Policy) speedsOf(s *cluster.Speeds, n int) []float64 {
	if s != nil && len(s.Measured) == 0 {
		s = nil // jobs without measurements share one entry
	}
	key := speedKey{s, n}
	row, known := p.turn.speeds[key]
	if !known {
		for _, kind := range p.s.Types {
			row = append(row, max(0, s.Rate(kind, n, cluster.SameMachine)))
		}
		p.turn.speeds[key] = row
	}
	return row
}

// largest returns the most devices of each type on a node that accepts trials.
func (p *Policy) largest(v *policy.View) []int {
	most, here := make([]int, len(p.s.Types)), make([]int, len(p.s.Types))
	for i := range v.Nodes {
		if v.Nodes[i].Draining {
			continue
		}
		clear(here)
		for d := range v.Nodes[i].Devices {
			here[slices.Index(p.s.Types, v.Nodes[i].Devices[d].Type)]++
		}
		for k, n := range here {
			most[k] = max(most[k], n)
		}
	}
	return most
}

// fits reports whether a job with special demands would have room on a type if the cluster were empty, and within its
// tenant's quota for that type if the tenant held nothing.
func fits(v *policy.View, d cluster.Demand, n int, kind string) bool {
	if d.Quota > 0 {
		if most, bound := v.Tenants[d.Quota-1].Quota.Of[kind]; bound && most < n {
			return false
		}
	}
	all := 0
	for i := range v.Nodes {
		node := &v.Nodes[i]
		if node.Draining || d.NeedsTrust && !node.Trusted || node.CPUs > 0 && d.CPUs > node.CPUs ||
			node.Memory > 0 && d.Memory > node.Memory {
			continue
		}
		here := 0
		for k := range node.Devices {
			if node.Devices[k].Type == kind {
				here++
			}
		}
		if all += here; here >= n || d.MultiNode && all >= n {
			return true
		}
	}
	return false
}
