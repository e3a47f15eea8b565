package themis

import (
	"fmt"
	"testing"
	"time"
)

// Zero means never, so the earlier of zero and another time is the other.
func TestEarlier(t *testing.T) {
	t.Parallel()
	never, early, late := time.Time{}, time.Unix(1, 0), time.Unix(2, 0)
	for _, tc := range [][3]time.Time{{never, never, never}, {never, early, early}, {early, never, early}, {early, late, early}, {late, early, early}} {
		if got := earlier(tc[0], tc[1]); !got.Equal(tc[2]) {
			t.Errorf("of %v and %v the earlier is %v", tc[0], tc[1], got)
		}
	}
}

// With stagger the node's name shifts its grid: other nodes have other ends, and every term of the node lies on the
// same grid.
func TestStaggeredTermsEndApart(t *testing.T) {
	t.Parallel()
	set := settings{lease: 10 * time.Minute, Variant: Variant{Grid: 1, Stagger: true}}
	now := time.Unix(100_000, 0)
	one, other := set.termEnd(now, "n1"), set.termEnd(now, "n2")
	again := set.termEnd(now.Add(3*set.lease), "n1")
	if one.Equal(other) || again.Sub(one)%set.lease != 0 {
		t.Errorf("terms end at %v, %v, and three later at %v", one, other, again)
	}
	spread := map[int64]bool{} // the eighths of the grid in which terms end
	for n := range 42 {
		spread[set.termEnd(now, fmt.Sprintf("machine-%d", n)).Unix()%600/75] = true
	}
	if len(spread) < 4 {
		t.Errorf("42 machines end their terms in %d eighths of the grid", len(spread))
	}
}
