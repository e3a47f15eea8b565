package tuner

// randomKind is random search as in Bergstra and Bengio, "Random Search for Hyper-Parameter Optimization" (JMLR 13,
// 2012): independent draws from the space, each trained to the end.
func randomKind() *kind {
	return &kind{
		name:   "random",
		fresh:  func(c *core) (rules, error) { return newSingleStage(c, "random draw"), nil },
		rule:   true,
		Traits: Traits{Endless: true, Independent: true},
	}
}
