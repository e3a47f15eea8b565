package curve

// PriorScores exports the built-in tables for tests that compare them with their source.
func PriorScores(doublings float64) []float64 { return priorScores(doublings) }

// Interval returns the nominal interval of scores.
func (k *Calibration) Interval(doublings, place float64) (low, high float64) {
	return k.scores(doublings, place).interval(Nominal)
}
