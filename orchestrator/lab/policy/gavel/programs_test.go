package gavel

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/optimize/convex/lp"
)

// randomJobs returns n jobs with throughputs over five decades and some types on which they cannot run.
func randomJobs(rng *rand.Rand, n, r int) (Jobs, []float64) {
	j := Jobs{Workers: make([]float64, r)}
	for t := range r {
		j.Workers[t] = float64(1 + rng.IntN(1+n/2))
	}
	steps := make([]float64, n)
	for i := range n {
		base := math.Pow(10, float64(rng.IntN(5)-2))
		row := make([]float64, r)
		for t := range r {
			row[t] = base * (0.1 + rng.Float64())
			if t > 0 && rng.IntN(8) == 0 {
				row[t] = 0
			}
		}
		steps[i] = math.Ceil(row[0] * 3600 * (0.1 + 10*rng.Float64()))
		rng.Shuffle(r, func(a, b int) { row[a], row[b] = row[b], row[a] })
		j.Throughput = append(j.Throughput, row)
		j.Scale = append(j.Scale, []float64{1, 1, 1, 2, 4, 8}[rng.IntN(6)])
		j.Weight = append(j.Weight, []float64{1, 1, 5}[rng.IntN(3)])
	}
	return j, steps
}

// simplex maximises sum gain*X + goal*t with rate_i(X) >= base[i] + t*slope[i] exactly, with gonum.
func simplex(t *testing.T, j Jobs, gain [][]float64, goal float64, base, slope []float64) float64 {
	t.Helper()
	n, r := len(j.Throughput), len(j.Workers)
	unit := 0.0
	for i, s := range slope {
		if s > 0 {
			for _, x := range j.Throughput[i] {
				unit = max(unit, x/s)
			}
		}
	}
	cols, rows := n*r, n+r
	if goal != 0 {
		cols++
	}
	if slope != nil {
		rows += n
	}
	c, h := make([]float64, cols+rows), make([]float64, rows)
	a := mat.NewDense(rows, cols+rows, nil)
	if goal != 0 {
		c[n*r] = -goal
	}
	for k := range rows {
		a.Set(k, cols+k, 1)
	}
	for i := range n {
		h[i] = 1
		top := 0.0
		for _, x := range j.Throughput[i] {
			top = max(top, x)
		}
		for k := range r {
			col := i*r + k
			a.Set(i, col, 1)
			a.Set(n+k, col, j.Scale[i])
			if gain != nil {
				c[col] = -gain[i][k]
			}
			if slope != nil {
				a.Set(n+r+i, col, -j.Throughput[i][k]/top)
			}
		}
		if slope != nil {
			if goal != 0 {
				a.Set(n+r+i, n*r, slope[i]/top*unit)
			}
			h[n+r+i] = -base[i] / top
		}
	}
	for k, w := range j.Workers {
		h[n+k] = w
	}
	value, _, err := lp.Simplex(c, a, h, 1e-11, nil)
	if err != nil {
		t.Skipf("gonum: %v", err)
	}
	if goal != 0 {
		value *= unit
	}
	return -value
}

// checkAllocation checks the constraints of section 3.1 and that the proven gap is small.
func checkAllocation(t *testing.T, j Jobs, a Allocation) {
	t.Helper()
	used := make([]float64, len(j.Workers))
	for i, row := range a.X {
		sum := 0.0
		for k, x := range row {
			if x < 0 {
				t.Fatalf("job %d has a share of %g", i, x)
			}
			sum += x
			used[k] += x * j.Scale[i]
		}
		if sum > 1+1e-9 {
			t.Fatalf("job %d runs %g of the time", i, sum)
		}
	}
	for k, u := range used {
		if u > j.Workers[k]*(1+1e-9) {
			t.Fatalf("%g of %g workers of type %d are used", u, j.Workers[k], k)
		}
	}
	if !(a.Gap() <= Acceptable) {
		t.Fatalf("objective %.12g, bound %.12g: gap %g after %d steps", a.Objective, a.Bound, a.Gap(), a.Steps)
	}
}

func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if !(math.Abs(got-want) <= 1e-6*math.Abs(want)+1e-12) {
		t.Errorf("%s is %.9g, want %.9g", what, got, want)
	}
}

// seeds of random jobs.
const seeds = uint64(200)

func TestProgramsAgainstSimplex(t *testing.T) {
	t.Parallel()
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 1))
		n := 1 + rng.IntN(20)
		j, steps := randomJobs(rng, n, 1+rng.IntN(4))
		zero := make([]float64, n)

		a, err := j.MaxMin()
		if err != nil {
			t.Fatal(err)
		}
		checkAllocation(t, j, a)
		near(t, "max-min", a.Objective, simplex(t, j, nil, 1, zero, j.levels()))

		if a, err = j.Makespan(steps); err != nil {
			t.Fatal(err)
		}
		checkAllocation(t, j, a)
		near(t, "makespan", a.Objective, 1/simplex(t, j, nil, 1, zero, steps))
		makespan := a.Objective

		if a, err = j.MaxThroughput(nil, nil); err != nil {
			t.Fatal(err)
		}
		checkAllocation(t, j, a)
		near(t, "throughput", a.Objective, simplex(t, j, j.Throughput, 0, nil, nil))

		floor := make([]float64, n)
		for i := range floor {
			floor[i] = steps[i] / makespan / 1.5
		}
		if a, err = j.MaxThroughput(nil, floor); err != nil {
			t.Fatal(err)
		}
		// Floors and throughputs of many magnitudes cost two more digits.
		if !(a.Gap() < 1e-4) {
			t.Errorf("seed %d: gap %g with floors", seed, a.Gap())
		}
		near(t, "throughput with floors", a.Objective, simplex(t, j, j.Throughput, 0, floor, zero))
		for i := range floor {
			floor[i] *= 1.51
		}
		if _, err = j.MaxThroughput(nil, floor); !errors.Is(err, ErrInfeasible) {
			t.Errorf("floors beyond the makespan: %v", err)
		}
	}
}

// At the resulting rho the jobs' needs must be just feasible: the max-min over needs, by the simplex, is 1.
func TestFinishTimeAgainstSimplex(t *testing.T) {
	t.Parallel()
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 2))
		n := 1 + rng.IntN(20)
		j, steps := randomJobs(rng, n, 1+rng.IntN(4))
		elapsed := make([]float64, n)
		for i := range elapsed {
			elapsed[i] = float64(rng.IntN(1e5))
		}
		var alone Alone
		isolated := alone.Isolated(rng.Perm(n), j, steps)
		a, err := j.FinishTime(steps, elapsed, isolated)
		if err != nil {
			t.Fatal(err)
		}
		checkAllocation(t, j, a)
		need := make([]float64, n)
		for i := range need {
			need[i] = steps[i] / (a.Objective*isolated[i] - elapsed[i])
		}
		if got := simplex(t, j, nil, 1, make([]float64, n), need); math.Abs(got-1) > 1e-4 {
			t.Errorf("seed %d: at rho %g the needs can be met %g times", seed, a.Objective, got)
		}
	}
}

func TestProgramsOn2048Jobs(t *testing.T) {
	t.Parallel()
	j, steps := randomJobs(rand.New(rand.NewPCG(3, 1)), 2048, 3)
	elapsed := make([]float64, len(steps))
	for i := range elapsed {
		elapsed[i] = float64(i * 10)
	}
	var alone Alone
	isolated := alone.Isolated(make([]int, len(steps)), j, steps)
	for name, run := range programs(j, steps, elapsed, isolated) {
		a, err := run()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		t.Logf("%s: %d steps, gap %.1g", name, a.Steps, a.Gap())
		checkAllocation(t, j, a)
	}
}

func programs(j Jobs, steps, elapsed, isolated []float64) map[string]func() (Allocation, error) {
	return map[string]func() (Allocation, error){
		"max-min":     j.MaxMin,
		"makespan":    func() (Allocation, error) { return j.Makespan(steps) },
		"finish-time": func() (Allocation, error) { return j.FinishTime(steps, elapsed, isolated) },
		"throughput":  func() (Allocation, error) { return j.MaxThroughput(nil, nil) },
	}
}

// Water filling: no level can be raised without lowering an equal or lower one; checked by raising each job alone.
func TestWaterFilling(t *testing.T) {
	t.Parallel()
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 3))
		n := 1 + rng.IntN(12)
		j, _ := randomJobs(rng, n, 1+rng.IntN(3))
		a, err := j.WaterFill(nil)
		if err != nil {
			t.Fatal(err)
		}
		checkAllocation(t, j, a)
		level := j.levels()
		reached := make([]float64, n)
		for i := range reached {
			reached[i] = j.Rate(i, a.X) / level[i]
		}
		for i := range reached {
			base, slope := make([]float64, n), make([]float64, n)
			slope[i] = level[i]
			for k := range base {
				if k != i {
					base[k] = level[k] * min(reached[k], reached[i]) * (1 - 1e-6)
				}
			}
			if most := simplex(t, j, nil, 1, base, slope); most > reached[i]*(1+1e-3) {
				t.Errorf("seed %d: job %d has level %.6g and could have %.6g; levels %.6g", seed, i, reached[i], most, reached)
			}
		}
	}
}

func TestChecks(t *testing.T) {
	t.Parallel()
	for want, j := range map[string]Jobs{
		"1 jobs have 0 scale factors and 0 weights":                   {Throughput: [][]float64{{1}}, Workers: []float64{1}},
		"job 0 has throughput -1 steps/s on type 0: want 0 or more":   {Throughput: [][]float64{{-1}}, Workers: []float64{1}, Scale: []float64{1}},
		"job 0 has scale factor 0: want more than 0":                  {Throughput: [][]float64{{1}}, Workers: []float64{1}, Scale: []float64{0}},
		"type 0 has -1 workers: want 0 or more":                       {Throughput: [][]float64{{1}}, Workers: []float64{-1}, Scale: []float64{1}},
		"job 0 has throughputs for 2 types, the cluster has 1":        {Throughput: [][]float64{{1, 1}}, Workers: []float64{1}, Scale: []float64{1}},
		"job 0 has weight NaN: want more than 0":                      {Throughput: [][]float64{{1}}, Workers: []float64{1}, Scale: []float64{1}, Weight: []float64{math.NaN()}},
		"job 0 has throughput +Inf steps/s on type 0: want 0 or more": {Throughput: [][]float64{{math.Inf(1)}}, Workers: []float64{1}, Scale: []float64{1}},
		"1 jobs have 1 scale factors and 2 weights":                   {Throughput: [][]float64{{1}}, Workers: []float64{1}, Scale: []float64{1}, Weight: []float64{1, 1}},
	} {
		if _, err := j.MaxMin(); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
