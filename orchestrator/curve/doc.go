// Package curve extrapolates learning curves with calibrated error bars.
//
// A curve is fitted by a grid of parametric shapes and a last-value model. Every shape is linear in its level and its
// change, so that its posterior and its evidence have closed forms (Bayesian linear regression). The shapes, weighted
// by their evidence, and the last-value model with a fixed share give the location and the scale of a later value. The
// computation is not iterative and not random.
//
// The score of a forecast is its error in scales. The distribution of scores is learned: it combines a built-in prior
// with the scores of the sweep's own curves when they reach the forecast steps. A quantile of a forecast is location +
// scale * quantile of the scores (split conformal prediction with normalised scores). Curves at a similar place among
// the others have the most weight. Scores are signed, so they correct systematic errors of the shapes, for example if
// the learning rate falls at the end.
//
// Metrics that are maximised are negated internally.
package curve
