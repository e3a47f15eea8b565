package space

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Quantiles of the normal distribution from tables.
func TestNormalQuantiles(t *testing.T) {
	t.Parallel()
	s := compile(t, `{"x": {"normal": {"mean": 10, "sd": 2}}}`)
	for u, want := range map[float64]float64{0.5: 10, 0.975: 10 + 2*1.959964, 0.1586553: 8, 0.0013499: 4} {
		got, _ := s.At([]float64{u})["x"].(float64)
		if math.Abs(got-want) > 1e-4 {
			t.Errorf("quantile %v is %v, want %v", u, got, want)
		}
	}
	for _, u := range []float64{0, 1} {
		got, _ := s.At([]float64{u})["x"].(float64)
		if math.IsInf(got, 0) || math.Abs(got-10) < 10 {
			t.Errorf("the end at %v is %v", u, got)
		}
	}
}

func TestNormalInStepsAndGrids(t *testing.T) {
	t.Parallel()
	s := compile(t, `{"x": {"normal": {"mean": 0, "sd": 1, "quantum": 0.1}}}`)
	if got := s.At([]float64{0.6})["x"]; got != 0.3 {
		t.Errorf("got %v, want 0.3", got)
	}
	g, err := s.Grid(3)
	if err != nil {
		t.Fatal(err)
	}
	var got []any
	for i := range g.Size() {
		got = append(got, g.At(i)["x"])
	}
	if diff := cmp.Diff([]any{-1.0, 0.0, 1.0}, got); diff != "" {
		t.Error(diff)
	}
}

// A widened space may keep a normal or change its mean and deviation, because a normal contains every number.
func TestNormalContainsNormal(t *testing.T) {
	t.Parallel()
	a := compile(t, `{"x": {"normal": {"mean": 0, "sd": 1}}}`)
	b := compile(t, `{"x": {"normal": {"mean": 5, "sd": 9}}}`)
	c := compile(t, `{"x": {"float": {"low": 0, "high": 1}}}`)
	if err := b.Contains(a); err != nil {
		t.Error(err)
	}
	if a.Contains(c) == nil || c.Contains(a) == nil {
		t.Error("a normal took the place of a float range, or the other way round")
	}
}
