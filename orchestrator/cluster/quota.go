package cluster

import (
	"math"
	"slices"
)

// Quota limits the devices that the jobs of one owner hold together. Demands refer to it by its number in their
// capacity, from 1.
type Quota struct {
	// Owner is the owner's name.
	Owner string
	// All limits the devices of all types together, and Of those of each type. Negative and missing values mean no
	// limit.
	All int
	Of  map[string]int
}

// quotas is the state of the quotas in a capacity.
type quotas struct {
	// most is the limit by type, an index in Capacity.types, and all the total limit; math.MaxInt for no limit.
	most [][]int
	all  []int
	// held is the number of devices held by type.
	held [][]int
}

// SetQuotas sets the quotas that limit demands. It must be called before the first Take.
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

// bounds reports whether the demand has a quota in the capacity.
func (c *Capacity) bounds(d Demand) bool { return d.Quota > 0 && d.Quota <= len(c.quotas.held) }

// own changes the number of devices of a type that the jobs of a quota hold.
func (c *Capacity) own(quota, kind, by int) {
	if quota > 0 && quota <= len(c.quotas.held) {
		c.quotas.held[quota-1][kind] += by
	}
}

// Allowance returns how many more devices of a type, an index in Types, the demand's quota allows.
func (c *Capacity) Allowance(d Demand, kind int) int {
	if !c.bounds(d) {
		return math.MaxInt
	}
	q := d.Quota - 1
	return max(0, min(c.quotas.most[q][kind]-c.quotas.held[q][kind], c.AllowanceOfAll(d)))
}

// AllowanceOfAll returns how many more devices of all types together the demand's quota allows.
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

// Within reports whether the demand's quota allows a free gang.
func (c *Capacity) Within(g Gang, d Demand) bool {
	if !c.bounds(d) {
		return true
	}
	return c.HasRoom(d, c.CountTypes(g, nil))
}

// HasRoom reports whether the demand's quota allows this many more devices by type.
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

// CountTypes adds a gang's devices to counts by type.
func (c *Capacity) CountTypes(g Gang, counts []int) []int {
	counts = append(counts, make([]int, max(0, len(c.types)-len(counts)))...)
	for _, p := range g {
		for _, d := range p.Devices {
			counts[c.rooms[p.Node].kind[d]]++
		}
	}
	return counts
}

// jobsAllowed returns the number of jobs with this many devices that the demand's quota allows.
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

// FreeFor returns the number of free devices of a type on a node within the demand's quota.
func (c *Capacity) FreeFor(node int, kind string, d Demand) int {
	if k := slices.Index(c.types, kind); k >= 0 {
		return c.bounded(d, k, c.rooms[node].free[k])
	}
	return 0
}

// bounded returns the number of free devices of a type that the demand may take.
func (c *Capacity) bounded(d Demand, kind, free int) int { return min(free, c.Allowance(d, kind)) }
