package tuner

// newSobol is quasi-random search: the points of Sobol, "On the distribution of points in a cube and the approximate
// evaluation of integrals" (1967), with the direction numbers of Joe and Kuo (2008), Owen-scrambled; see package
// sample. Each is trained to the end.
func newSobol(c *core) (rules, error) { return newFlat(c, "Sobol point") }
