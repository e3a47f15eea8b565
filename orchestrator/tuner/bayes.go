package tuner

// newBayes returns Bayesian optimisation: a Gaussian process of all earlier trials proposes each configuration (package
// surrogate). Each trial is trained to the end.
func newBayes(c *core) (rules, error) { return newSingleStage(c, "Bayesian choice") }
