// Package measure computes the figures that papers report from the events of a run. A Meter takes facts in the order of
// time, each in seconds from the start of the run, and keeps sums, not history, so the cost of a fact does not depend
// on the number of facts. It reads no clock and does not depend on control or policies, so it can measure a simulation,
// a replay or a live ledger.
//
// The definitions (docs/reference/figures.md has the same in prose):
//
//   - A job's completion time (JCT) is from its arrival to its end. It queues while it wants devices and holds none. Its
//     slowdown is JCT over the time that the work it did takes alone and undisturbed.
//   - rho of an app (Themis, section 3 and equations 1 and 2): T_sh / T_id. T_sh is from its submission to its end,
//     T_id = T_cluster * N_avg. T_cluster is the app's work in device-seconds over min(devices of the cluster that it
//     accepts, the demand of the jobs that it may have at once). N_avg is the time-weighted mean number of apps over its
//     life. A job without an app is an app of one job; its T_cluster is its isolated duration, if the cluster is large
//     enough.
//   - The share slowdown of an app: T_sh over the least time that it takes alone on a real 1/N_avg of the cluster. This
//     accounts for its longest job and the order of its phases, which equation 2 ignores by dividing work evenly.
//   - The bound of rho: the mean of rho, weighted by T_cluster, is at most the time with at least one app over the sum of
//     T_cluster, whatever the schedule. If that is far below 1, every schedule meets the sharing incentive.
//   - The slowdown against the app alone: T_sh over the time that the same app took when it was simulated alone on its
//     share. The caller simulates that and passes it to Against.
//   - The static rho (Shockwave's simulator) is a job's slowdown over max(1, jobs of the run / devices).
//   - rho of a tenant (ASTRAEA, equation 12) over an interval: the integral of the devices that it holds over the integral
//     of min(its jobs' demand, its quota). Its quota is the cluster times its weight over all tenants' weights.
//   - rho of a job (ASTRAEA, equation 15): the integral of the devices that it holds over the integral of min(its demand,
//     the tenant's share times its weight over the weights of the tenant's active jobs). Below 0.95 it is sharing loss.
//   - Utilisation is device time in which jobs train over all device time from the first arrival to the last end. Time
//     in which a job restarts from its checkpoint is held, but not used.
//   - The placement score is 1/S (Themis, section 5.1), the mean over held device time.
//   - The quantile q of n sorted values is the one at index floor(q n), as in the comparison with Gavel's simulator.
package measure
