// Package population forecasts learning curves by those of the same sweep: how curves have gone on from where one is now, and
// how configurations like it have ended.
//
// Curves are known at looks, steps in rising order. Costs are warped to a scale on which the better half of them lies about
// between -1 and 0 (Warp). From one look to the next a cost changes by a linear function of where it stands and how it
// moved, and by chance: a Bayesian linear regression for each pair of looks, whose prior is what the pair before it taught
// (Chain). Selection does no harm, as each regression is over all trials that got to its second look, given the first. So the
// regressions learn whether early values mean much, as on easy tasks, or little.
//
// The last cost is also a function of the configuration: a Gaussian process, for which each curve is a measurement of its own
// end, as noisy as the chain says (Process). This is the factorisation of Swersky, Snoek and Adams, "Freeze-Thaw Bayesian
// Optimization" (2014), with a learned chain for their kernel of exponentials. Where configurations tell nothing, the likelihood gives
// the process no weight.
//
// The package is pure, and every call takes a bounded time.
package population
