package policy

import (
	"math"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
)

// pendingRelease counts the devices, cores and memory, by node, that a plan treats as free although a trial still has
// to release them. The plan gives away free resources before pending ones. The zero value is empty.
type pendingRelease struct {
	devices map[int]map[int]bool
	needs   map[int]need
	// quota counts devices by quota and type. free is the capacity that knows both, or nil without quotas.
	quota map[int][]int
	free  *cluster.Capacity
}

// need is an amount of memory in bytes and of cores in millionths, which makes sums exact.
type need struct {
	cpus   int64
	memory int64
}

const millionths = 1e6

// add records that the plan uses a gang, with its cores and memory, before it is released.
func (r *pendingRelease) add(g cluster.Gang, d cluster.Demand) {
	r.addNeeds(g, d, 1)
	r.markDevices(g, true)
}

// remove undoes add.
func (r *pendingRelease) remove(g cluster.Gang, d cluster.Demand) {
	r.addNeeds(g, d, -1)
	r.markDevices(g, false)
}

func (r *pendingRelease) markDevices(g cluster.Gang, pending bool) {
	if r.devices == nil {
		r.devices = map[int]map[int]bool{}
	}
	for _, place := range g {
		if r.devices[place.Node] == nil {
			r.devices[place.Node] = map[int]bool{}
		}
		for _, i := range place.Devices {
			if pending {
				r.devices[place.Node][i] = true
			} else {
				delete(r.devices[place.Node], i)
			}
		}
	}
}

// waive records that a gang's cores and memory, which the plan has taken, need not be free now: the trial that takes
// them waits for them or already holds them.
func (r *pendingRelease) waive(g cluster.Gang, d cluster.Demand) { r.addNeeds(g, d, -1) }

// unwaive undoes waive.
func (r *pendingRelease) unwaive(g cluster.Gang, d cluster.Demand) { r.addNeeds(g, d, 1) }

func (r *pendingRelease) addNeeds(g cluster.Gang, d cluster.Demand, times int64) {
	if d.Quota > 0 {
		r.countQuota(g, d.Quota, int(times))
	}
	if d.CPUs == 0 && d.Memory == 0 {
		return
	}
	if r.needs == nil {
		r.needs = map[int]need{}
	}
	cpus := int64(math.Round(d.CPUs * millionths))
	for _, place := range g {
		n := r.needs[place.Node]
		r.needs[place.Node] = need{n.cpus + times*cpus, n.memory + times*d.Memory}
	}
}

func (r *pendingRelease) countQuota(g cluster.Gang, quota, times int) {
	if r.quota == nil {
		r.quota = map[int][]int{}
	}
	sum := r.quota[quota]
	for k, n := range r.free.CountTypes(g, nil) {
		if len(sum) <= k {
			sum = append(sum, 0)
		}
		sum[k] += times * n
	}
	r.quota[quota] = sum
}

// isPending reports whether a device still has to be released.
func (r *pendingRelease) isPending(node, device int) bool { return r.devices[node][device] }

// isAnyPending reports whether any device of a gang still has to be released.
func (r *pendingRelease) isAnyPending(g cluster.Gang) bool {
	for _, place := range g {
		for _, d := range place.Devices {
			if r.devices[place.Node][d] {
				return true
			}
		}
	}
	return false
}

// blocks reports whether a gang just taken from the plan's free capacity is not available yet, because a device, cores
// or memory on one of its nodes, or room in its quota still has to be released.
func (r *pendingRelease) blocks(g cluster.Gang, d cluster.Demand) bool {
	if r.isAnyPending(g) || d.Quota > 0 && !r.free.HasRoom(d, r.quota[d.Quota]) {
		return true
	}
	for _, place := range g {
		n := r.needs[place.Node]
		rest := cluster.Demand{CPUs: float64(max(0, n.cpus)) / millionths, Memory: max(0, n.memory)}
		if (rest.CPUs > 0 || rest.Memory > 0) && !r.free.Fits(cluster.Gang{{Node: place.Node}}, rest) {
			return true
		}
	}
	return false
}
