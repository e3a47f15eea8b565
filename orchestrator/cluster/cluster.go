// Package cluster knows nodes and their devices: what is free, what a trial could use, where it is best placed, and how
// fast it trains there, as measured or as guessed from the kind of device. It is pure: policies plan on a Capacity, which
// can be rolled back, and nothing here touches the real machines.
package cluster

import (
	"fmt"
	"slices"
	"strings"
)

// Node is a machine that is up.
type Node struct {
	Name string
	// Rack that the node stands in; "" if nobody said, which is a rack of its own for all that did not say.
	Rack    string
	Devices []Device
	// CPUs in cores and Memory in bytes.
	CPUs   float64
	Memory int64
	// Trusted nodes may run functions sent by users.
	Trusted bool
	// Draining nodes take nothing new.
	Draining bool
	// Links are the fast links between devices, by index.
	Links []Link
}

// Device is one GPU, or one CPU slot.
type Device struct {
	Index int
	Type  string
	// Slot is the group of devices behind one fast link that it belongs to.
	Slot int
	// Speed relative to others of its type; 1 is full.
	Speed float64
	// Memory in bytes, and the generation of PCIe, as the driver told; 0 if unknown.
	Memory int64
	PCIe   int
}

// Link is a link between two devices of a node; the higher its rank the faster.
type Link struct {
	A, B int
	Rank int
}

// Demand is what one job needs.
type Demand struct {
	// Min and Max devices, all of one type unless Mixed.
	Min, Max int
	// Types it may run on, any if empty, and types it must not run on.
	Types, Exclude []string
	// CPUs in cores and Memory in bytes on each node it runs on, 0 for no demand.
	CPUs   float64
	Memory int64
	// NeedsTrust: only trusted nodes will do.
	NeedsTrust bool
	// MultiNode: its gang may run over several nodes.
	MultiNode bool
	// Mixed: its gang may hold devices of several types.
	Mixed bool
	// Avoid names nodes that it must not run on.
	Avoid []string
	// Quota bounds the job with others of its owner: its number in the capacity, from 1 on; 0 for none.
	Quota int
}

// Place is the part of a gang on one node.
type Place struct {
	// Node is its index among the nodes of the view.
	Node int
	// Devices by index, ascending.
	Devices []int
}

// Gang is where a job runs: whole or not at all. Rank 0 is in the first place.
type Gang []Place

// Size is the number of devices.
func (g Gang) Size() int {
	n := 0
	for i := range g {
		n += len(g[i].Devices)
	}
	return n
}

// Equal says whether two gangs are the same places in the same order.
func (g Gang) Equal(o Gang) bool {
	return slices.EqualFunc(g, o, func(a, b Place) bool { return a.Node == b.Node && slices.Equal(a.Devices, b.Devices) })
}

// Accepts says whether the demand allows a device type.
func (d Demand) Accepts(deviceType string) bool {
	if slices.Contains(d.Exclude, deviceType) {
		return false
	}
	return len(d.Types) == 0 || slices.Contains(d.Types, deviceType)
}

// Plain says whether nothing but the number of devices matters to the demand.
func (d Demand) Plain() bool {
	return d.Quota == 0 && len(d.Types) == 0 && len(d.Exclude) == 0 && d.CPUs == 0 && d.Memory == 0 && !d.NeedsTrust
}

// Impossible says why a job of this demand could never run, were the cluster empty; "" if it could.
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

// refuses says what, beside devices, keeps a job of the demand off the node were it empty; "" for nothing.
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
