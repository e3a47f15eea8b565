package rounds

import (
	"maps"
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/lab/policy/gavel"
)

// rules are Gavel's policies by their names here. Sections are those of the OSDI 2020 paper.
func rules() map[string]Rule {
	return map[string]Rule{
		// Least attained service: max-min fairness (4.1).
		"gavel-las":      {Allocate: func(in *Input) (gavel.Allocation, error) { return in.unaware().MaxMin() }},
		"gavel-las-perf": {Allocate: func(in *Input) (gavel.Allocation, error) { return in.Jobs.MaxMin() }, Aware: true},
		// Finish-time fairness, after Themis (4.2).
		"gavel-ftf":      {Allocate: func(in *Input) (gavel.Allocation, error) { return in.finishTime(in.like()) }},
		"gavel-ftf-perf": {Allocate: func(in *Input) (gavel.Allocation, error) { return in.finishTime(in.Jobs) }, Aware: true},
		// Minimum makespan (4.2), within 5 % because Gavel's code stops its bisection there.
		"gavel-makespan-perf": {
			Allocate: func(in *Input) (gavel.Allocation, error) { return in.Jobs.MakespanAsPublished(in.Steps) }, Aware: true,
		},
		// Maximum throughput (4.2).
		"gavel-throughput-perf": {
			Allocate: func(in *Input) (gavel.Allocation, error) { return in.Jobs.MaxThroughput(nil, nil) }, Aware: true,
		},
		// Lexicographic max-min fairness (4.3).
		"gavel-water-filling-perf": {
			Allocate: func(in *Input) (gavel.Allocation, error) { return in.Jobs.WaterFill(nil) }, Aware: true,
		},
		// Each job gets an n-th of the cluster, regardless of how well it uses it (4.2, X^isolated).
		"isolated": {Allocate: func(in *Input) (gavel.Allocation, error) { return exact(in.Jobs.Isolated()), nil }},
		// First in, first out (4.2), on the fastest type, and as in Gavel's code for types that are not distinguished.
		"fifo-perf":  {Allocate: func(in *Input) (gavel.Allocation, error) { return exact(in.fifo()), nil }, Aware: true, Strict: true},
		"gavel-fifo": {Allocate: func(in *Input) (gavel.Allocation, error) { return exact(in.fifo()), nil }, Strict: true},
	}
}

// Names lists the policies that New makes, sorted.
func Names() []string { return slices.Sorted(maps.Keys(rules())) }

func exact(x [][]float64) gavel.Allocation { return gavel.Allocation{X: x} }

// Input is the input of an allocation: the jobs that can run on some type.
type Input struct {
	gavel.Jobs
	// Number of each job, its scale, its steps left and the seconds since it arrived.
	Number         []int
	Whole          []int
	Steps, Elapsed []float64
	// may is the types on which each job is allowed to run, even at rate 0.
	may    [][]bool
	policy *Policy
}

// unaware treats every type that a job may use as equal, even if it would not run there, as Gavel does.
func (in *Input) unaware() gavel.Jobs {
	same := in.Jobs
	same.Throughput = make([][]float64, len(in.Throughput))
	flat := make([]float64, len(in.Throughput)*len(in.Workers))
	for i := range same.Throughput {
		row := cut(&flat, len(in.Workers))
		for t, may := range in.may[i] {
			if may {
				row[t] = 1
			}
		}
		same.Throughput[i] = row
	}
	return same
}

// like treats every type that a job may use as equally fast as a reference, which is V100 in Gavel, or else the first
// type on which it runs.
func (in *Input) like() gavel.Jobs {
	same := in.Jobs
	same.Throughput = make([][]float64, len(in.Throughput))
	flat := make([]float64, len(in.Throughput)*len(in.Workers))
	reference := slices.Index(in.policy.s.Types, "v100")
	for i := range same.Throughput {
		row, rate := cut(&flat, len(in.Workers)), 0.0
		if reference >= 0 {
			rate = in.Throughput[i][reference]
		}
		for t := 0; rate == 0 && t < len(row); t++ {
			rate = in.Throughput[i][t]
		}
		for t, may := range in.may[i] {
			if may {
				row[t] = rate
			}
		}
		same.Throughput[i] = row
	}
	return same
}

func (in *Input) finishTime(j gavel.Jobs) (gavel.Allocation, error) {
	return j.FinishTime(in.Steps, in.Elapsed, in.policy.s.Alone.Isolated(in.Number, j, in.Steps))
}

func (in *Input) fifo() [][]float64 {
	requests := make([]gavel.Request, len(in.Number))
	for i, n := range in.Number {
		requests[i] = gavel.Request{Job: n, Scale: in.Whole[i], Throughput: in.Throughput[i]}
	}
	return in.policy.s.FIFO.Allocate(requests, in.policy.s.Workers, in.policy.random.Below)
}

// cut removes the first n entries of a flat slice and returns them.
func cut[T any](flat *[]T, n int) []T {
	row := (*flat)[:n:n]
	*flat = (*flat)[n:]
	return row
}
