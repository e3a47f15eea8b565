// Package cluster models nodes and their devices: which devices are free, which of them a trial could use, the best
// place for a trial, and its training speed there, measured or estimated from the device type. It does no I/O: policies
// plan on a Capacity, which can be rolled back.
package cluster

import (
	"fmt"
	"slices"
	"strings"
)

// Node is a machine that is up.
type Node struct {
	Name string
	// Rack is the node's rack. All nodes with an empty Rack count as one rack.
	Rack    string
	Devices []Device
	// CPUs is in cores, Memory in bytes.
	CPUs   float64
	Memory int64
	// Trusted nodes may run functions sent by users.
	Trusted bool
	// Draining nodes accept no new jobs.
	Draining bool
	// Links are the fast links between devices, by index.
	Links []Link
}

// Device is a GPU or a CPU slot.
type Device struct {
	Index int
	Type  string
	// Slot is the group of devices behind a common fast link.
	Slot int
	// Speed is relative to other devices of the type; 1 is full speed.
	Speed float64
	// Memory in bytes and the PCIe generation are as reported by the driver, or 0 if unknown.
	Memory int64
	PCIe   int
}

// Link is a link between two devices of a node; a higher rank is faster.
type Link struct {
	A, B int
	Rank int
}

// Demand is what one job needs.
type Demand struct {
	// Min and Max are numbers of devices, all of one type unless Mixed.
	Min, Max int
	// Types are the allowed device types, or any if empty. Exclude are forbidden types.
	Types, Exclude []string
	// CPUs in cores and Memory in bytes are needed on each node; 0 for no requirement.
	CPUs   float64
	Memory int64
	// NeedsTrust is set if the job must run on trusted nodes.
	NeedsTrust bool
	// MultiNode is set if its gang may use several nodes.
	MultiNode bool
	// Mixed is set if its gang may have devices of several types.
	Mixed bool
	// Avoid names nodes that it must not run on.
	Avoid []string
	// Quota is the number, from 1, of the quota in the capacity that limits the job together with others, or 0 for
	// none.
	Quota int
}

// Place is the part of a gang on one node.
type Place struct {
	// Node is an index in the capacity's nodes.
	Node int
	// Devices are indices, ascending.
	Devices []int
}

// Gang is the set of devices of a job, which are allocated together or not at all. Rank 0 runs in the first place.
type Gang []Place

// Size returns the number of devices.
func (g Gang) Size() int {
	n := 0
	for i := range g {
		n += len(g[i].Devices)
	}
	return n
}

// Equal reports whether two gangs are the same places in the same order.
func (g Gang) Equal(o Gang) bool {
	return slices.EqualFunc(g, o, func(a, b Place) bool { return a.Node == b.Node && slices.Equal(a.Devices, b.Devices) })
}

// Accepts reports whether the demand allows a device type.
func (d Demand) Accepts(deviceType string) bool {
	if slices.Contains(d.Exclude, deviceType) {
		return false
	}
	return len(d.Types) == 0 || slices.Contains(d.Types, deviceType)
}

// Plain reports whether the demand depends on nothing except the number of devices.
func (d Demand) Plain() bool {
	return d.Quota == 0 && len(d.Types) == 0 && len(d.Exclude) == 0 && d.CPUs == 0 && d.Memory == 0 && !d.NeedsTrust
}

// Impossible explains why a job of this demand could not run even on an empty cluster, or returns "" if it could.
func Impossible(nodes []Node, d Demand) string {
	if len(nodes) == 0 {
		return "no worker is connected"
	}
	best, refusals := 0, map[string]bool{}
	across := map[string]int{}
	for i := range nodes {
		n := &nodes[i]
		most, why := n.accepted(d), n.refuses(d)
		if why == "" {
			for kind, count := range most {
				across[kind] += count
			}
		}
		for kind, count := range most {
			if d.MultiNode && why == "" {
				count = across[kind]
			}
			best = max(best, count)
			if count >= d.Min && why == "" {
				return ""
			}
			if count >= d.Min {
				refusals[why] = true
			}
		}
	}
	if d.Mixed && d.MultiNode {
		all := 0
		for _, count := range across {
			all += count
		}
		if best = max(best, all); all >= d.Min {
			return ""
		}
	}
	if len(refusals) == 0 {
		where := "no node has"
		if d.MultiNode {
			where = "the cluster does not have"
		}
		return fmt.Sprintf("%s %d %s; the most is %d", where, d.Min, d.describe(), best)
	}
	reasons := make([]string, 0, len(refusals))
	for reason := range refusals {
		reasons = append(reasons, reason)
	}
	slices.Sort(reasons)
	return strings.Join(reasons, "; ")
}

// refuses explains what, other than devices, prevents a job of the demand on the node even if it is empty, or returns
// "".
func (n *Node) refuses(d Demand) string {
	switch {
	case d.NeedsTrust && !n.Trusted:
		return "functions run only on workers that have joined this server"
	case n.CPUs > 0 && d.CPUs > n.CPUs:
		return fmt.Sprintf("no fitting node has %g CPU cores", d.CPUs)
	case n.Memory > 0 && d.Memory > n.Memory:
		return fmt.Sprintf("no fitting node has %.1f GiB of memory", float64(d.Memory)/(1<<30))
	case n.Draining:
		return "every fitting node is draining"
	default:
		return ""
	}
}

// accepted counts a node's devices by each type that the demand allows.
func (n *Node) accepted(d Demand) map[string]int {
	counts := map[string]int{}
	for _, dev := range n.Devices {
		if d.Accepts(dev.Type) {
			counts[dev.Type]++
		}
	}
	return counts
}

func (d Demand) describe() string {
	text := "devices"
	if d.Min == 1 {
		text = "device"
	}
	if len(d.Types) > 0 {
		text += " of type " + strings.Join(d.Types, " or ")
	}
	if len(d.Exclude) > 0 {
		text += " other than " + strings.Join(d.Exclude, ", ")
	}
	return text
}
