package hived

import (
	"cmp"
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/policy"
)

// round is the state of one decision.
type round struct {
	v         *policy.View
	inventory *policy.Inventory
	plan      *policy.Planner
	layout    *layout
	// owner is, for each device of a node, the opportunistic job that runs there, or nil.
	owner [][]*policy.Job
}

func newRound(v *policy.View, p *Policy, jobs []*policy.Job, guaranteed map[*policy.Job]bool) *round {
	r := &round{
		v: v, inventory: v.Inventory(), plan: policy.Refill(v), layout: p.layout, owner: make([][]*policy.Job, len(v.Nodes)),
	}
	for _, j := range jobs {
		if !j.Running() || j.Ending || guaranteed[j] {
			continue
		}
		for _, place := range j.Gang() {
			if r.owner[place.Node] == nil {
				r.owner[place.Node] = make([]*policy.Job, len(v.Nodes[place.Node].Devices))
			}
			for _, d := range place.Devices {
				r.owner[place.Node][d] = j
			}
		}
	}
	return r
}

// place finds devices for a guaranteed job in its cells, binds those cells that are not bound, and stops opportunistic
// jobs on them. If it finds no place, nothing changes.
func (r *round) place(j *policy.Job, holds []hold) bool {
	var gang cluster.Gang
	var bound []int
	rack := ""
	for _, h := range holds {
		c := &r.layout.cells[r.layout.byID[h.Cell]]
		if c.node < 0 {
			node := r.hostNode(c.class, h.N, rack)
			if node < 0 {
				r.release(bound)
				return false
			}
			r.layout.bind(r.layout.byID[h.Cell], node)
			bound = append(bound, r.layout.byID[h.Cell])
		}
		rack = r.v.Nodes[c.node].Rack
		devices := r.pickDevices(c.node, h.N)
		if devices == nil {
			r.release(bound)
			return false
		}
		gang = append(gang, cluster.Place{Node: c.node, Devices: devices})
	}
	if !r.evictAndPlace(j, gang) {
		r.release(bound)
		return false
	}
	return true
}

func (r *round) release(bound []int) {
	for _, c := range bound {
		r.layout.bound[r.layout.cells[c].node] = -1
		r.layout.cells[c].node = -1
	}
}

// evictAndPlace stops opportunistic jobs on a gang's devices and places the job there, if cores and memory suffice.
func (r *round) evictAndPlace(j *policy.Job, gang cluster.Gang) bool {
	var away []*policy.Job
	for _, place := range gang {
		for _, d := range place.Devices {
			if o := r.ownerOf(place.Node, d); o != nil && !slices.Contains(away, o) {
				away = append(away, o)
			}
		}
	}
	try := r.plan.Statement()
	for _, o := range away {
		r.plan.Evict(o, "opportunistic; tenant "+j.App.Tenant+" takes its cell back for a guaranteed job")
	}
	if !r.plan.PlaceOn(j, gang, "guaranteed by the quota of tenant "+j.App.Tenant) {
		try.Discard()
		return false
	}
	try.Commit()
	for _, o := range away {
		for _, place := range o.Gang() {
			for _, d := range place.Devices {
				r.owner[place.Node][d] = nil
			}
		}
	}
	return true
}

func (r *round) ownerOf(node, device int) *policy.Job {
	if r.owner[node] == nil {
		return nil
	}
	return r.owner[node][device]
}

// hostNode returns the unbound node of a class on which the fewest devices must be taken from opportunistic jobs for n,
// preferring the rack of the gang's other nodes, or -1.
func (r *round) hostNode(c class, n int, rack string) int {
	best, bestCost := -1, 0
	for _, node := range r.layout.nodes[c] {
		if r.layout.bound[node] >= 0 {
			continue
		}
		cost := max(0, n-r.plan.Free().FreeAt(node, ""))
		if rack != "" && r.v.Nodes[node].Rack != rack {
			cost += 1000
		}
		if best < 0 || cost < bestCost {
			best, bestCost = node, cost
		}
	}
	return best
}

// slot is what a slot of a node offers a guaranteed job: free devices, and all including those of opportunistic jobs.
type slot struct{ free, all int }

// pickDevices chooses n devices of a node that no guaranteed job holds: from one slot if one has enough, where the
// fewest must be taken from opportunistic jobs and then the tightest; free ones first, then those of few jobs. It
// returns nil if there are too few.
func (r *round) pickDevices(node, n int) []int {
	devices := r.v.Nodes[node].Devices
	slots, owners := map[int]slot{}, []*policy.Job{nil, nil}
	var usable []int
	rank := make([]int, len(devices)) // 0 for a free device, 1 for one being released, then by the job to take it from
	for d := range devices {
		s, o := slots[devices[d].Slot], r.ownerOf(node, d)
		switch {
		case r.plan.Free().IsFree(cluster.Gang{{Node: node, Devices: []int{d}}}):
			s.free++
			if r.plan.Pending(node, d) {
				rank[d] = 1
			}
		case o == nil:
			continue
		default:
			if rank[d] = slices.Index(owners, o); rank[d] < 0 {
				rank[d] = len(owners)
				owners = append(owners, o)
			}
		}
		s.all++
		slots[devices[d].Slot] = s
		usable = append(usable, d)
	}
	if len(usable) < n {
		return nil
	}
	slices.SortStableFunc(usable, func(a, b int) int {
		return cmp.Or(better(slots[devices[a].Slot], slots[devices[b].Slot], n),
			cmp.Compare(devices[a].Slot, devices[b].Slot), cmp.Compare(rank[a], rank[b]))
	})
	picked := usable[:n]
	slices.Sort(picked)
	return picked
}

// better orders slots for a gang of n: those that take it whole first, then by room.
func better(a, b slot, n int) int {
	switch whole := a.all >= n; {
	case whole != (b.all >= n):
		return cmp.Compare(b.all, a.all)
	case whole:
		return cmp.Or(cmp.Compare(max(0, n-a.free), max(0, n-b.free)), cmp.Compare(a.all, b.all))
	default:
		return cmp.Or(cmp.Compare(b.free, a.free), cmp.Compare(b.all, a.all))
	}
}
