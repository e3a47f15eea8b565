package cluster

import (
	"cmp"
	"slices"
)

// pick chooses want of a node's free devices. On a node with links, it chooses those with the fastest links between
// them, grown greedily from each free device in turn. Without links, it chooses the fastest devices, preferably in one
// slot.
func (n *Node) pick(free []int, want int) []int {
	n.sortBySpeed(free)
	var picked []int
	switch {
	case want == len(free) || want == 1 && len(n.Links) > 0:
		picked = free[:want]
	case len(n.Links) == 0:
		picked = n.pickBySlot(free, want)
	default:
		bestRank := -1
		for _, start := range free {
			if group, rank := n.growGroup(start, free, want); rank > bestRank {
				picked, bestRank = group, rank
			}
		}
	}
	slices.Sort(picked)
	return picked
}

// pickBySlot picks from the slot with the fewest free devices that has enough at full speed. Otherwise it picks slot
// after slot, the fullest first.
func (n *Node) pickBySlot(free []int, want int) []int {
	slowest := n.Devices[free[want-1]].Speed
	var count [64]int
	slotOf := func(d int) int { return min(max(n.Devices[d].Slot, 0), len(count)-1) }
	for _, d := range free {
		if n.Devices[d].Speed >= slowest {
			count[slotOf(d)]++
		}
	}
	// The best fitting slot comes first, then those with more devices.
	rank := func(d int) int {
		if have := count[slotOf(d)]; have >= want {
			return have
		}
		return 1000 - count[slotOf(d)]
	}
	slices.SortStableFunc(free, func(a, b int) int {
		return cmp.Or(cmp.Compare(n.Devices[b].Speed, n.Devices[a].Speed), cmp.Compare(rank(a), rank(b)),
			cmp.Compare(n.Devices[a].Slot, n.Devices[b].Slot))
	})
	return free[:want]
}

// growGroup extends a device to a group by repeatedly adding the free device with the best links to the group.
func (n *Node) growGroup(start int, free []int, want int) (group []int, total int) {
	group = []int{start}
	for len(group) < want {
		next, nextRank := -1, -1
		for _, d := range free {
			if slices.Contains(group, d) {
				continue
			}
			rank := 0
			for _, g := range group {
				rank += n.linkRank(d, g)
			}
			if rank > nextRank {
				next, nextRank = d, rank
			}
		}
		group, total = append(group, next), total+nextRank
	}
	return group, total
}

// linkRank returns the rank of the link between two devices, or 0 without a link.
func (n *Node) linkRank(a, b int) int {
	for _, l := range n.Links {
		if l.A == a && l.B == b || l.A == b && l.B == a {
			return l.Rank
		}
	}
	return 0
}

// speed returns the speed of the slowest of some devices.
func (n *Node) speed(devices []int) float64 {
	slowest := 1.0
	for _, d := range devices {
		if s := n.Devices[d].Speed; s > 0 {
			slowest = min(slowest, s)
		}
	}
	return slowest
}

// sortBySpeed sorts devices, the fastest first.
func (n *Node) sortBySpeed(devices []int) {
	slices.SortStableFunc(devices, func(a, b int) int { return cmp.Compare(n.Devices[b].Speed, n.Devices[a].Speed) })
}
