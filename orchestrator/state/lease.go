package state

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/benbjohnson/immutable"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Holder is who trains under a lease.
type Holder uint8

const (
	// Workers train on the places of their lease.
	Workers Holder = iota
	// Client is a program of the user's that asked for a trial of an external sweep. Its lease has no places.
	Client
)

// Lead is the oldest lease that the trial holds; nil if it holds none. Where a trial is trained by several forks, each under
// a lease of its own, each counts its own steps, and the fork of the lead speaks for the trial: its reports are the trial's,
// which the tuner hears of, and its step is the trial's. What the others do is kept with their leases. When the lead ends the
// next one leads. This is the seam for those who want the forks' steps to add up.
func (t *Trial) Lead() *Lease {
	if len(t.Leases) == 0 {
		return nil
	}
	return t.Leases[0]
}

// Held is the lease of an id, if the trial holds it; nil otherwise.
func (t *Trial) Held(id uint64) *Lease {
	for _, l := range t.Leases {
		if l.ID == id {
			return l
		}
	}
	return nil
}

// PlaceOn is the index of the lease's place on a node; -1 if it has none, or that has ended.
func (l *Lease) PlaceOn(node string) int {
	return slices.IndexFunc(l.Places, func(p Place) bool { return p.Node == node && !p.Ended })
}

// Rank0 is the node that rank 0 is on; "" for a client's lease.
func (l *Lease) Rank0() string {
	if len(l.Places) == 0 {
		return ""
	}
	return l.Places[0].Node
}

// Over says whether every place of the lease has ended.
func (l *Lease) Over() bool {
	return !slices.ContainsFunc(l.Places, func(p Place) bool { return !p.Ended })
}

// Gang says whether the lease is over several nodes.
func (l *Lease) Gang() bool { return len(l.Places) > 1 }

// Size is the number of its devices on all places.
func (l *Lease) Size() int {
	n := 0
	for _, p := range l.Places {
		n += len(p.Devices)
	}
	return n
}

// Type is the type of its devices; "" if they are of several.
func (l *Lease) Type() string { return l.kind }

// Locality is how close together its devices are.
func (l *Lease) Locality() cluster.Locality { return l.spread }

// shape is a node as policies see it.
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
	st.competing += by
	st.weigh(s, int64(by))
}

// sharing counts the sweeps that compete for devices. appSeconds is the time integral of competing up to appsChanged.
type sharing struct {
	appSeconds  float64
	appsChanged time.Time
	competing   int
	// tenants are what those of each tenant weigh; nil for no tenant.
	tenants *immutable.Map[string, tenantWeight]
}

// tenantWeight is how many sweeps of a tenant compete, and the sum of their weights in millionths: sums of whole numbers are
// the same in whatever order sweeps come and go.
type tenantWeight struct{ sweeps, millionths int64 }

// heaviest is the largest weight that is counted as such.
const heaviest = 1e9

// weigh counts a sweep in or out of its tenant's weight.
func (st *State) weigh(s *Sweep, by int64) {
	if !shares(s) {
		return
	}
	if st.tenants == nil {
		st.tenants = immutable.NewMap[string, tenantWeight](nil)
	}
	tenant := s.Spec.GetTenant()
	sum, _ := st.tenants.Get(tenant)
	sum.sweeps += by
	sum.millionths += by * max(1, int64(math.Round(1e6*min(heaviest, s.weight()))))
	if sum.sweeps > 0 {
		st.tenants = st.tenants.Set(tenant, sum)
	} else {
		st.tenants = st.tenants.Delete(tenant)
	}
}

// weight of a sweep relative to others; 1 if its spec says none.
func (s *Sweep) weight() float64 {
	if w := s.Spec.GetWeight(); w > 0 {
		return w
	}
	return 1
}

// MeanWeight is the mean weight of a tenant's sweeps that compete for devices: what one of them weighs is a part of what the
// tenant has. 1 if there are none.
func (s *sharing) MeanWeight(tenant string) float64 {
	if s.tenants == nil {
		return 1
	}
	sum, ok := s.tenants.Get(tenant)
	if !ok {
		return 1
	}
	return float64(sum.millionths) / 1e6 / float64(sum.sweeps)
}

// AppSeconds is the time integral of the number of sweeps that competed for devices, in seconds, up to a time: the mean
// over a span, Themis's N_avg, is the difference over it.
func (s *sharing) AppSeconds(now time.Time) float64 {
	if s.appsChanged.IsZero() || now.Before(s.appsChanged) {
		return s.appSeconds
	}
	return s.appSeconds + float64(s.competing)*now.Sub(s.appsChanged).Seconds()
}
