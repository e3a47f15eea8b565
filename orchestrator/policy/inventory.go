package policy

import (
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
)

// Inventory is how many devices of each type a cluster has, free or not, on nodes that take new jobs.
type Inventory struct {
	types []string
	total []int
	// The most in one slot, on one node and in one rack.
	slot, node, rack []int
	// machines that have devices of the type.
	machines []int
}

// Inventory counts the view's devices.
func (v *View) Inventory() *Inventory {
	s := &Inventory{types: v.Free.Types()}
	n := len(s.types)
	s.total, s.slot, s.node, s.rack = make([]int, n), make([]int, n), make([]int, n), make([]int, n)
	s.machines = make([]int, n)
	racks := map[string][]int{}
	for i := range v.Nodes {
		node := &v.Nodes[i]
		if node.Draining {
			continue
		}
		if racks[node.Rack] == nil {
			racks[node.Rack] = make([]int, n)
		}
		slots, here := map[[2]int]int{}, make([]int, n)
		for _, d := range node.Devices {
			k := slices.Index(s.types, d.Type)
			here[k]++
			slots[[2]int{k, d.Slot}]++
			s.slot[k] = max(s.slot[k], slots[[2]int{k, d.Slot}])
		}
		for k, count := range here {
			s.total[k] += count
			s.machines[k] += min(count, 1)
			s.node[k] = max(s.node[k], count)
			racks[node.Rack][k] += count
			s.rack[k] = max(s.rack[k], racks[node.Rack][k])
		}
	}
	return s
}

// Types of device, sorted; other methods name them by index.
func (s *Inventory) Types() []string { return s.types }

// Total is the number of devices of a type.
func (s *Inventory) Total(kind int) int { return s.total[kind] }

// Most is how many devices of a type a job of the demand could hold were the cluster empty: at most its Max, 0 if it
// could not run on that type. Cores, memory and trust are left out.
func (s *Inventory) Most(d cluster.Demand, kind int) int {
	most := s.node[kind]
	if d.MultiNode {
		most = s.total[kind]
	}
	if most < d.Min || !d.Accepts(s.types[kind]) {
		return 0
	}
	return min(most, max(d.Max, d.Min))
}

// Wants is how many devices of one type a job of the demand gets if it is given as many as it can use: at least its
// Min.
func (s *Inventory) Wants(d cluster.Demand) int {
	most := max(1, d.Min)
	for k := range s.types {
		most = max(most, s.Most(d, k))
	}
	return most
}

// Locality is how close together so many devices of a type can be at best.
func (s *Inventory) Locality(kind, n int) cluster.Locality {
	switch {
	case n <= s.slot[kind]:
		return cluster.SameSlot
	case n <= s.node[kind]:
		return cluster.SameMachine
	case n <= s.rack[kind]:
		return cluster.SameRack
	default:
		return cluster.AcrossRacks
	}
}

// Rate is the steps per second of a job on so many devices of a type, as close together as they can be; 0 for none.
func (s *Inventory) Rate(j *Job, kind, n int) float64 {
	if n == 0 {
		return 0
	}
	return j.Speeds.Rate(s.types[kind], n, s.Locality(kind, n))
}

// KindOf is the index of the type of a gang's devices; -1 if they are of several, or of none.
func (s *Inventory) KindOf(v *View, g cluster.Gang) int {
	return slices.Index(s.types, cluster.TypeOf(v.Nodes, g))
}
