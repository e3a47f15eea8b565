// Package curve extrapolates learning curves, with error bars that are calibrated on curves that went on.
//
// A curve is fitted by a grid of parametric shapes and a last-value model. Every shape is linear in its level and its
// change, so that its posterior and its evidence have closed forms (Bayesian linear regression): the evidence weighs
// the shapes, and what they say together, plus the last-value model's fixed share, gives the location and the scale of
// a later value. There is nothing to iterate and nothing random.
//
// How far the truth lies from the location, in scales, is the score of a forecast. The distribution of scores is
// learned: a built-in prior, and the scores of the sweep's own curves as they get to the steps that were forecast. A
// quantile of a forecast is location + scale * quantile of the scores (split conformal prediction with normalised
// scores); the scores of curves that had a like place among the others count most. Signed scores make up for what no shape can see, such as a learning rate that falls at the end.
//
// Points may be of any metric; those that are maximised are turned around inside.
package curve
