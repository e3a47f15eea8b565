package gavel

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The numbers are Python 3.11's: r = random.Random(5); r.randrange(10) eight times, r.shuffle, r.getrandbits(32).
func TestMersenneMatchesPython(t *testing.T) {
	t.Parallel()
	m := NewMersenne(5, 0)
	var got []int
	for range 8 {
		got = append(got, m.Below(10))
	}
	if diff := cmp.Diff([]int{9, 4, 5, 8, 0, 7, 3, 0}, got); diff != "" {
		t.Error(diff)
	}
	list := []int{0, 1, 2, 3, 4, 5}
	m.Shuffle(list)
	if diff := cmp.Diff([]int{3, 4, 5, 2, 0, 1}, list); diff != "" {
		t.Error(diff)
	}
	again := NewMersenne(m.Seed, m.Draws)
	if a, b := m.Uint32(), again.Uint32(); a != b || a != 1635342798 {
		t.Errorf("next draw %d, after a restore %d, want 1635342798", a, b)
	}
}
