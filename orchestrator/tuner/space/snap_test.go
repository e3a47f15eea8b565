package space

import (
	"math"
	"reflect"
	"testing"

	"pgregory.net/rapid"
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

func same(a, b []float64) bool {
	for i := range a {
		if a[i] != b[i] && !(math.IsNaN(a[i]) && math.IsNaN(b[i])) {
			return false
		}
	}
	return true
}
