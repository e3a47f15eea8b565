// Package population forecasts how the trials of a sweep end from their ranks among the others, and values further
// training of each.
//
// Curves are known at looks, a sequence of steps. At a look a curve has a rank among all begun curves, given as a
// normal score, so that the metric's unit does not matter. How well ranks predict ends differs from task to task, and a
// sweep has few ends to learn this from. The package therefore has a few models of this correlation (CorrelationModel),
// from those whose early ranks predict almost nothing to those whose ranks predict almost everything. They are weighted
// by Bayes's rule (Beliefs): by how well they explain the order in which curves ended, the order at looks, and how much
// curves fall relative to their spread. The likelihood is that of pairs of curves. Stopping trials by their ranks does
// not bias it, because ends are explained given the ranks.
//
// The worth of further training is the Gittins index of ending above a bar (GittinsIndex), averaged over the
// correlation models.
//
// New configurations are chosen by a Gaussian process (Process). Each curve is a measurement of its end, with the noise
// that the correlation models give. This is the factorisation of Swersky, Snoek and Adams, "Freeze-Thaw Bayesian
// Optimization" (2014), with ranks instead of their kernel of exponentials. In contrast to the paper, the process does
// not influence the worth of training existing curves.
//
// The package is deterministic, and the time of every call is bounded.
package population
