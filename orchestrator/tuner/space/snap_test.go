package space

import (
	"math"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// The representative of a configuration gives that configuration. Without continuous numbers, all points of a
// configuration have the same representative.
func TestSnap(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := genSpace(t, rapid.Bool().Draw(t, "finite"))
		n := s.Snapper()
		u := genPoint(t, s)
		p, ok := n.Snap(u)
		cfg := s.At(u)
		if ok != s.Allowed(cfg) {
			t.Fatalf("allowed: %t", ok)
		}
		back := make([]float64, len(p))
		for i, x := range p {
			if back[i] = x; math.IsNaN(x) {
				back[i] = 0
			}
		}
		if again := s.At(back); !reflect.DeepEqual(again, cfg) {
			t.Fatalf("%v gives %v, and %v gives %v", u, cfg, p, again)
		}
		if q, _ := n.Snap(back); !same(p, q) {
			t.Fatalf("%v is %v, and that is %v", u, p, q)
		}
	})
}

// Every value of a wide range of whole numbers on a log scale keeps its value; the first ones have one representative each.
func TestSnapWideLogRange(t *testing.T) {
	t.Parallel()
	d, err := newInt("size", &outbidv1.IntRange{Low: 1, High: 4096, Log: true})
	if err != nil {
		t.Fatal(err)
	}
	steps, first := stepsOf(d), map[float64]bool{}
	for i := range 10_000 {
		u := (float64(i) + 0.5) / 10_000
		p := steps.middle(u)
		if d.at(p) != d.at(u) {
			t.Fatalf("%v gives %v, and %v gives %v", u, d.at(u), p, d.at(p))
		}
		if d.at(u).(int64) <= mostSnapped { //nolint:forcetypeassert // it is one
			first[p] = true
		}
	}
	if len(first) != mostSnapped {
		t.Errorf("%d representatives of the first %d values", len(first), mostSnapped)
	}
}

func same(a, b []float64) bool {
	for i := range a {
		if a[i] != b[i] && !(math.IsNaN(a[i]) && math.IsNaN(b[i])) {
			return false
		}
	}
	return true
}
