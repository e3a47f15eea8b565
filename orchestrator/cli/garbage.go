package cli

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// The garbage collector's target for servers and workers: garbage of three times the live heap, three times Go's
// default, but at most mostGarbage, or the size of the live heap if that is larger. Most of their garbage is
// short-lived, and reports wait for the milliseconds of a collection. By default there are two collections per second
// at 500 reports/s, and more than one report in a hundred waits. With a large live heap, as with 100,000 trials,
// collections are rare anyway.
const (
	garbagePercent = 300
	usualPercent   = 100
	mostGarbage    = 192 << 20
)

// tuneGC applies this target unless the user sets GOGC.
func tuneGC() {
	if os.Getenv("GOGC") != "" {
		return
	}
	percent := garbagePercent
	debug.SetGCPercent(percent)
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	afterCollections(func() {
		metrics.Read(live)
		if next := percentFor(live[0].Value.Uint64()); next != percent {
			percent = next
			debug.SetGCPercent(percent)
		}
	})
}

// percentFor returns the allowed garbage in percent of the live heap, in steps of ten.
func percentFor(live uint64) int {
	percent := mostGarbage * 100 / max(live, 1)
	return int(min(max(percent, usualPercent), garbagePercent)) / 10 * 10
}

// afterCollections calls f after each garbage collection, in the finalizer goroutine.
func afterCollections(f func()) {
	type garbage struct{ _ [16]byte }
	var again func(*garbage)
	again = func(g *garbage) {
		f()
		runtime.SetFinalizer(g, again)
	}
	runtime.SetFinalizer(new(garbage), again)
}
