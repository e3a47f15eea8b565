// Package accounts says how much of its long-term share of device-time each tenant has had (Ye et al., "ASTRAEA: A Fair Deep
// Learning Scheduler for Multi-Tenant GPU Clusters", TPDS 2022, equations 6, 8, 12 and 16).
package accounts

import (
	"iter"
	"math"
)

// Account is a tenant's.
type Account struct {
	Weight float64
	// Held devices, Demand of its active jobs, their Weights, and how many are Active, since the account was last brought up to date.
	Held, Demand, Weights float64
	Active                int
	// Quota is its part of the cluster in devices.
	Quota float64
	// Had and Due are device-seconds: what it held, and what its fair share was worth.
	Had, Due float64
}

// Advance adds what passed since the account was last brought up to date. What is due for that is the quota (equation 16), or
// byDemand no more than was asked for (equation 8). In a horizon, in seconds, what lies back fades to a third; 0 for never.
func (a *Account) Advance(seconds float64, byDemand bool, horizon float64) {
	if horizon > 0 {
		keep := math.Exp(-seconds / horizon)
		a.Had *= keep
		a.Due *= keep
	}
	a.Had += a.Held * seconds
	due := a.Quota
	if byDemand {
		due = min(a.Demand, a.Quota)
	}
	a.Due += due * seconds
}

// Rho is what the tenant has had, so many device-seconds that it is about to have included, over what its share was worth. A
// second of its quota counts in that, so that it is finite at once.
func (a *Account) Rho(charged float64) float64 { return (a.Had + charged) / (a.Due + a.Quota) }

// After is Rho in so many seconds if the tenant holds so many devices until then.
func (a *Account) After(seconds, held float64) float64 {
	return (a.Had + held*seconds) / (a.Due + a.Quota*max(1, seconds))
}

// Quotas divides so many devices by weight.
func Quotas(devices int, all iter.Seq[*Account]) {
	weights := 0.0
	for a := range all {
		weights += a.Weight
	}
	for a := range all {
		a.Quota = float64(devices) * a.Weight / weights
	}
}
