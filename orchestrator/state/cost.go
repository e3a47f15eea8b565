package state

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// tariff holds the newest prices of devices in the ledger, or nil before the first. Readers share the message, which is
// replaced and never changed.
type tariff struct{ devicePrices *outbidv1.DevicePrices }

// DevicePrices returns the prices of devices, or nil if the ledger has none. They must not be changed.
func (t tariff) DevicePrices() *outbidv1.DevicePrices { return t.devicePrices }

// pricesChanged records new prices of devices.
func pricesChanged(f *foldContext, e *outbidv1.DevicePricesChanged) error {
	f.st.devicePrices = e.GetPrices()
	return nil
}

// HourPrice returns the price of a device of a type for an hour. A type without a price costs as much as the dearest
// type, so that no sweep exceeds its limit there.
func HourPrice(p *outbidv1.DevicePrices, kind string) float64 {
	hour, known := p.GetDeviceHour()[kind]
	if !known {
		hour, known = p.GetDeviceHour()["*"]
	}
	if !known {
		return DearestHour(p)
	}
	return hour
}

// DearestHour returns the highest price of a device for an hour, or 0 without prices.
func DearestHour(p *outbidv1.DevicePrices) float64 {
	most := 0.0
	for _, hour := range p.GetDeviceHour() {
		most = max(most, hour)
	}
	return most
}

// Unpriced returns those of the types of devices that have no price, sorted.
func Unpriced(p *outbidv1.DevicePrices, kinds []string) []string {
	var none []string
	_, others := p.GetDeviceHour()["*"]
	for _, kind := range kinds {
		if _, known := p.GetDeviceHour()[kind]; !known && !others && !slices.Contains(none, kind) {
			none = append(none, kind)
		}
	}
	slices.Sort(none)
	return none
}

// CheckCostLimit returns an error if a spec limits its cost and the prices cannot tell it.
func CheckCostLimit(spec *outbidv1.SweepSpec, p *outbidv1.DevicePrices) error {
	if spec.GetLimits().GetCost() == 0 || DearestHour(p) > 0 {
		return nil
	}
	return fmt.Errorf("%w: limits.cost: needs prices of devices, and this server has none; start it with --prices FILE, or use "+
		"limits.device_hours", ErrInvalid)
}

// Amount formats an amount of money with the currency of the prices.
func Amount(cost float64, p *outbidv1.DevicePrices) string {
	return strings.TrimSpace(fmt.Sprintf("%g %s", cost, p.GetCurrency()))
}

// price sets the price of a lease's devices, by type, for an hour, at the current prices.
func (t tariff) price(l *Lease, devices map[string]int) {
	if t.devicePrices == nil {
		return
	}
	for _, kind := range slices.Sorted(maps.Keys(devices)) { // sorted, because sums of prices depend on the order
		l.hourPrice += HourPrice(t.devicePrices, kind) * float64(devices[kind])
	}
}

// costAt returns the cost of the lease up to a time, at the prices of its grant.
func (l *Lease) costAt(now time.Time) float64 {
	return max(0, now.Sub(l.Granted).Seconds()) * l.hourPrice / 3600
}

// CostAt returns the cost of the sweep's leases up to a time.
func CostAt(s *Sweep, now time.Time) float64 {
	return costAt(s, now, func(n int32) *Trial { return s.Trials[n] })
}

// costAt includes running leases.
func costAt(s *Sweep, at time.Time, trial func(int32) *Trial) float64 {
	total := s.Cost
	for _, n := range s.Running {
		for _, l := range trial(n).Leases {
			total += l.costAt(at)
		}
	}
	return total
}

// AddCost adds the cost of a sweep to its view, if the ledger has prices.
func (p *Published) AddCost(v *outbidv1.Sweep, s *PublishedSweep) {
	if p.devicePrices != nil {
		v.Cost, v.Currency = new(costAt(&s.sweep, p.Time, s.At)), p.devicePrices.GetCurrency()
	}
}
