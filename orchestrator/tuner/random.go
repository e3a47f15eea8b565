package tuner

// newRandom returns random search as in Bergstra and Bengio, "Random Search for Hyper-Parameter Optimization" (JMLR 13,
// 2012): independent draws from the space, each trained to the end.
func newRandom(c *core) (rules, error) { return newSingleStage(c, "random draw") }
