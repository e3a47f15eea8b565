// Package pricing computes the prices of devices in the primal-dual schedulers Hadar and OASiS, and in the admission of
// policy outbid. A price is low while a pool of devices is empty, so that any job may use it, and rises exponentially
// as the pool fills, so that only jobs of high utility get the last devices.
package pricing

import "math"

// Range is the range of a device's price: Low in an empty pool, High in a full one. Both are above 0, in units of
// utility for one device in one round, and High is at least Low.
type Range struct {
	Low, High float64
}

// At returns the price of a device in a pool with used devices: Low * (High/Low)^(used/capacity) (Hadar, eq. 5).
func (r Range) At(used, capacity int) float64 { return r.Of(float64(used), float64(capacity)) }

// Of is At for amounts that are not whole devices.
func (r Range) Of(used, capacity float64) float64 {
	if capacity <= 0 || used >= capacity {
		return r.High
	}
	return r.Low * math.Pow(r.High/r.Low, used/capacity)
}

// Competitive returns alpha: the schedule is 2 alpha-competitive (Hadar, theorem 2).
func (r Range) Competitive() float64 { return max(1, math.Log(r.High/r.Low)) }
