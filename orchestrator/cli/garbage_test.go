package cli

import (
	"runtime"
	"testing"
	"time"
)

func TestGarbageThatMayGather(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	for _, tc := range []struct {
		live uint64
		want int
	}{{0, 300}, {20 * mib, 300}, {64 * mib, 300}, {65 * mib, 290}, {96 * mib, 200}, {150 * mib, 120}, {192 * mib, 100}, {1 << 40, 100}} {
		if got := percentFor(tc.live); got != tc.want {
			t.Errorf("%d MiB live: %d %%, want %d %%", tc.live/mib, got, tc.want)
		}
	}
}

func TestAfterEachCollection(t *testing.T) {
	t.Parallel()
	heard := make(chan struct{}, 100)
	afterCollections(func() { heard <- struct{}{} })
	for i := range 3 {
		runtime.GC()
		select {
		case <-heard:
		case <-time.After(time.Minute):
			t.Fatalf("%d collections were heard of", i)
		}
	}
}
