package policy

import "github.com/outbid-dev/outbid/orchestrator/cluster"

// Owed is what a plan counts as free although somebody has still to give it up: devices, cores and memory, by node. What
// the plan gives to others is first taken from what is free now. The zero value owes nothing.
type Owed struct {
	devices map[int]map[int]bool
	rest    map[int]need
}

// need is an amount of cores and memory.
type need struct {
	cpus   float64
	memory int64
}

// Add says that a gang, with its cores and memory, is planned with before it is given up.
func (o *Owed) Add(g cluster.Gang, d cluster.Demand) {
	o.add(g, d, 1)
	if o.devices == nil {
		o.devices = map[int]map[int]bool{}
	}
	for _, place := range g {
		if o.devices[place.Node] == nil {
			o.devices[place.Node] = map[int]bool{}
		}
		for _, i := range place.Devices {
			o.devices[place.Node][i] = true
		}
	}
}

// Settle says that cores and memory of a gang that were taken in the plan need not be free now: whoever takes them waits
// until they are, or holds them already.
func (o *Owed) Settle(g cluster.Gang, d cluster.Demand) { o.add(g, d, -1) }

// Unsettle undoes a Settle.
func (o *Owed) Unsettle(g cluster.Gang, d cluster.Demand) { o.add(g, d, 1) }

func (o *Owed) add(g cluster.Gang, d cluster.Demand, times int) {
	if d.CPUs == 0 && d.Memory == 0 {
		return
	}
	if o.rest == nil {
		o.rest = map[int]need{}
	}
	for _, place := range g {
		n := o.rest[place.Node]
		o.rest[place.Node] = need{n.cpus + float64(times)*d.CPUs, n.memory + int64(times)*d.Memory}
	}
}

// Device says whether a device has still to be given up.
func (o *Owed) Device(node, device int) bool { return o.devices[node][device] }

// Devices says whether some device of a gang has still to be given up.
func (o *Owed) Devices(g cluster.Gang) bool {
	for _, place := range g {
		for _, d := range place.Devices {
			if o.devices[place.Node][d] {
				return true
			}
		}
	}
	return false
}

// Blocks says whether a gang that was just taken from what the plan has free cannot be had now: a device, or cores or
// memory on one of its nodes, have still to be given up.
func (o *Owed) Blocks(free *cluster.Capacity, g cluster.Gang) bool {
	if o.Devices(g) {
		return true
	}
	for _, place := range g {
		n := o.rest[place.Node]
		rest := cluster.Demand{CPUs: max(0, n.cpus), Memory: max(0, n.memory)}
		if (rest.CPUs > 0 || rest.Memory > 0) && !free.Fits(cluster.Gang{{Node: place.Node}}, rest) {
			return true
		}
	}
	return false
}
