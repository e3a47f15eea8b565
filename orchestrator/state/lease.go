package state

import (
	"cmp"
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Holder is the kind of process that trains under a lease.
type Holder uint8

const (
	// Workers train on the places of their lease.
	Workers Holder = iota
	// Client is a user's program that asked for a trial of an external sweep. Its lease has no places.
	Client
)

// Lead returns the oldest lease that the trial holds, or nil. If several forks train a trial, each has a lease and
// counts its own steps. The fork of the leading lease represents the trial: its reports are the trial's reports,
// which the tuner gets, and its step is the trial's step. Those of other forks are kept with their leases. When the
// leading lease ends, the next one leads.
func (t *Trial) Lead() *Lease {
	if len(t.Leases) == 0 {
		return nil
	}
	return t.Leases[0]
}

// Held returns the lease with an ID if the trial holds it, or nil.
func (t *Trial) Held(id uint64) *Lease {
	for _, l := range t.Leases {
		if l.ID == id {
			return l
		}
	}
	return nil
}

// PlaceOn returns the index of the lease's place on a node, or -1 if it has none or the place has ended.
func (l *Lease) PlaceOn(node string) int {
	return slices.IndexFunc(l.Places, func(p Place) bool { return p.Node == node && !p.Ended })
}

// Ranks returns the first rank and the number of processes on a place of the lease. A gang has one process for each
// device, or one on each place.
func (l *Lease) Ranks(perDevice bool, place int) (first, count int32) {
	for _, p := range l.Places[:place+1] {
		first += count
		if count = 1; perDevice {
			count = int32(len(p.Devices))
		}
	}
	return first, count
}

// Rank0 returns the node of rank 0, or "" for a client's lease.
func (l *Lease) Rank0() string {
	if len(l.Places) == 0 {
		return ""
	}
	return l.Places[0].Node
}

// Over reports whether every place of the lease has ended.
func (l *Lease) Over() bool {
	return !slices.ContainsFunc(l.Places, func(p Place) bool { return !p.Ended })
}

// Gang reports whether the lease spans several nodes.
func (l *Lease) Gang() bool { return len(l.Places) > 1 }

// Size returns the number of devices on all places.
func (l *Lease) Size() int {
	n := 0
	for _, p := range l.Places {
		n += len(p.Devices)
	}
	return n
}

// Type returns the type of the devices, or "" if there are several.
func (l *Lease) Type() string { return l.kind }

// Locality returns how close together the devices are.
func (l *Lease) Locality() cluster.Locality { return l.spread }

// shape returns a node as policies see it.
func shape(info *outbidv1.NodeInfo) cluster.Node {
	node := cluster.Node{
		Name: info.GetName(), CPUs: info.GetCpus(), Memory: info.GetMemoryBytes(), Trusted: info.GetTrusted(),
		Rack: info.GetLabels()["rack"],
	}
	for i, d := range info.GetDevices() {
		node.Devices = append(node.Devices, cluster.Device{
			Index: i, Type: d.GetType(), Speed: cmp.Or(d.GetSpeed(), 1), Slot: int(d.GetNuma()),
			Memory: d.GetMemoryBytes(), PCIe: int(d.GetPcieGeneration()),
		})
	}
	for _, l := range info.GetLinks() {
		node.Links = append(node.Links, cluster.Link{A: int(l.GetA()), B: int(l.GetB()), Rank: linkRank(l)})
	}
	return node
}

// linkRank orders links by speed: any NVLink above any PCIe path, and PCIe paths by how near they meet.
func linkRank(l *outbidv1.DeviceLink) int {
	switch l.GetKind() {
	case "nvlink":
		return 100 + int(l.GetLanes())
	case "pix":
		return 5
	case "pxb":
		return 4
	case "phb":
		return 3
	case "node":
		return 2
	default:
		return 1
	}
}
