package curve

// PriorScores lets tests compare the built-in tables with what they come from.
func PriorScores(doublings float64) []float64 { return priorScores(doublings) }

// Interval is the nominal interval of scores.
func (k *Calibration) Interval(doublings, place float64) (low, high float64) {
	return k.scores(doublings, place).interval(Nominal)
}
