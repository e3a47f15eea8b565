package ascent

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// A point is the projection if and only if it is feasible and some theta >= 0 shifts all of z to it within the bounds,
// where theta is 0 if the limit is not reached. These are the Karush-Kuhn-Tucker conditions of the least square.
func TestProjectionMeetsItsConditions(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 40).Draw(t, "n")
		scale := math.Pow(10, float64(rapid.IntRange(-4, 5).Draw(t, "scale")))
		z, most := make([]float64, n), make([]float64, n)
		for i := range z {
			z[i] = scale * rapid.Float64Range(-2, 3).Draw(t, "z")
			most[i] = scale * rapid.SampledFrom([]float64{0, 0.1, 0.5, 1, 1, 4}).Draw(t, "most")
		}
		limit := scale * rapid.SampledFrom([]float64{0, 0.01, 0.3, 1, 2.5, 10, 1000}).Draw(t, "limit")
		y := append([]float64(nil), z...)
		Project(y, most, limit)
		checkConditions(t, z, y, most, limit, 1e-9*(scale+limit))
	})
}

func checkConditions(t *rapid.T, z, y, most []float64, limit, eps float64) {
	t.Helper()
	sum, low, high := 0.0, 0.0, math.Inf(1)
	for i := range y {
		if y[i] < 0 || y[i] > most[i] {
			t.Fatalf("entry %d is %g, of at most %g", i, y[i], most[i])
		}
		sum += y[i]
		if y[i] < most[i] { // theta is at least z - y, or more would have been taken
			low = max(low, z[i]-y[i])
		}
		if y[i] > 0 { // and at most z - y
			high = min(high, z[i]-y[i])
		}
	}
	if sum > limit+eps {
		t.Fatalf("the sum %g is above %g", sum, limit)
	}
	if low > high+eps {
		t.Fatalf("no theta: at least %g, at most %g", low, high)
	}
	if sum < limit-eps && low > eps {
		t.Fatalf("theta is %g though only %g of %g is used", low, sum, limit)
	}
}

// Compares the projection of few entries with a search over every set of those at 0, at their bound and between, with
// and without the limit.
func TestProjectionIsTheClosestPoint(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 5).Draw(t, "n")
		z, most := make([]float64, n), make([]float64, n)
		for i := range z {
			z[i] = rapid.Float64Range(-2, 3).Draw(t, "z")
			most[i] = rapid.Float64Range(0, 2).Draw(t, "most")
		}
		limit := rapid.Float64Range(0, 4).Draw(t, "limit")
		y := append([]float64(nil), z...)
		Project(y, most, limit)
		got, want := distance(z, y), closest(z, most, limit)
		if math.Abs(got-want) > 1e-9*(1+want) {
			t.Fatalf("%v to %v is %g away, the closest point %g", z, y, got, want)
		}
	})
}

func distance(a, b []float64) float64 {
	sum := 0.0
	for i := range a {
		sum += (a[i] - b[i]) * (a[i] - b[i])
	}
	return sum
}

// closest returns the least square distance from z to a feasible point.
func closest(z, most []float64, limit float64) float64 {
	least := math.Inf(1)
	states := 1
	for range z {
		states *= 3
	}
	for s := range states {
		for _, full := range []bool{false, true} {
			y, free, sum, over := make([]float64, len(z)), []int{}, 0.0, 0.0
			for i, rest := 0, s; i < len(z); i, rest = i+1, rest/3 {
				switch rest % 3 {
				case 1:
					y[i] = most[i]
				case 2:
					y[i] = z[i]
					free = append(free, i)
				}
				sum += y[i]
			}
			if full && len(free) > 0 {
				over = (sum - limit) / float64(len(free))
			}
			sum = 0
			feasible := true
			for _, i := range free {
				y[i] -= over
				feasible = feasible && y[i] >= 0 && y[i] <= most[i]
			}
			for _, x := range y {
				sum += x
			}
			if feasible && sum <= limit+1e-12 {
				least = min(least, distance(z, y))
			}
		}
	}
	return least
}

// The paper's procedure checks only whether the largest z is above its bound. If the largest is not but another is, it
// would give the other more than its bound.
func TestPaperProjectionExceedsBounds(t *testing.T) {
	t.Parallel()
	y := []float64{10, 9, 1}
	Project(y, []float64{20, 2, 20}, 8)
	for i, want := range []float64{6, 2, 0} {
		if math.Abs(y[i]-want) > 1e-9 {
			t.Errorf("projected to %v", y)
		}
	}
}
