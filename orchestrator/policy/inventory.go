package policy

import (
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
)

// Inventory holds the number of devices of each type, free or not, on nodes that accept new trials.
type Inventory struct {
	types []string
	total []int
	// The most devices of a type in one slot, on one node and in one rack.
	slot, node, rack []int
	// The number of nodes with devices of the type.
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

// Types returns the device types, sorted. Other methods take an index into this list.
func (s *Inventory) Types() []string { return s.types }

// Total returns the number of devices of a type.
func (s *Inventory) Total(kind int) int { return s.total[kind] }

// Most returns how many devices of a type a trial with this demand could hold on an empty cluster. It is at most the
// demand's Max, and 0 if the trial cannot run on the type. It ignores cores, memory and trust.
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

// Wants returns how many devices a trial with this demand can use on the type that has the most for it, but at least
// its Min.
func (s *Inventory) Wants(d cluster.Demand) int {
	most := max(1, d.Min)
	for k := range s.types {
		most = max(most, s.Most(d, k))
	}
	return most
}

// Locality returns the best locality that n devices of a type can have.
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

// Rate returns the steps per second of a trial on n devices of a type with the best possible locality, or 0 if n is 0.
func (s *Inventory) Rate(j *Job, kind, n int) float64 {
	if n == 0 {
		return 0
	}
	return j.Speeds.Rate(s.types[kind], n, s.Locality(kind, n))
}

// KindOf returns the index of the type of a gang's devices, or -1 if the gang is empty or has several types.
func (s *Inventory) KindOf(v *View, g cluster.Gang) int {
	return slices.Index(s.types, cluster.TypeOf(v.Nodes, g))
}
