package state

import (
	"math"
	"time"

	"github.com/benbjohnson/immutable"
)

// shares reports whether a sweep competes for devices. Clients run the trials of an external sweep.
func shares(s *Sweep) bool { return s.Spec.GetExternal() == nil }

// shares adds a sweep to those that compete for devices, or removes it.
func (x *sharing) shares(at time.Time, s *Sweep, by int) {
	if !shares(s) {
		return
	}
	x.appSeconds = x.AppSeconds(at)
	x.appsChanged = at
	x.competing += by
	x.weigh(s, int64(by))
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
func (x *sharing) weigh(s *Sweep, by int64) {
	if !shares(s) {
		return
	}
	if x.tenants == nil {
		x.tenants = immutable.NewMap[string, tenantWeight](nil)
	}
	tenant := s.Spec.GetTenant()
	sum, _ := x.tenants.Get(tenant)
	sum.sweeps += by
	sum.millionths += by * max(1, int64(math.Round(1e6*min(heaviest, s.weight()))))
	if sum.sweeps > 0 {
		x.tenants = x.tenants.Set(tenant, sum)
	} else {
		x.tenants = x.tenants.Delete(tenant)
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
func (x *sharing) MeanWeight(tenant string) float64 {
	if x.tenants == nil {
		return 1
	}
	sum, ok := x.tenants.Get(tenant)
	if !ok {
		return 1
	}
	return float64(sum.millionths) / 1e6 / float64(sum.sweeps)
}

// AppSeconds returns the time integral, in seconds, of the number of sweeps that competed for devices, up to a time.
// The difference over a span divided by the span is Themis's N_avg.
func (x *sharing) AppSeconds(now time.Time) float64 {
	if x.appsChanged.IsZero() || now.Before(x.appsChanged) {
		return x.appSeconds
	}
	return x.appSeconds + float64(x.competing)*now.Sub(x.appsChanged).Seconds()
}
