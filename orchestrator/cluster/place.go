package cluster

import (
	"cmp"
	"slices"
)

// Best returns the best place for a job: on one node if any has room, with as many devices up to Max as are free there.
// If no node has room, it uses several nodes if the demand allows that.
func (c *Capacity) Best(d Demand) (Gang, bool) {
	if g, ok := c.onOne(d, max(1, d.Min), max(1, d.Max), ""); ok {
		return g, true
	}
	if !d.MultiNode {
		return nil, false
	}
	return c.Place(d, max(1, d.Min), "")
}

// Place returns the best place for n devices of a type; "" means any one type that the demand accepts. It uses one node
// if possible. Otherwise, if the demand allows it, it uses the fewest nodes, in one rack if possible.
func (c *Capacity) Place(d Demand, n int, kind string) (Gang, bool) {
	if n > c.total {
		return nil, false
	}
	if g, ok := c.onOne(d, n, n, kind); ok {
		return g, true
	}
	if !d.MultiNode {
		return nil, false
	}
	for k, name := range c.types {
		if kind != "" && kind != name || !d.Accepts(name) || c.bounded(d, k, c.free[k]) < n {
			continue
		}
		if g, ok := c.overMany(d, n, k); ok {
			return g, true
		}
	}
	if d.Mixed && kind == "" {
		if g, ok := c.overMany(d, n, -1); ok && c.Within(g, d) {
			return g, true
		}
	}
	return nil, false
}

// PlaceAt picks n free devices of a type on one node; "" means any one type.
func (c *Capacity) PlaceAt(node int, d Demand, n int, kind string) (Gang, bool) {
	if !c.Admits(node, d) {
		return nil, false
	}
	for k, name := range c.types {
		if (kind == "" || kind == name) && d.Accepts(name) && c.bounded(d, k, c.rooms[node].free[k]) >= n {
			return Gang{{Node: node, Devices: c.nodes[node].pick(c.freeDevices(node, k, d), n)}}, true
		}
	}
	return nil, false
}

// onOne places least to most devices on one node. It prefers the fastest devices, then as many as possible, then the
// node with the fewest remaining free devices, which keeps large gaps for large jobs, then the first node by name.
func (c *Capacity) onOne(d Demand, least, most int, kind string) (Gang, bool) {
	if least > c.total {
		return nil, false
	}
	var best Place
	bestSpeed, bestTake, bestLeft := -1.0, 0, 0
	for i := range c.nodes {
		if r := &c.rooms[i]; r.all < least || !c.Admits(i, d) {
			continue
		}
		for k, name := range c.types {
			free := c.rooms[i].free[k]
			allowed := c.bounded(d, k, free)
			if allowed < least || kind != "" && kind != name || !d.Accepts(name) {
				continue
			}
			take := min(most, allowed)
			left := free - take
			better := cmp.Or(take-bestTake, bestLeft-left) > 0
			if bestSpeed >= 1 && !better {
				continue // not faster, larger or tighter
			}
			devices := c.nodes[i].pick(c.freeDevices(i, k, d), take)
			if speed := c.nodes[i].speed(devices); speed > bestSpeed || speed == bestSpeed && better {
				best = Place{Node: i, Devices: devices}
				bestSpeed, bestTake, bestLeft = speed, take, left
			}
		}
		if bestSpeed >= 1 && bestTake == most && bestLeft == 0 {
			break // cannot be improved
		}
	}
	if bestSpeed < 0 {
		return nil, false
	}
	return Gang{best}, true
}

// overMany places n devices over several nodes: in the rack with the least sufficient room, otherwise anywhere. Nodes
// with the most free devices come first, so that few are used.
func (c *Capacity) overMany(d Demand, n, kind int) (Gang, bool) {
	type host struct{ node, free int }
	var hosts []host
	racks := map[string]int{}
	all := 0
	for i := range c.nodes {
		if c.rooms[i].all == 0 || !c.Admits(i, d) {
			continue
		}
		if free := c.freeOn(i, kind, d); free > 0 {
			hosts = append(hosts, host{i, free})
			racks[c.nodes[i].Rack] += free
			all += free
		}
	}
	if all < n {
		return nil, false
	}
	rack, found := "", false
	for _, h := range hosts {
		if name := c.nodes[h.node].Rack; racks[name] >= n && (!found || racks[name] < racks[rack]) {
			rack, found = name, true
		}
	}
	slices.SortStableFunc(hosts, func(a, b host) int { return cmp.Compare(b.free, a.free) })
	var g Gang
	for _, h := range hosts {
		if found && c.nodes[h.node].Rack != rack {
			continue
		}
		take := min(n, h.free)
		g = append(g, Place{Node: h.node, Devices: c.nodes[h.node].pick(c.freeDevices(h.node, kind, d), take)})
		if n -= take; n == 0 {
			break
		}
	}
	return g, true
}

func (c *Capacity) freeOn(node, kind int, d Demand) int {
	if kind >= 0 {
		return c.rooms[node].free[kind]
	}
	return len(c.freeDevices(node, kind, d))
}
