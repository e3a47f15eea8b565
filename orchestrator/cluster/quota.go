package cluster

import (
	"math"
	"slices"
)

// Quota bounds what the jobs of one owner hold together. Demands name it by its number in their capacity, from 1 on.
type Quota struct {
	// Owner is who has it.
	Owner string
	// All bounds the devices of all types together, and Of those of a type; what is negative or not named has no bound.
	All int
	Of  map[string]int
}

// quotas is what a capacity knows of them.
type quotas struct {
	// most by type, by index in Capacity.types, and of all; math.MaxInt for no bound.
	most [][]int
	all  []int
	// held by type.
	held [][]int
}

// SetQuotas has demands bounded by quotas from now on. Nothing may be taken yet.
func (c *Capacity) SetQuotas(list []Quota) {
	c.quotas = quotas{}
	bound := func(n int) int {
		if n < 0 {
			return math.MaxInt
		}
		return n
	}
	for _, q := range list {
		most := make([]int, len(c.types))
		for k, kind := range c.types {
			most[k] = math.MaxInt
			if n, named := q.Of[kind]; named {
				most[k] = bound(n)
			}
		}
		c.quotas.most = append(c.quotas.most, most)
		c.quotas.all = append(c.quotas.all, bound(q.All))
		c.quotas.held = append(c.quotas.held, make([]int, len(c.types)))
	}
}

// bounds says whether the demand has a quota that the capacity knows.
func (c *Capacity) bounds(d Demand) bool { return d.Quota > 0 && d.Quota <= len(c.quotas.held) }

// own counts what jobs of a quota hold of a device's kind.
func (c *Capacity) own(quota, kind, by int) {
	if quota > 0 && quota <= len(c.quotas.held) {
		c.quotas.held[quota-1][kind] += by
	}
}

// Allowance is how many more devices of a type, by index in Types, the demand's quota leaves.
func (c *Capacity) Allowance(d Demand, kind int) int {
	if !c.bounds(d) {
		return math.MaxInt
	}
	q := d.Quota - 1
	return max(0, min(c.quotas.most[q][kind]-c.quotas.held[q][kind], c.AllowanceOfAll(d)))
}

// AllowanceOfAll is how many more devices of all types together the demand's quota leaves.
func (c *Capacity) AllowanceOfAll(d Demand) int {
	if !c.bounds(d) {
		return math.MaxInt
	}
	left := c.quotas.all[d.Quota-1]
	for _, n := range c.quotas.held[d.Quota-1] {
		left -= n
	}
	return max(0, left)
}

// Within says whether the demand's quota leaves room for a gang that is free.
func (c *Capacity) Within(g Gang, d Demand) bool {
	if !c.bounds(d) {
		return true
	}
	return c.HasRoom(d, c.CountTypes(g, nil))
}

// HasRoom says whether the demand's quota leaves room for so many devices by type, by index.
func (c *Capacity) HasRoom(d Demand, more []int) bool {
	if !c.bounds(d) {
		return true
	}
	q, sum := d.Quota-1, 0
	for k, n := range c.quotas.held[d.Quota-1] {
		if k < len(more) {
			n += more[k]
		}
		if n > c.quotas.most[q][k] {
			return false
		}
		sum += n
	}
	return sum <= c.quotas.all[q]
}

// CountTypes adds a gang's devices by type, by index, to counts.
func (c *Capacity) CountTypes(g Gang, counts []int) []int {
	counts = append(counts, make([]int, max(0, len(c.types)-len(counts)))...)
	for _, p := range g {
		for _, d := range p.Devices {
			counts[c.rooms[p.Node].kind[d]]++
		}
	}
	return counts
}

// jobsAllowed is how many jobs of so many devices the demand's quota leaves room for.
func (c *Capacity) jobsAllowed(d Demand, least int) int {
	if !c.bounds(d) {
		return math.MaxInt
	}
	sum := 0
	for k, kind := range c.types {
		if d.Accepts(kind) {
			sum += min(c.Allowance(d, k)/least, math.MaxInt32)
		}
	}
	all := c.quotas.all[d.Quota-1]
	for _, n := range c.quotas.held[d.Quota-1] {
		all -= n
	}
	return max(0, min(sum, all/least))
}

// FreeFor counts the free devices of a type on a node that the demand's quota leaves.
func (c *Capacity) FreeFor(node int, kind string, d Demand) int {
	if k := slices.Index(c.types, kind); k >= 0 {
		return c.bounded(d, k, c.rooms[node].free[k])
	}
	return 0
}

// bounded is how many of the free devices of a type the demand may take.
func (c *Capacity) bounded(d Demand, kind, free int) int { return min(free, c.Allowance(d, kind)) }
