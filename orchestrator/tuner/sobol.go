package tuner

// newSobol returns quasi-random search: the points of Sobol, "On the distribution of points in a cube and the
// approximate evaluation of integrals" (1967), with the direction numbers of Joe and Kuo (2008), Owen-scrambled
// (package sample). Each trial is trained to the end.
func newSobol(c *core) (rules, error) { return newSingleStage(c, "Sobol point") }
