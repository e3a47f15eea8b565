package container

import "testing"

func TestWholeCPUs(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		limit float64
		n     int
		want  int
	}{
		{0, 8, 8}, {0.1, 8, 1}, {1, 8, 1}, {1.5, 8, 1}, {1.99999, 8, 2}, {2, 8, 2}, {3.9, 8, 3}, {64, 8, 8}, {0.5, 1, 1},
	} {
		if got := (Limits{CPUs: c.limit}).WholeCPUs(c.n); got != c.want {
			t.Errorf("a limit of %v CPUs on %d: %d, want %d", c.limit, c.n, got, c.want)
		}
	}
}
