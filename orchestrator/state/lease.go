package state

import (
	"cmp"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Place is the part of a lease on one node.
type Place struct {
	Node    string
	Devices []int32
	// Ended: its processes are gone and its devices free.
	Ended bool
}

// Places are the parts of the lease; rank 0 is in the first. A client's lease has none.
func (l *Lease) Places() []Place {
	if l.Node == "" {
		return nil
	}
	places := make([]Place, 0, 1+len(l.More))
	places = append(places, Place{l.Node, l.Devices, l.Ended})
	for _, p := range l.More {
		places = append(places, Place{p.GetNode(), p.GetDevices(), p.GetEnded()})
	}
	return places
}

// PlaceOn is the index of the lease's place on a node; -1 if it has none, or that has ended.
func (l *Lease) PlaceOn(node string) int {
	if l.Node == node && node != "" {
		if l.Ended {
			return -1
		}
		return 0
	}
	for i, p := range l.More {
		if p.GetNode() == node && !p.GetEnded() {
			return i + 1
		}
	}
	return -1
}

// Over says whether every place of the lease has ended.
func (l *Lease) Over() bool {
	for _, p := range l.More {
		if !p.GetEnded() {
			return false
		}
	}
	return l.Ended
}

// Size is the number of devices of the whole gang.
func (l *Lease) Size() int {
	n := len(l.Devices)
	for _, p := range l.More {
		n += len(p.GetDevices())
	}
	return n
}

// Type is the type of its devices; "" if they are of several.
func (l *Lease) Type() string { return l.kind }

// Spread is how far apart its devices are.
func (l *Lease) Spread() cluster.Spread { return l.spread }

// shape is a node as policies see it.
func shape(info *outbidv1.NodeInfo) cluster.Node {
	node := cluster.Node{
		Name: info.GetName(), CPUs: info.GetCpus(), Memory: info.GetMemoryBytes(), Trusted: info.GetTrusted(),
		Rack: info.GetLabels()["rack"],
	}
	for i, d := range info.GetDevices() {
		node.Devices = append(node.Devices, cluster.Device{
			Index: i, Type: d.GetType(), Speed: cmp.Or(d.GetSpeed(), 1), Slot: int(d.GetNuma()),
		})
	}
	for _, l := range info.GetLinks() {
		node.Links = append(node.Links, cluster.Link{A: int(l.GetA()), B: int(l.GetB()), Rank: linkRank(l)})
	}
	return node
}

// linkRank orders links by speed: any NVLink before any PCIe path, and those by how close they meet.
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

// shares says whether a sweep competes for devices: clients run the trials of an external one.
func shares(s *Sweep) bool { return s.Spec.GetExternal() == nil }

// shares counts a sweep in or out of those that compete for devices.
func (st *State) shares(at time.Time, s *Sweep, by int) {
	if !shares(s) {
		return
	}
	st.appSeconds = st.AppSeconds(at)
	st.appsChanged = at
	st.sharing += by
}

// AppSeconds is the time integral of the number of sweeps that competed for devices, in seconds, up to a time: the mean
// over a span, Themis's N_avg, is the difference over it.
func (st *State) AppSeconds(now time.Time) float64 {
	if st.appsChanged.IsZero() || now.Before(st.appsChanged) {
		return st.appSeconds
	}
	return st.appSeconds + float64(st.sharing)*now.Sub(st.appsChanged).Seconds()
}
