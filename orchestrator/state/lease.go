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

// shares reports whether a sweep competes for devices. Clients run the trials of an external sweep.
func shares(s *Sweep) bool { return s.Spec.GetExternal() == nil }

// shares adds a sweep to those that compete for devices, or removes it.
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
	// tenants holds the weights of each tenant's competing sweeps, or is nil.
	tenants *immutable.Map[string, tenantWeight]
}

// tenantWeight holds the number of a tenant's competing sweeps, and the sum of their weights in millionths. Sums of
// integers do not depend on the order of the sweeps.
type tenantWeight struct{ sweeps, millionths int64 }

// heaviest is the maximum weight that is counted.
const heaviest = 1e9

// weigh adds a sweep's weight to its tenant's, or removes it.
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

// weight returns the weight of a sweep relative to others. The default is 1.
func (s *Sweep) weight() float64 {
	if w := s.Spec.GetWeight(); w > 0 {
		return w
	}
	return 1
}

// MeanWeight returns the mean weight of a tenant's sweeps that compete for devices, or 1 without such sweeps. The
// weight of a sweep is relative to this mean.
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

// AppSeconds returns the time integral, in seconds, of the number of sweeps that competed for devices, up to a time.
// The difference over a span divided by the span is Themis's N_avg.
func (s *sharing) AppSeconds(now time.Time) float64 {
	if s.appsChanged.IsZero() || now.Before(s.appsChanged) {
		return s.appSeconds
	}
	return s.appSeconds + float64(s.competing)*now.Sub(s.appsChanged).Seconds()
}
