// Package population says how trials of a sweep will end from where they stand among the others, and what it is worth to train each on.
//
// Curves are known at looks, steps in rising order. At a look a curve has a standing: its place among all curves that were begun, as
// a normal score, so that its metric's unit does not matter. How much a standing says of the end differs from task to task,
// and few ends are seen in a sweep. So there are a few courses that tasks may take (Course), from ones where early standings say next to
// nothing to ones where they say nearly all, and each counts as much as it explains in which order curves ended and in which they stood at looks, and how
// much they fall, measured by what they differ by (Beliefs): Bayes's rule, with the likelihood of pairs. Selection does no harm, as it is by standings, and ends are explained given those.
//
// What a step is worth is Gittins's index of ending above a bar (Worths), in the mean of the courses.
//
// New configurations are chosen by a Gaussian process, for which each curve is a measurement of its own end, as noisy as the courses
// say (Process). This is the factorisation of Swersky, Snoek and Adams, "Freeze-Thaw Bayesian Optimization" (2014), with standings for
// their kernel of exponentials, and without its way back: what the process says of a configuration does not count in what training its curve is worth.
//
// The package is pure, and every call takes a bounded time.
package population
