// Package accounts computes how much of its long-term share of device time each tenant has had (Ye et al., "ASTRAEA: A
// Fair Deep Learning Scheduler for Multi-Tenant GPU Clusters", TPDS 2022, equations 6, 8, 12 and 16).
package accounts

import (
	"iter"
	"math"
)

// Account is a tenant's account.
type Account struct {
	Weight float64
	// Since the account was last advanced: the devices held, the Demand of active jobs, their total Weights, and the
	// number Active.
	Held, Demand, Weights float64
	Active                int
	// Quota is its part of the cluster in devices.
	Quota float64
	// Had and Due are device-seconds: held, and due as the fair share.
	Had, Due float64
}

// Advance adds the time since the account was last advanced. Due grows by the quota (equation 16) or, with byDemand, by
// at most the demand (equation 8). Past amounts decay by a factor of e per horizon, in seconds; 0 means no decay.
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

// Rho returns the device-seconds that the tenant has had, plus those charged for the future, over its share's. One
// second of its quota is added to the share so that rho is always finite.
func (a *Account) Rho(charged float64) float64 { return (a.Had + charged) / (a.Due + a.Quota) }

// After returns the Rho that the tenant will have if it holds a number of devices for the given seconds.
func (a *Account) After(seconds, held float64) float64 {
	return (a.Had + held*seconds) / (a.Due + a.Quota*max(1, seconds))
}

// Quotas divides devices by weight.
func Quotas(devices int, all iter.Seq[*Account]) {
	weights := 0.0
	for a := range all {
		weights += a.Weight
	}
	for a := range all {
		a.Quota = float64(devices) * a.Weight / weights
	}
}
