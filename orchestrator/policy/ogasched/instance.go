package ogasched

import (
	"cmp"
	"math"
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/policy/ogasched/ascent"
)

// instance is a view in OGASched's terms.
type instance struct {
	v     *policy.View
	types []string
	// pools hold the devices of one type on one node that accepts trials.
	pools []pool
	ports []*port
	of    map[*policy.App]*port
}

type pool struct {
	name       string
	node, kind int
	devices    float64
}

// port is a sweep with running or waiting trials.
type port struct {
	app *policy.App
	// y is how much of each pool is kept for it, most how much its trials can use, and given its whole devices.
	y, most, given []float64
	// alpha of each type; held, the devices of each type that its trials hold; and share, the sums of y.
	alpha, held, share []float64
	// need is its share minus its holdings, in devices.
	need float64
}

// instance builds the instance from the view and the remembered shares.
func (p *Policy) instance(v *policy.View) *instance {
	m := &instance{v: v, types: v.Free.Types(), of: map[*policy.App]*port{}}
	for i := range v.Nodes {
		n := &v.Nodes[i]
		if n.Draining {
			continue
		}
		count := make([]float64, len(m.types))
		for _, d := range n.Devices {
			count[slices.Index(m.types, d.Type)]++
		}
		for k, c := range count {
			if c > 0 {
				m.pools = append(m.pools, pool{n.Name + "/" + m.types[k], i, k, c})
			}
		}
	}
	for _, a := range v.Apps {
		wanted := 0.0
		for _, j := range a.Jobs {
			if j.Running() || j.Waiting() {
				wanted += float64(max(1, j.Demand.Max))
			}
		}
		if wanted > 0 {
			one := m.newPort(a, wanted, p.m.Shares[a.ID])
			m.ports = append(m.ports, one)
			m.of[a] = one
		}
	}
	return m
}

// newPort returns the port of a sweep whose trials can use wanted devices in all.
func (m *instance) newPort(a *policy.App, wanted float64, remembered map[string]float64) *port {
	n, kinds := len(m.pools), len(m.types)
	s := &port{
		app: a, y: make([]float64, n), most: make([]float64, n), given: make([]float64, n),
		alpha: make([]float64, kinds), held: make([]float64, kinds), share: make([]float64, kinds),
	}
	fastest, demand, speeds := 0.0, a.Jobs[0].Demand, a.Jobs[0].Speeds
	if speeds == nil {
		speeds = a.Speeds
	}
	for k, kind := range m.types {
		if demand.Accepts(kind) {
			s.alpha[k] = speeds.Rate(kind, max(1, demand.Min), cluster.SameMachine)
			fastest = max(fastest, s.alpha[k])
		}
	}
	weight := policy.WeightOrOne(a.Weight)
	for k := range s.alpha {
		if fastest > 0 {
			s.alpha[k] *= weight / fastest
		}
	}
	for i, pool := range m.pools {
		if s.alpha[pool.kind] > 0 && (!demand.NeedsTrust || m.v.Nodes[pool.node].Trusted) {
			s.most[i] = min(wanted, pool.devices)
		}
		s.y[i] = min(remembered[pool.name], s.most[i])
	}
	for _, j := range a.Jobs {
		if k := slices.Index(m.types, cluster.TypeOf(m.v.Nodes, j.Held())); k >= 0 {
			s.held[k] += float64(j.Held().Size())
		}
	}
	s.updateShare(m)
	return s
}

// updateShare computes the shares.
func (s *port) updateShare(m *instance) {
	clear(s.share)
	s.need = 0
	for i, pool := range m.pools {
		s.share[pool.kind] += s.y[i]
		s.need += s.y[i]
	}
	for _, held := range s.held {
		s.need -= held
	}
}

// dominant returns the type with the port's largest share.
func (s *port) dominant() int {
	most := 0
	for k := range s.share {
		if s.share[k] > s.share[most] {
			most = k
		}
	}
	return most
}

// learn makes a step up the gradient, projects it onto the feasible set, and remembers the result.
func (m *instance) learn(p *Policy) {
	for _, s := range m.ports {
		dominant := s.dominant()
		for i, pool := range m.pools {
			if s.most[i] == 0 {
				continue
			}
			alpha := s.alpha[pool.kind]
			slope := alpha * p.Utility.Slope(1, s.y[i])
			if pool.kind == dominant {
				slope -= p.beta
			}
			s.y[i] += p.m.Rate * slope
		}
	}
	z, most := make([]float64, len(m.ports)), make([]float64, len(m.ports))
	for i, pool := range m.pools {
		for l, s := range m.ports {
			z[l], most[l] = s.y[i], s.most[i]
		}
		ascent.Project(z, most, pool.devices)
		for l, s := range m.ports {
			s.y[i] = z[l]
		}
	}
	p.m.Shares = make(map[string]map[string]float64, len(m.ports))
	for _, s := range m.ports {
		own := map[string]float64{}
		for i, y := range s.y {
			if y > 0 {
				own[m.pools[i].name] = y
			}
		}
		p.m.Shares[s.app.ID] = own
		s.updateShare(m)
	}
}

// reward returns the reward of the ports' parts of the pools.
func (m *instance) reward(p *Policy, has func(*port) []float64) float64 {
	reward := 0.0
	for _, s := range m.ports {
		sums := make([]float64, len(m.types))
		for i, y := range has(s) {
			kind := m.pools[i].kind
			reward += s.alpha[kind] * p.Utility.Gain(1, y)
			sums[kind] += y
		}
		reward -= p.beta * slices.Max(append(sums, 0))
	}
	return reward
}

// countGiven counts the devices of a gang as given to a port.
func (m *instance) countGiven(s *port, g cluster.Gang) {
	for _, place := range g {
		for _, d := range place.Devices {
			kind := m.v.Nodes[place.Node].Devices[d].Type
			for i := range m.pools {
				if m.pools[i].node == place.Node && m.types[m.pools[i].kind] == kind {
					s.given[i]++
				}
			}
		}
	}
}

// slack is how far below a whole number a share may be and still count as that number.
const slack = 0.25

// keepRunning lets trials continue up to their sweep's share, rounded up, those that started first before others.
func (m *instance) keepRunning(plan *policy.Planner, jobs []*policy.Job) {
	running := slices.Clone(jobs)
	slices.SortStableFunc(running, func(a, b *policy.Job) int { return a.Granted.Compare(b.Granted) })
	for _, s := range m.ports {
		clear(s.held)
	}
	for _, j := range running {
		if !j.Running() || j.Ending {
			continue
		}
		s, n := m.of[j.App], float64(j.Held().Size())
		k := slices.Index(m.types, cluster.TypeOf(m.v.Nodes, j.Held()))
		if k < 0 || s.held[k]+n <= math.Ceil(s.share[k]-slack) {
			if plan.Keep(j) && k >= 0 {
				s.held[k] += n
				m.countGiven(s, j.Held())
			}
		}
	}
	for _, s := range m.ports {
		s.updateShare(m)
	}
}

// place gives trials devices up to their sweep's share, rounded down.
func (m *instance) place(plan *policy.Planner, waiting []*policy.Job) {
	for _, j := range waiting {
		s := m.of[j.App]
		for _, k := range s.byShare() {
			n := min(int(s.share[k]-s.held[k]+slack), j.Demand.Max)
			if n < max(1, j.Demand.Min) || !j.Demand.Accepts(m.types[k]) {
				continue
			}
			g, ok := m.placeFor(plan, s, j, k, n)
			if ok && plan.PlaceOn(j, g, "its sweep's share of the devices, learnt slot by slot") {
				s.held[k] += float64(n)
				m.countGiven(s, g)
				break
			}
		}
	}
}

// byShare returns the types, those first in which the port's share exceeds its holdings the most.
func (s *port) byShare() []int {
	kinds := make([]int, len(s.share))
	for k := range kinds {
		kinds[k] = k
	}
	slices.SortStableFunc(kinds, func(a, b int) int { return cmp.Compare(s.share[b]-s.held[b], s.share[a]-s.held[a]) })
	return kinds
}

// placeFor finds n devices of a type: on the node with room on which most is kept for the sweep, or else anywhere.
func (m *instance) placeFor(plan *policy.Planner, s *port, j *policy.Job, kind, n int) (cluster.Gang, bool) {
	best, most := -1, 0.0
	for i, pool := range m.pools {
		left := s.y[i] - s.given[i]
		if pool.kind == kind && left > most && plan.Free().FreeAt(pool.node, m.types[kind]) >= n {
			best, most = pool.node, left
		}
	}
	if best >= 0 {
		if g, ok := plan.Free().PlaceAt(best, j.Demand, n, m.types[kind]); ok {
			return g, true
		}
	}
	return plan.Free().Place(j.Demand, n, m.types[kind])
}

// byNeed sorts trials by how far their sweep's share exceeds its holdings, in whole devices, largest first.
func (m *instance) byNeed(jobs []*policy.Job) []*policy.Job {
	slices.SortStableFunc(jobs, func(a, b *policy.Job) int {
		return cmp.Compare(math.Floor(m.of[b.App].need+slack), math.Floor(m.of[a.App].need+slack))
	})
	return jobs
}
