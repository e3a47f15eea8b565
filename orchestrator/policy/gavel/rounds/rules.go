package rounds

import (
	"maps"
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/policy/gavel"
)

// rules are Gavel's policies by their names here. Sections are those of the OSDI 2020 paper.
func rules() map[string]Rule {
	return map[string]Rule{
		// Least attained service: max-min fairness (4.1).
		"gavel-las":      {Allocate: func(q *Question) (gavel.Allocation, error) { return q.unaware().MaxMin() }},
		"gavel-las-perf": {Allocate: func(q *Question) (gavel.Allocation, error) { return q.Jobs.MaxMin() }, Aware: true},
		// Finish-time fairness, after Themis (4.2).
		"gavel-ftf":      {Allocate: func(q *Question) (gavel.Allocation, error) { return q.finishTime(q.like()) }},
		"gavel-ftf-perf": {Allocate: func(q *Question) (gavel.Allocation, error) { return q.finishTime(q.Jobs) }, Aware: true},
		// Minimum makespan (4.2), to the 5 % that Gavel's code halves to.
		"gavel-makespan-perf": {
			Allocate: func(q *Question) (gavel.Allocation, error) { return q.Jobs.MakespanAsPublished(q.Steps) }, Aware: true,
		},
		// Maximum throughput (4.2).
		"gavel-throughput-perf": {
			Allocate: func(q *Question) (gavel.Allocation, error) { return q.Jobs.MaxThroughput(nil, nil) }, Aware: true,
		},
		// Max-min fairness to the last job (4.3).
		"gavel-water-filling-perf": {
			Allocate: func(q *Question) (gavel.Allocation, error) { return q.Jobs.WaterFill(nil) }, Aware: true,
		},
		// Each job its own n-th of the cluster, whoever uses it better (4.2, X^isolated).
		"isolated": {Allocate: func(q *Question) (gavel.Allocation, error) { return exact(q.Jobs.Isolated()), nil }},
		// First in, first out (4.2), on the fastest type, and as Gavel's code has it for types that are not told apart.
		"fifo-perf":  {Allocate: func(q *Question) (gavel.Allocation, error) { return exact(q.fifo()), nil }, Aware: true, Strict: true},
		"gavel-fifo": {Allocate: func(q *Question) (gavel.Allocation, error) { return exact(q.fifo()), nil }, Strict: true},
	}
}

// Names lists the policies that New makes, sorted.
func Names() []string { return slices.Sorted(maps.Keys(rules())) }

func exact(x [][]float64) gavel.Allocation { return gavel.Allocation{X: x} }

// Question is what an allocation is asked for: the jobs that can run somewhere.
type Question struct {
	gavel.Jobs
	// Number of each job, its scale, its steps left and the seconds since it came.
	Number         []int
	Whole          []int
	Steps, Elapsed []float64
	// may says on which types each job may run, fast or not at all.
	may    [][]bool
	policy *Policy
}

// unaware takes every type that a job may use for the same, even if it would not run there, as Gavel does.
func (q *Question) unaware() gavel.Jobs {
	same := q.Jobs
	same.Throughput = make([][]float64, len(q.Throughput))
	flat := make([]float64, len(q.Throughput)*len(q.Workers))
	for i := range same.Throughput {
		row := cut(&flat, len(q.Workers))
		for t, may := range q.may[i] {
			if may {
				row[t] = 1
			}
		}
		same.Throughput[i] = row
	}
	return same
}

// like takes every type that a job may use for as fast as one, which Gavel calls the reference: V100s. Without any it is
// the first type that it runs on.
func (q *Question) like() gavel.Jobs {
	same := q.Jobs
	same.Throughput = make([][]float64, len(q.Throughput))
	flat := make([]float64, len(q.Throughput)*len(q.Workers))
	reference := slices.Index(q.policy.s.Types, "v100")
	for i := range same.Throughput {
		row, rate := cut(&flat, len(q.Workers)), 0.0
		if reference >= 0 {
			rate = q.Throughput[i][reference]
		}
		for t := 0; rate == 0 && t < len(row); t++ {
			rate = q.Throughput[i][t]
		}
		for t, may := range q.may[i] {
			if may {
				row[t] = rate
			}
		}
		same.Throughput[i] = row
	}
	return same
}

func (q *Question) finishTime(j gavel.Jobs) (gavel.Allocation, error) {
	return j.FinishTime(q.Steps, q.Elapsed, q.policy.s.Alone.Isolated(q.Number, j, q.Steps))
}

func (q *Question) fifo() [][]float64 {
	requests := make([]gavel.Request, len(q.Number))
	for i, n := range q.Number {
		requests[i] = gavel.Request{Job: n, Scale: q.Whole[i], Throughput: q.Throughput[i]}
	}
	return q.policy.s.FIFO.Allocate(requests, q.policy.s.Workers, q.policy.random.Below)
}

// cut takes the first n of a flat slice.
func cut[T any](flat *[]T, n int) []T {
	row := (*flat)[:n:n]
	*flat = (*flat)[n:]
	return row
}
