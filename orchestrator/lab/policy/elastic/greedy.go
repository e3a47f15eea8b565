package elastic

import (
	"cmp"
	"container/heap"
	"slices"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/policy"
)

// greedy gives each job its Min while there are devices, and then each further device to the job that gains most by it.
// That is the best division if gains fall with the number of devices.
type greedy struct {
	every time.Duration
	// stick is by how much, relatively, another job's gain must exceed that of the holder of a device.
	stick float64
	// value prepares the worth of devices to each job, by its index in jobs.
	value func(v *policy.View, s *policy.Inventory, jobs []*policy.Job) func(i int) value
	// byArrival means that jobs get their Min in order of arrival, whatever their value.
	byArrival bool
}

// value is the worth of devices to a job.
type value struct {
	job *policy.Job
	// first is the priority for the Min: the largest first, and the longest waiting first among equals.
	first float64
	// gain returns the gain of one device in addition to n of a type; nothing is given at a gain of 0 or less.
	gain func(kind, n int) float64
}

func (g *greedy) due(v *policy.View, m *memory) bool { return !v.Now.Before(m.Decided.Add(g.every)) }

func (g *greedy) next(_ *policy.View, m *memory) time.Time { return m.Decided.Add(g.every) }

func (g *greedy) sizes(v *policy.View, s *policy.Inventory, jobs []*policy.Job, free []int, _ bool) []size {
	valueOf := g.value(v, s, jobs)
	more := &gains{}
	var sizes []*size
	for _, c := range g.orderForMin(jobs, valueOf) {
		j := c.job
		one := &size{job: j, kind: s.KindOf(v, j.Gang())}
		if j.Running() && one.kind < 0 {
			keepSize(v, s, one, free)
			sizes = append(sizes, one)
			continue
		}
		n := max(1, j.Demand.Min)
		if !j.Running() {
			one.kind = fastest(s, j, n, free)
		}
		if one.kind < 0 || free[one.kind] < n {
			continue
		}
		one.n = n
		free[one.kind] -= n
		sizes = append(sizes, one)
		if most := s.Most(j.Demand, one.kind); most > n {
			if c.gain == nil {
				c.value = g.preferHeld(valueOf(c.at))
			}
			*more = append(*more, gain{c.gain(one.kind, n), len(sizes), most, one, c.gain})
		}
	}
	heap.Init(more)
	for more.Len() > 0 {
		g := &(*more)[0]
		if g.size.n >= g.most || free[g.size.kind] == 0 || g.gain <= 0 {
			heap.Pop(more)
			continue
		}
		g.size.n++
		free[g.size.kind]--
		g.gain = g.of(g.size.kind, g.size.n)
		heap.Fix(more, 0)
	}
	all := make([]size, len(sizes))
	for i, one := range sizes {
		all[i] = *one
	}
	return all
}

// candidate is a job in line for its Min.
type candidate struct {
	value
	at int
}

// orderForMin orders jobs for their Min. It computes values only if they matter.
func (g *greedy) orderForMin(jobs []*policy.Job, valueOf func(i int) value) []candidate {
	line := make([]candidate, len(jobs))
	for i, j := range jobs {
		line[i] = candidate{value{job: j}, i}
		if !g.byArrival {
			line[i].value = g.preferHeld(valueOf(i))
		}
	}
	order := make([]int32, len(line)) // without pointers, so that sorting many is cheap
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortFunc(order, func(x, y int32) int {
		a, b := &line[x], &line[y]
		if c := cmp.Compare(b.first, a.first); c != 0 {
			return c
		}
		if c := a.job.Created.Compare(b.job.Created); c != 0 {
			return c
		}
		return cmp.Compare(x, y)
	})
	sorted := make([]candidate, len(line))
	for i, x := range order {
		sorted[i] = line[x]
	}
	return sorted
}

// preferHeld increases the worth of the devices that a job holds, so that among jobs with almost equal gains none is
// stopped for another.
func (g *greedy) preferHeld(v value) value {
	held, gain := v.job.Gang().Size(), v.gain
	if held == 0 || v.job.Ending {
		return v
	}
	v.first *= 1 + g.stick
	v.gain = func(kind, n int) float64 {
		if n < held {
			return gain(kind, n) * (1 + g.stick)
		}
		return gain(kind, n)
	}
	return v
}

// stickOf reads the option "stick".
func stickOf(o *policy.Options) float64 {
	return o.Float("stick", 0.1, 0, 100, "least relative lead of another trial's gain from a device over that of its holder")
}

// keepSize leaves a job that runs on several types as it is.
func keepSize(v *policy.View, s *policy.Inventory, of *size, free []int) {
	of.n = of.job.Gang().Size()
	for _, place := range of.job.Gang() {
		for _, d := range place.Devices {
			k := s.KindOf(v, cluster.Gang{{Node: place.Node, Devices: []int{d}}})
			free[k] = max(0, free[k]-1)
		}
	}
}

// fastest returns the type on which n devices make the most steps per second, among those with n left, or -1.
func fastest(s *policy.Inventory, j *policy.Job, n int, free []int) int {
	best, rate := -1, 0.0
	for k := range free {
		if free[k] < n || s.Most(j.Demand, k) < n {
			continue
		}
		if r := s.Rate(j, k, n); r > rate {
			best, rate = k, r
		}
	}
	return best
}

// gains is a heap of jobs' gains from one more device, largest first.
type gains []gain

type gain struct {
	gain  float64
	order int
	most  int
	size  *size
	of    func(kind, n int) float64
}

// Len implements heap.Interface.
func (g gains) Len() int { return len(g) }

// Less implements heap.Interface.
func (g gains) Less(a, b int) bool {
	return g[a].gain > g[b].gain || g[a].gain == g[b].gain && g[a].order < g[b].order
}

// Swap implements heap.Interface.
func (g gains) Swap(a, b int) { g[a], g[b] = g[b], g[a] }

// Push implements heap.Interface.
func (g *gains) Push(x any) {
	if one, ok := x.(gain); ok {
		*g = append(*g, one)
	}
}

// Pop implements heap.Interface.
func (g *gains) Pop() any {
	last := (*g)[len(*g)-1]
	*g = (*g)[:len(*g)-1]
	return last
}
