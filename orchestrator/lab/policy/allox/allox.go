// Package allox is AlloX (Le et al., "AlloX: Compute Allocation in Hybrid Clusters", EuroSys 2020): jobs with different
// speeds on different machines are ordered on these for the least mean completion time, by one minimum-cost matching of
// jobs with (machine, position) pairs. Schedule is the matching alone; Policy applies it to a cluster.
package allox

import (
	"fmt"
	"math"
)

// Schedule orders jobs on machines so that the sum of their completion times is least (section 3.1). times[i][j] is the
// seconds that job i takes on machine j, +Inf if it cannot run there. It returns the jobs of every machine in the order
// in which they run, and the sum of completion times from now, in seconds. The time waited so far is the same for every
// match of a job and has no effect.
//
// A job that runs k-th from last on a machine delays itself and the k-1 after it, so it costs k times its run time
// there (Horn 1973; Bruno, Coffman and Sethi 1974): the matching of jobs with pairs of machine and k is exact.
func Schedule(times [][]float64) (order [][]int, total float64, err error) {
	if len(times) == 0 {
		return nil, 0, nil
	}
	jobs, machines := len(times), len(times[0])
	for i, row := range times {
		if len(row) != machines {
			return nil, 0, fmt.Errorf("job %d has times for %d machines, job 0 for %d", i, len(row), machines)
		}
		runs := false
		for j, t := range row {
			if math.IsNaN(t) || t < 0 {
				return nil, 0, fmt.Errorf("job %d takes %g s on machine %d: want 0 or more", i, t, j)
			}
			runs = runs || !math.IsInf(t, 1)
		}
		if !runs {
			return nil, 0, fmt.Errorf("job %d runs on no machine", i)
		}
	}
	cost := func(i, column int) float64 {
		return times[i][column%machines] * float64(column/machines+1)
	}
	column, total := Match(jobs, jobs*machines, cost)
	order = make([][]int, machines)
	for k := jobs - 1; k >= 0; k-- {
		for i, c := range column {
			if c/machines == k {
				order[c%machines] = append(order[c%machines], i)
			}
		}
	}
	return order, total, nil
}

// Match assigns a different column to every row so that the sum of costs is least, by shortest augmenting paths with
// potentials (Kuhn 1955; Jonker and Volgenant 1987), in O(rows^2 * columns). There must be at least as many columns as
// rows; a cost of +Inf is used only if nothing else is left.
func Match(rows, columns int, cost func(row, column int) float64) (column []int, total float64) {
	// Index 0 represents a missing row or column.
	potential, price := make([]float64, rows+1), make([]float64, columns+1)
	holder, before := make([]int, columns+1), make([]int, columns+1)
	least, done := make([]float64, columns+1), make([]bool, columns+1)
	for row := 1; row <= rows; row++ {
		for c := range least {
			least[c], done[c] = math.Inf(1), false
		}
		holder[0] = row
		at := 0
		for holder[at] != 0 {
			done[at] = true
			at = reach(at, holder[at], columns, cost, potential, price, holder, before, least, done)
		}
		for at != 0 {
			holder[at] = holder[before[at]]
			at = before[at]
		}
	}
	column = make([]int, rows)
	for c := 1; c <= columns; c++ {
		if r := holder[c]; r != 0 {
			column[r-1] = c - 1
			total += cost(r-1, c-1)
		}
	}
	return column, total
}

// reach grows the tree of shortest paths by the nearest column, updates the potentials, and returns that column.
func reach(at, row, columns int, cost func(row, column int) float64, potential, price []float64, holder, before []int,
	least []float64, done []bool,
) int {
	delta, next := math.Inf(1), 0
	for c := 1; c <= columns; c++ {
		if done[c] {
			continue
		}
		if d := min(cost(row-1, c-1), unusable) - potential[row] - price[c]; d < least[c] {
			least[c], before[c] = d, at
		}
		if least[c] < delta {
			delta, next = least[c], c
		}
	}
	for c := range done {
		if done[c] {
			potential[holder[c]] += delta
			price[c] -= delta
		} else {
			least[c] -= delta
		}
	}
	return next
}

// unusable is a finite replacement for a cost of +Inf, because sums with +Inf lose all information.
const unusable = 1e15
