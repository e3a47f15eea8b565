// Package pricing is the prices of devices by which Hadar's and OASiS's primal-dual schedulers, and the house policy's admission, decide: low while a pool of
// devices is empty, so that any job may have them, and exponentially higher as it fills, so that only jobs of a high
// utility may have the last.
package pricing

import "math"

// Range is what a device may cost: Low in a pool that is empty, High in one that is full. Both are above 0, in units of
// utility for one device in one round, and High is at least Low.
type Range struct {
	Low, High float64
}

// At is the price of a device in a pool of which so many are used: Low * (High/Low)^(used/capacity) (Hadar, eq. 5).
func (r Range) At(used, capacity int) float64 { return r.Of(float64(used), float64(capacity)) }

// Of is the same of what is not counted in whole devices.
func (r Range) Of(used, capacity float64) float64 {
	if capacity <= 0 || used >= capacity {
		return r.High
	}
	return r.Low * math.Pow(r.High/r.Low, used/capacity)
}

// Competitive is alpha: the schedule is 2 alpha-competitive (Hadar, theorem 2).
func (r Range) Competitive() float64 { return max(1, math.Log(r.High/r.Low)) }
