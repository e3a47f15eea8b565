// Package gavel is the mathematics of Gavel (Narayanan et al., "Heterogeneity-Aware Cluster Scheduling Policies for
// Deep Learning Workloads", OSDI 2020): its allocation programs, solved to proven optimality, and its round-based
// mechanism. It is pure; a policy.Policy is put on top of it elsewhere.
//
// An allocation X says which fraction of its time job i spends on each type of worker. Every program shares the
// constraints of section 3.1: X >= 0, no job runs more than all the time (sum_j X[i][j] <= 1), and no type is used
// more than it exists (sum_i Scale[i] X[i][j] <= Workers[j]).
//
// # Which solver, and why
//
// The programs have one row per job, and only one more row per type. Primal-dual interior-point methods keep that
// structure: a step is one small Cholesky factor per job and one system of types+1 unknowns, so it costs O(jobs *
// types^3), and a program takes 10 to 30 steps whatever the number of jobs. A simplex would be as exact, but would end
// in a corner of the optimal face. Optima are seldom unique, the mechanism hands out rounds by X, and so it matters which
// one is found: the linear programs follow ECOS, the solver that Gavel calls, step by step on this structure (homogeneousLP),
// and end within about 1e-6 of its X.
//
// Finish-time fairness is solved for rho and X at once. ECOS sees second-order cones there, and where one job alone holds
// rho up, its path decides what all others get. Jobs that do not tell types apart follow it (secondOrderCone); X agrees to 1e-5 to
// 1e-2 on the instances of a simulation. For the others rounding stops the cones too early too often; theirs is the
// centre of the optimal face, on the central path (solve). Without the cones, the 99th percentile of completion times of
// finish_time_fairness was 11 % above that of Gavel's simulator; with them it is 2 %.
//
// Each solution comes with a bound from the dual prices, which weak duality proves whatever the rounding in them, so that
// the gap is known and not hoped for.
package gavel

import (
	"errors"
	"fmt"
	"math"
)

// ErrInfeasible says that no allocation meets the demands made of it.
var ErrInfeasible = errors.New("no allocation meets every demand")

// Jobs are the jobs and the cluster that an allocation is for.
type Jobs struct {
	// Throughput of each job on each type of worker, in steps/s of the whole job at its scale factor; 0 where it cannot
	// run, which includes types with fewer workers than its scale factor: the programs themselves would share those out.
	Throughput [][]float64
	// Scale is the number of workers that each job occupies while it runs.
	Scale []float64
	// Weight of each job; nil for equal weights.
	Weight []float64
	// Workers of each type.
	Workers []float64
}

// Allocation is the answer of a program.
type Allocation struct {
	// X is the fraction of time that each job spends on each type.
	X [][]float64
	// Objective is what X attains; its meaning is the program's.
	Objective float64
	// Bound is what no allocation can better; the optimum lies between Objective and Bound.
	Bound float64
	// Steps the solver took.
	Steps int
}

// Gap is the proven distance from the optimum, relative to the objective.
func (a Allocation) Gap() float64 {
	if a.Objective == a.Bound {
		return 0
	}
	return math.Abs(a.Bound-a.Objective) / max(math.Abs(a.Objective), math.SmallestNonzeroFloat64)
}

// Check says what is wrong with the input.
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

// Unaware is the same with every worker type taken for the same, which is what Gavel's policies without "perf" see:
// throughput 1 everywhere. Finish-time fairness and makespan need real rates and use those of one type instead: Like.
func (j Jobs) Unaware() Jobs {
	return j.rates(func(int) float64 { return 1 })
}

// Like is the same with every type as fast as type t.
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

// Rate is the throughput that an allocation gives job i, in steps/s.
func (j Jobs) Rate(i int, x [][]float64) float64 {
	rate := 0.0
	for t, f := range x[i] {
		rate += float64(j.Throughput[i][t] * f)
	}
	return rate
}

// Proportional gives every job the same mix of types, in proportion to how many there are, as much as one job can use:
// the yardstick of max-min fairness (section 4.1, X^equal).
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

// Isolated gives every job 1/n of the cluster for itself, at most all its time: the yardstick of finish-time fairness
// (section 4.2, X^isolated).
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
