// Package gavel has the allocation programs of Gavel (Narayanan et al., "Heterogeneity-Aware Cluster Scheduling
// Policies for Deep Learning Workloads", OSDI 2020), solved to proven optimality, and its round-based mechanism. It is
// pure; package rounds builds policies from it.
//
// An allocation X is the fraction of its time that job i spends on each type of worker. Every program has the
// constraints of section 3.1: X >= 0, no job runs more than all the time (sum_j X[i][j] <= 1), and no type is used
// beyond its capacity (sum_i Scale[i] X[i][j] <= Workers[j]).
//
// # The solvers
//
// The programs have one row per job, and only one more row per type. Primal-dual interior-point methods keep that
// structure: a step is one small Cholesky factor per job and one system of types+1 unknowns, so it costs O(jobs *
// types^3), and a program takes 10 to 30 steps whatever the number of jobs. A simplex method would be as exact, but
// would end in a corner of the optimal face. Optima are seldom unique, and rounds follow X, so the choice of the
// optimum matters: the linear programs follow ECOS, the solver that Gavel calls, step by step on this structure
// (homogeneousLP), and end within about 1e-6 of its X.
//
// Finish-time fairness is solved for rho and X at once. ECOS sees second-order cones there, and if one job alone
// determines rho, its path decides the allocation of all others. Jobs that do not distinguish types follow it
// (secondOrderCone); X agrees to 1e-5 to 1e-2 on the instances of a simulation. For other jobs rounding stops the cones
// too early too often; theirs is the centre of the optimal face, on the central path (solve). Without the cones, the
// 99th percentile of completion times of finish_time_fairness was 11 % above that of Gavel's simulator; with them it is
// 2 %.
//
// Each solution has a bound from the dual prices, which weak duality proves whatever their rounding errors, so the gap
// is known.
package gavel

import (
	"errors"
	"fmt"
	"math"
)

// ErrInfeasible means that no allocation meets the demands.
var ErrInfeasible = errors.New("no allocation meets every demand")

// Jobs are the jobs and the cluster of an allocation.
type Jobs struct {
	// Throughput of each job on each type of worker, in steps/s of the whole job at its scale factor; 0 where it cannot
	// run. That must include types with fewer workers than its scale factor, because the programs themselves would
	// divide those.
	Throughput [][]float64
	// Scale is the number of workers that each job occupies while it runs.
	Scale []float64
	// Weight of each job; nil for equal weights.
	Weight []float64
	// Workers of each type.
	Workers []float64
}

// Allocation is the result of a program.
type Allocation struct {
	// X is the fraction of time that each job spends on each type.
	X [][]float64
	// Objective is the value of X; its meaning depends on the program.
	Objective float64
	// Bound is a proven bound; the optimum lies between Objective and Bound.
	Bound float64
	// Steps of the solver.
	Steps int
}

// Gap returns the proven distance from the optimum, relative to the objective.
func (a Allocation) Gap() float64 {
	if a.Objective == a.Bound {
		return 0
	}
	return math.Abs(a.Bound-a.Objective) / max(math.Abs(a.Objective), math.SmallestNonzeroFloat64)
}

// Check returns an error for invalid input.
func (j Jobs) Check() error {
	if len(j.Scale) != len(j.Throughput) || j.Weight != nil && len(j.Weight) != len(j.Throughput) {
		return fmt.Errorf("%d jobs have %d scale factors and %d weights", len(j.Throughput), len(j.Scale), len(j.Weight))
	}
	for t, n := range j.Workers {
		if !(n >= 0) || math.IsInf(n, 0) {
			return fmt.Errorf("type %d has %g workers: want 0 or more", t, n)
		}
	}
	for i, row := range j.Throughput {
		if len(row) != len(j.Workers) {
			return fmt.Errorf("job %d has throughputs for %d types, the cluster has %d", i, len(row), len(j.Workers))
		}
		for t, x := range row {
			if !(x >= 0) || math.IsInf(x, 0) {
				return fmt.Errorf("job %d has throughput %g steps/s on type %d: want 0 or more", i, x, t)
			}
		}
		if !(j.Scale[i] > 0) || math.IsInf(j.Scale[i], 0) {
			return fmt.Errorf("job %d has scale factor %g: want more than 0", i, j.Scale[i])
		}
		if !(j.weight(i) > 0) || math.IsInf(j.weight(i), 0) {
			return fmt.Errorf("job %d has weight %g: want more than 0", i, j.weight(i))
		}
	}
	return nil
}

func (j Jobs) weight(i int) float64 {
	if j.Weight == nil {
		return 1
	}
	return j.Weight[i]
}

// Unaware returns the same jobs with throughput 1 everywhere, so that types cannot be distinguished, as in Gavel's
// policies without "perf". Finish-time fairness and makespan need real rates and use those of one type instead: Like.
func (j Jobs) Unaware() Jobs {
	return j.rates(func(int) float64 { return 1 })
}

// Like returns the same jobs with every type as fast as type t.
func (j Jobs) Like(t int) Jobs {
	return j.rates(func(i int) float64 { return j.Throughput[i][t] })
}

func (j Jobs) rates(rate func(i int) float64) Jobs {
	same := j
	same.Throughput = make([][]float64, len(j.Throughput))
	for i := range same.Throughput {
		row := make([]float64, len(j.Workers))
		for t := range row {
			row[t] = rate(i)
		}
		same.Throughput[i] = row
	}
	return same
}

// Rate returns the throughput that an allocation gives job i, in steps/s.
func (j Jobs) Rate(i int, x [][]float64) float64 {
	rate := 0.0
	for t, f := range x[i] {
		rate += float64(j.Throughput[i][t] * f)
	}
	return rate
}

// Proportional gives every job the same mix of types, in proportion to their numbers, as much as one job can use: the
// reference of max-min fairness (section 4.1, X^equal).
func (j Jobs) Proportional() [][]float64 {
	total := 0.0
	for _, n := range j.Workers {
		total += n
	}
	row := make([]float64, len(j.Workers))
	for t, n := range j.Workers {
		if total > 0 {
			row[t] = n / total
		}
	}
	x := make([][]float64, len(j.Throughput))
	for i := range x {
		x[i] = row
	}
	return x
}

// Isolated gives every job 1/n of the cluster, at most all its time: the reference of finish-time fairness (section
// 4.2, X^isolated).
func (j Jobs) Isolated() [][]float64 {
	x := make([][]float64, len(j.Throughput))
	for i := range x {
		x[i] = make([]float64, len(j.Workers))
		sum := 0.0
		for t, n := range j.Workers {
			x[i][t] = n / float64(len(x)) / j.Scale[i]
			sum += x[i][t]
		}
		for t := range x[i] {
			x[i][t] /= max(1, sum)
		}
	}
	return x
}
