package tuner

// newBayes is Bayesian optimisation: a Gaussian process of all trials before chooses each configuration; see package surrogate. Each is trained
// to the end.
func newBayes(c *core) (rules, error) { return newFlat(c, "Bayesian choice") }
