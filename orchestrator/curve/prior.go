package curve

import "math"

// priorScores returns the built-in scores for a forecast over a number of doublings, in ascending order.
func priorScores(doublings float64) []float64 {
	tables := priorTables()
	for i, t := range tables {
		if doublings > t.doublings && i+1 < len(tables) && doublings > tables[i+1].doublings {
			continue
		}
		if doublings <= t.doublings || i+1 == len(tables) {
			return t.scores[:]
		}
		next := tables[i+1]
		f := (doublings - t.doublings) / (next.doublings - t.doublings)
		out := make([]float64, len(t.scores))
		for j := range out {
			out[j] = t.scores[j]*(1-f) + next.scores[j]*f
		}
		return out
	}
	return nil
}

// A priorTable holds the scores at the quantiles (j + 1/2) / 40 of forecasts over a number of doublings.
type priorTable struct {
	doublings float64
	scores    [40]float64
}

// priorTables come from the tasks in TestThePriorIsWhatTheFittedTasksGive, at 50, 25 and 10 % of training:
//
//	go test ./orchestrator/curve -run Prior -v -args -prior
func priorTables() [3]priorTable {
	return [3]priorTable{
		{math.Log2(1 / 0.5), [40]float64{
			-4.07, -2.99, -2.49, -2.07, -1.68, -1.44, -1.25, -1.09, -0.96, -0.83,
			-0.74, -0.67, -0.59, -0.51, -0.44, -0.36, -0.3, -0.23, -0.19, -0.15,
			-0.09, -0.05, -0.02, 0.03, 0.08, 0.12, 0.16, 0.21, 0.25, 0.29,
			0.33, 0.37, 0.41, 0.46, 0.5, 0.56, 0.67, 0.9, 1.36, 4.09,
		}},
		{math.Log2(1 / 0.25), [40]float64{
			-6.59, -3.47, -2.9, -2.35, -1.98, -1.65, -1.41, -1.29, -1.15, -0.98,
			-0.85, -0.75, -0.64, -0.55, -0.48, -0.41, -0.34, -0.29, -0.23, -0.18,
			-0.13, -0.1, -0.06, -0.01, 0.03, 0.08, 0.12, 0.16, 0.21, 0.24,
			0.28, 0.32, 0.37, 0.42, 0.46, 0.52, 0.62, 0.73, 1.13, 3.83,
		}},
		{math.Log2(1 / 0.1), [40]float64{
			-11.44, -2.81, -1.77, -1.31, -1.06, -0.88, -0.75, -0.64, -0.55, -0.48,
			-0.41, -0.36, -0.3, -0.25, -0.19, -0.15, -0.11, -0.07, -0.03, 0.02,
			0.05, 0.09, 0.12, 0.15, 0.17, 0.2, 0.22, 0.24, 0.27, 0.29,
			0.33, 0.36, 0.4, 0.45, 0.51, 0.59, 0.65, 0.75, 0.85, 20,
		}},
	}
}
