// Package measure turns what happened in a run into the figures that papers report. A Meter takes in facts in the order
// of time, each in seconds from the start of the run, and keeps sums, not history: a fact costs the same however many
// came before. It reads no clock and knows neither control nor policies, so anything that can tell what happened can be
// measured alike: a simulation, a replay, a live ledger.
//
// The definitions (docs/reference/figures.md says the same in prose):
//
//   - A job's completion time (JCT) is from its arrival to its end. It queues while it wants devices and holds none. Its
//     slowdown is JCT over the time that the work it did takes alone and undisturbed.
//   - rho of an app (Themis, section 3 and equations 1 and 2): T_sh / T_id. T_sh is from its submission to its end, T_id =
//     T_cluster * N_avg. T_cluster is the app's work in device-seconds over min(devices of the cluster that it accepts, the
//     demand of all its jobs). N_avg is the time-weighted mean number of apps over its life. A job without an app is an
//     app of one job; its T_cluster is its isolated duration, if the cluster is large enough.
//   - The share slowdown of an app: T_sh over the least time that it takes alone on a real 1/N_avg of the cluster, where
//     its longest job and the order of its phases count: what equation 2 divides evenly, no cluster does.
//   - The bound of rho: the mean of rho, weighted by T_cluster, is at most the time in which there was an app over the sum of
//     T_cluster, whatever the schedule. Where that is far below 1 the sharing incentive holds by the metric alone.
//   - The slowdown against the app alone: T_sh over what the same app took when it was simulated alone on its share. Whoever
//     can simulate does that and hands it in (Against).
//   - The static rho (Shockwave's simulator) is a job's slowdown over max(1, jobs of the run / devices).
//   - rho of a tenant (ASTRAEA, equation 12) over an interval: the integral of the devices that it holds over the integral
//     of min(what its jobs demand, its quota); its quota is the cluster times its weight over all tenants' weights.
//   - rho of a job (ASTRAEA, equation 15): the integral of the devices that it holds over the integral of min(its demand,
//     the tenant's share times its weight over the weights of the tenant's active jobs). Below 0.95 it is sharing loss.
//   - Utilisation is device time in which jobs train over all device time from the first arrival to the last end. Time
//     in which a job restarts from its checkpoint is held, and not used.
//   - The placement score is 1/S (Themis, section 5.1), the mean over held device time.
//   - The quantile q of n sorted values is the one at index floor(q n), as in the comparison with Gavel's simulator.
package measure
