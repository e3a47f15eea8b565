package sample

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The first points equal those of the published implementation (and of scipy.stats.qmc.Sobol without scramble).
func TestSobolKnownPoints(t *testing.T) {
	t.Parallel()
	v := directions(5)
	want := [][]float64{
		{0, 0, 0, 0, 0},
		{0.5, 0.5, 0.5, 0.5, 0.5},
		{0.75, 0.25, 0.25, 0.25, 0.75},
		{0.25, 0.75, 0.75, 0.75, 0.25},
		{0.375, 0.375, 0.625, 0.875, 0.375},
		{0.875, 0.875, 0.125, 0.375, 0.875},
		{0.625, 0.125, 0.875, 0.625, 0.625},
		{0.125, 0.625, 0.375, 0.125, 0.125},
		{0.1875, 0.3125, 0.9375, 0.4375, 0.5625},
		{0.6875, 0.8125, 0.4375, 0.9375, 0.0625},
	}
	for n, row := range want {
		var got []float64
		for d := range v {
			got = append(got, unit(sobol(&v[d], uint32(n))))
		}
		if diff := cmp.Diff(row, got); diff != "" {
			t.Errorf("point %d (-want +got):\n%s", n, diff)
		}
	}
}
