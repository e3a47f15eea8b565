// Package cluster knows nodes and their devices: what is free, what a trial could use, and where it is best placed.
// It is pure: policies plan on a Capacity, which can be rolled back, and nothing here touches the real machines.
package cluster

import (
	"fmt"
	"slices"
	"strings"
)

// Holders of a device other than the number of a job.
const (
	// Free: nobody holds the device.
	Free = -1
	// Busy: something holds it that a policy cannot move, such as a fork that is already ending.
	Busy = -2
)

// Node is a machine that is up.
type Node struct {
	Name    string
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
	// Speed relative to others of its type; 1 is full.
	Speed float64
	// Holder is the number of the job that holds it, Free or Busy.
	Holder int
}

// Link is a link between two devices of a node; the higher its rank the faster.
type Link struct {
	A, B int
	Rank int
}

// Demand is what one job needs.
type Demand struct {
	// Min and Max devices, all of one type.
	Min, Max int
	// Types it may run on, any if empty, and types it must not run on.
	Types, Exclude []string
	// CPUs in cores and Memory in bytes, 0 for no demand.
	CPUs   float64
	Memory int64
	// NeedsTrust: only trusted nodes will do.
	NeedsTrust bool
}

// Placement is where a job would go.
type Placement struct {
	Node    string
	Type    string
	Devices []int
}

// Accepts says whether the demand allows a device type.
func (d Demand) Accepts(deviceType string) bool {
	if slices.Contains(d.Exclude, deviceType) {
		return false
	}
	return len(d.Types) == 0 || slices.Contains(d.Types, deviceType)
}

// Impossible says why no node could ever run a job of this demand, were the cluster empty; "" if one could.
func Impossible(nodes []Node, d Demand) string {
	if len(nodes) == 0 {
		return "no worker is connected"
	}
	best, refusals := 0, map[string]bool{}
	for _, n := range nodes {
		most := 0
		for _, count := range n.accepted(d) {
			most = max(most, count)
		}
		best = max(best, most)
		switch {
		case most < d.Min:
		case d.NeedsTrust && !n.Trusted:
			refusals["functions run only on workers that hold this server's join token"] = true
		case n.CPUs > 0 && d.CPUs > n.CPUs:
			refusals[fmt.Sprintf("no fitting node has %g CPU cores", d.CPUs)] = true
		case n.Memory > 0 && d.Memory > n.Memory:
			refusals[fmt.Sprintf("no fitting node has %.1f GiB of memory", float64(d.Memory)/(1<<30))] = true
		case n.Draining:
			refusals["every fitting node is draining"] = true
		default:
			return ""
		}
	}
	if len(refusals) == 0 {
		return fmt.Sprintf("no node has %d %s; the most is %d", d.Min, d.describe(), best)
	}
	reasons := make([]string, 0, len(refusals))
	for reason := range refusals {
		reasons = append(reasons, reason)
	}
	slices.Sort(reasons)
	return strings.Join(reasons, "; ")
}

// accepted counts a node's devices by each type that the demand allows.
func (n Node) accepted(d Demand) map[string]int {
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
