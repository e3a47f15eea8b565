package ascent

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/optimize/convex/lp"
	"pgregory.net/rapid"
)

// draw draws a graph of ports, instances and kinds, in which each port may use an instance with some probability.
func draw(seed uint64, ports, instances, kinds int, dense float64, utilities ...Utility) *Graph {
	rng := rand.New(rand.NewPCG(seed, 0))
	g := &Graph{}
	for range kinds {
		g.Beta = append(g.Beta, 0.3+0.2*rng.Float64())
	}
	for range ports {
		request := make([]float64, kinds)
		for k := range request {
			request[k] = 10 * (0.2 + rng.Float64())
		}
		g.Request = append(g.Request, request)
	}
	for range instances {
		capacity, alpha, utility := make([]float64, kinds), make([]float64, kinds), make([]Utility, kinds)
		for k := range kinds {
			capacity[k] = 5 + 20*rng.Float64()
			alpha[k] = 1 + rng.Float64()/2
			utility[k] = utilities[rng.IntN(len(utilities))]
		}
		var who []int
		for l := range ports {
			if rng.Float64() < dense {
				who = append(who, l)
			}
		}
		g.Capacity, g.Alpha, g.Utility = append(g.Capacity, capacity), append(g.Alpha, alpha), append(g.Utility, utility)
		g.Ports = append(g.Ports, who)
	}
	if err := g.Ready(); err != nil {
		return nil
	}
	return g
}

func TestUtilitiesAndTheirSlopes(t *testing.T) {
	t.Parallel()
	for u, want := range map[Utility]float64{
		Linear: 3.6, Log: 1.2 * math.Log(4), Reciprocal: 1/1.2 - 1/4.2, Poly: 1.2*2 - 1.2,
	} {
		if got := u.Gain(1.2, 3); math.Abs(got-want) > 1e-12 {
			t.Errorf("utility %d of 3 is %g, want %g", u, got, want)
		}
		if got := u.Gain(1.2, 0); got != 0 {
			t.Errorf("utility %d of nothing is %g", u, got)
		}
		for _, y := range []float64{0.1, 1, 7} {
			const h = 1e-6
			slope := (u.Gain(1.2, y+h) - u.Gain(1.2, y-h)) / (2 * h)
			if got := u.Slope(1.2, y); math.Abs(got-slope) > 1e-8 {
				t.Errorf("the slope of utility %d at %g is %g, by differences %g", u, y, got, slope)
			}
			if at := u.atSlope(1.2, u.Slope(1.2, y), 10); u != Linear && math.Abs(at-y) > 1e-9 {
				t.Errorf("utility %d has at %g the slope that it has at %g", u, at, y)
			}
		}
	}
}

// Every learnt decision is feasible, and a learner continues from its snapshot.
func TestLearningStaysFeasible(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		g := draw(rapid.Uint64().Draw(t, "seed"), 4, 3, 2, 0.7, Linear, Log, Reciprocal, Poly)
		a, b := NewLearner(g, Rates{25, 0.99}), NewLearner(g, Rates{25, 0.99})
		for range rapid.IntRange(1, 20).Draw(t, "slots") {
			x := make([]float64, 4)
			for l := range x {
				x[l] = float64(rapid.IntRange(0, 1).Draw(t, "came"))
			}
			a.Learn(x)
			b.Learn(x)
			snapshot, err := b.Snapshot()
			if err != nil {
				t.Fatal(err)
			}
			b = NewLearner(g, Rates{25, 0.99})
			if err := b.Restore(snapshot); err != nil {
				t.Fatal(err)
			}
		}
		if fmt.Sprint(a.memory) != fmt.Sprint(b.memory) {
			t.Fatalf("from snapshots another decision: %v and %v", a.memory, b.memory)
		}
		for r := range g.Capacity {
			for k, limit := range g.Capacity[r] {
				sum := 0.0
				for i, y := range g.Of(a.Decision(), r, k) {
					sum += y
					if most := g.Request[g.Ports[r][i]][k]; y < 0 || y > most {
						t.Fatalf("%g of at most %g", y, most)
					}
				}
				if sum > limit*(1+1e-9) {
					t.Fatalf("%g of %g", sum, limit)
				}
			}
		}
	})
}

// With linear utilities the best stationary decision is a linear program, which the simplex method solves exactly.
func TestBestAgainstTheSimplexMethod(t *testing.T) {
	t.Parallel()
	for seed := range uint64(5) {
		g := draw(seed, 3, 2, 2, 0.8, Linear)
		for k := range g.Beta {
			g.Beta[k] *= 3 // so that overhead matters relative to gains of 1 to 1.5
		}
		arrivals := []float64{5, 2, 8}
		want := simplex(t, g, arrivals)
		_, reward, bound := g.Best(arrivals, 40_000)
		if reward > want*(1+1e-9) || reward < 0.997*want || bound < want*(1-1e-9) || bound > 1.003*want {
			t.Errorf("seed %d: found %g, bound %g, the optimum is %g", seed, reward, bound, want)
		}
	}
}

// simplex returns the optimum. Its variables are a decision y, the overheads m, and slacks of y <= request, sum y <=
// capacity, beta sum y <= m.
func simplex(t *testing.T, g *Graph, arrivals []float64) float64 {
	t.Helper()
	kinds, n := len(g.Beta), g.size+len(g.Request)
	var rows [][]float64
	var right []float64
	row := func(limit float64) []float64 {
		rows, right = append(rows, make([]float64, n)), append(right, limit)
		return rows[len(rows)-1]
	}
	cost := make([]float64, n)
	dominant := make([][]float64, len(g.Request)*kinds)
	for l := range g.Request {
		cost[g.size+l] = arrivals[l]
		for k := range kinds {
			dominant[l*kinds+k] = row(0)
			dominant[l*kinds+k][g.size+l] = -1
		}
	}
	for r, ports := range g.Ports {
		for k, limit := range g.Capacity[r] {
			all := row(limit)
			for i, l := range ports {
				at := g.first[r] + k*len(ports) + i
				cost[at] = -arrivals[l] * g.Alpha[r][k]
				all[at] = 1
				row(g.Request[l][k])[at] = 1
				dominant[l*kinds+k][at] = g.Beta[k]
			}
		}
	}
	a := mat.NewDense(len(rows), n+len(rows), nil)
	for i, row := range rows {
		for j, x := range row {
			a.Set(i, j, x)
		}
		a.Set(i, n+i, 1)
	}
	value, _, err := lp.Simplex(append(cost, make([]float64, len(rows))...), a, right, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	return -value
}

// The bound holds with every utility, and the result is close to it.
func TestBestIsCloseToItsBound(t *testing.T) {
	t.Parallel()
	for seed := range uint64(6) {
		g := draw(seed, 4, 5, 3, 0.7, []Utility{Linear, Log, Reciprocal, Poly}[:1+seed%4]...)
		_, reward, bound := g.Best([]float64{70, 30, 55, 80}, 20_000)
		if reward > bound*(1+1e-9) || reward < 0.99*bound {
			t.Errorf("seed %d: found %g of at most %g", seed, reward, bound)
		}
	}
}

// Regret against the best stationary decision of each horizon stays within the theorem's bound, and grows no faster
// than the square root of the horizon, with random arrivals and with long waves, which no stationary decision foresees.
func TestRegretGrowsNoFasterThanTheRoot(t *testing.T) {
	t.Parallel()
	for name, chance := range map[string]func(slot, port int) float64{
		"by chance": func(_, port int) float64 { return 0.3 + 0.1*float64(port) },
		"in waves":  func(slot, port int) float64 { return float64((slot/200 + port) % 2) },
	} {
		g := draw(7, 4, 3, 2, 0.8, Log, Reciprocal, Poly)
		var perRoot []float64
		for _, horizon := range []int{500, 2000, 8000} {
			regret := regretOf(g, horizon, g.Theory(horizon), chance)
			if bound := g.Bound(horizon); regret > bound {
				t.Errorf("%s: regret %g after %d slots, the bound is %g", name, regret, horizon, bound)
			}
			perRoot = append(perRoot, regret/math.Sqrt(float64(horizon)))
		}
		t.Logf("%s: regret over the root of the horizon %.3g", name, perRoot)
		for i := 1; i < len(perRoot); i++ {
			if perRoot[i] > 1.1*max(perRoot[0], 0.1) {
				t.Errorf("%s: regret over the root of the horizon grows: %v", name, perRoot)
			}
		}
	}
}

// regretOf returns an upper bound of the regret: a bound of the best stationary reward minus the reward.
func regretOf(g *Graph, horizon int, rates Rates, chance func(slot, port int) float64) float64 {
	rng := rand.New(rand.NewPCG(1, uint64(horizon)))
	a, had := NewLearner(g, rates), 0.0
	count := make([]float64, len(g.Request))
	for s := range horizon {
		x := make([]float64, len(g.Request))
		for l := range x {
			if rng.Float64() < chance(s, l) {
				x[l] = 1
				count[l]++
			}
		}
		had += g.Reward(x, a.Decision())
		a.Learn(x)
	}
	_, _, bound := g.Best(count, 4000)
	return bound - had
}

func TestSeveralArrivalsOfAPort(t *testing.T) {
	t.Parallel()
	g := draw(3, 3, 2, 2, 1, Linear)
	several, from, err := g.Several([]int{2, 1, 3})
	if err != nil || fmt.Sprint(from) != "[0 0 1 2 2 2]" || fmt.Sprint(several.Ports[0]) != "[0 1 2 3 4 5]" {
		t.Fatalf("%v, ports %v, %v", from, several.Ports, err)
	}
	if x := Arrivals(from, []int{1, 0, 2}); fmt.Sprint(x) != "[1 0 0 1 1 0]" {
		t.Errorf("one job of the first port and two of the last are %v", x)
	}
	a := NewLearner(several, Rates{1, 1})
	for range 10 {
		a.Learn(Arrivals(from, []int{2, 1, 3}))
	}
	for r := range several.Ports {
		if part := several.Of(a.Decision(), r, 0); part[0] != part[1] || part[3] != part[5] {
			t.Errorf("jobs of one port get %v", part)
		}
	}
}

func TestInvalidGraphs(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*Graph){
		"request":  func(g *Graph) { g.Request[0] = g.Request[0][:1] },
		"capacity": func(g *Graph) { g.Capacity = g.Capacity[:1] },
		"alpha":    func(g *Graph) { g.Alpha[0] = nil },
		"ports":    func(g *Graph) { g.Ports[0] = []int{1, 0} },
		"beyond":   func(g *Graph) { g.Ports[0] = []int{9} },
	} {
		g := draw(1, 3, 2, 2, 1, Linear)
		spoil(g)
		if g.Ready() == nil {
			t.Errorf("%s: taken as it is", name)
		}
	}
}

// BenchmarkSlot is one slot, its reward included, of the paper's default setting with every port on every instance, and
// of its largest one. A horizon is 8,000 and 10,000 slots in the paper, for one hour and for 15.
func BenchmarkSlot(b *testing.B) {
	for _, c := range []struct{ ports, instances int }{{10, 128}, {100, 1024}} {
		b.Run(fmt.Sprintf("%d-ports-%d-instances", c.ports, c.instances), func(b *testing.B) {
			g := draw(1, c.ports, c.instances, 6, 1, Linear, Log, Reciprocal, Poly)
			a, rng := NewLearner(g, Rates{25, 0.9999}), rand.New(rand.NewPCG(2, 2))
			x := make([]float64, c.ports)
			for b.Loop() {
				for l := range x {
					x[l] = 0
					if rng.Float64() < 0.7 {
						x[l] = 1
					}
				}
				g.Reward(x, a.Decision())
				a.Learn(x)
			}
		})
	}
}
