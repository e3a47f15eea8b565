package slots

import (
	"fmt"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/outbid-dev/outbid/orchestrator/policy/ogasched/ascent"
)

// two returns a graph in which two ports share one instance of two kinds, and the second port has another instance to
// itself.
func two(t *testing.T) *ascent.Graph {
	t.Helper()
	line := []ascent.Utility{ascent.Linear, ascent.Linear}
	g := &ascent.Graph{
		Request: [][]float64{{6, 1}, {3, 3}}, Capacity: [][]float64{{6, 2}, {4, 4}}, Ports: [][]int{{0, 1}, {1}},
		Alpha: [][]float64{{1, 1}, {1, 1}}, Utility: [][]ascent.Utility{line, line}, Beta: []float64{0.5, 0.25},
	}
	if err := g.Ready(); err != nil {
		t.Fatal(err)
	}
	return g
}

func TestRivalsDivideAsTheyAreDescribed(t *testing.T) {
	t.Parallel()
	g := two(t)
	// The entries are, for the first instance, both ports' of kind 0 and of kind 1; then the second port's of the
	// second instance.
	for name, c := range map[string]struct {
		arrivals []float64
		by       rival
		want     ascent.Decision
	}{
		// dominant shares are 6/6 and 3/6 (kind 1: 3 of 2+4)
		"DRF":               {[]float64{1, 1}, drf(g), ascent.Decision{3, 3, 0, 2, 3, 3}},
		"DRF, one came":     {[]float64{1, 0}, drf(g), ascent.Decision{6, 0, 1, 0, 0, 0}},
		"Fairness":          {[]float64{1, 1}, fairness, ascent.Decision{4, 2, 0.5, 1.5, 3, 3}},
		"Fairness, one":     {[]float64{0, 1}, fairness, ascent.Decision{0, 3, 0, 2, 3, 3}},
		"BinPacking":        {[]float64{1, 1}, scored(g, 1), ascent.Decision{6, 0, 1, 1, 3, 3}},
		"Spreading":         {[]float64{1, 1}, scored(g, -1), ascent.Decision{6, 0, 1, 1, 3, 3}},
		"Spreading, no job": {[]float64{0, 0}, scored(g, -1), ascent.Decision{0, 0, 0, 0, 0, 0}},
	} {
		y := g.Zero()
		c.by(g, c.arrivals, y)
		if diff := cmp.Diff(c.want, y, cmpopts.EquateApprox(0, 1e-12)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	// By hand: the first port has 3 - 0.5*3, the second 3+2+3+3 minus the larger of 0.5*6 and 0.25*5.
	if got := g.Reward([]float64{1, 1}, ascent.Decision{3, 3, 0, 2, 3, 3}); math.Abs(got-(1.5+8)) > 1e-12 {
		t.Errorf("the reward of DRF's division is %g, want 9.5", got)
	}
}

// No policy gives more than the capacity, more than a request, or anything to a port without a job.
func TestRivalsStayFeasible(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := Default()
		s.Instances, s.Ports = 6, 5
		g, err := s.Draw(rapid.Uint64().Draw(t, "seed"))
		if err != nil {
			t.Fatal(err)
		}
		arrivals := make([]float64, s.Ports)
		for l := range arrivals {
			arrivals[l] = float64(rapid.IntRange(0, 1).Draw(t, "came"))
		}
		for i, by := range []rival{drf(g), fairness, scored(g, 1), scored(g, -1)} {
			y := g.Zero()
			by(g, arrivals, y)
			closest := append(ascent.Decision(nil), y...)
			g.Project(closest)
			if diff := cmp.Diff(y, closest, cmpopts.EquateApprox(0, 1e-9)); diff != "" {
				t.Fatalf("rival %d is not feasible:\n%s", i, diff)
			}
			for r, ports := range g.Ports {
				for k := range g.Beta {
					for j, x := range g.Of(y, r, k) {
						if arrivals[ports[j]] == 0 && x != 0 {
							t.Fatalf("rival %d gives %g to a port without a job", i, x)
						}
					}
				}
			}
		}
	})
}

// Runs are reproducible, and the regret with steps by theory stays within the theorem's bound.
func TestRunsAreReproducible(t *testing.T) {
	t.Parallel()
	s := Default()
	s.Ports, s.Instances, s.Horizon = 4, 3, 200
	for _, name := range Names() {
		first, err := Run(s, name, 5)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Run(s, name, 5)
		if err != nil || fmt.Sprint(first) != fmt.Sprint(again) || first.Cumulative <= 0 {
			t.Errorf("%s: %+v, then %+v, %v", name, first, again, err)
		}
	}
	theory, err := Run(s, Names()[1], 5, 100, 200)
	if err != nil || len(theory.Regret) != 2 {
		t.Fatalf("%+v, %v", theory, err)
	}
	if last := theory.Regret[1]; last.Least > last.Most*(1+1e-9) || last.Most > last.Theorem {
		t.Errorf("regret %+v", last)
	}
	if _, err := Run(s, "DRS", 1); err == nil {
		t.Error("a policy that is not there runs")
	}
}
