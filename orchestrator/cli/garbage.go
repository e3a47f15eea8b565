package cli

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// How much garbage a server or a worker lets gather before it is collected: three times what lives, which is three times
// the usual, but no more than mostGarbage, or as much as what lives if that is more. What they make is short-lived, a collection takes
// milliseconds that reports wait for, and with twice of them a second, as at 500 reports/s by default, more than one report
// in a hundred waits. With much that lives, as with 100,000 trials, collections are rare enough as it is.
const (
	garbagePercent = 300
	usualPercent   = 100
	mostGarbage    = 192 << 20
)

// collectLess lets that much garbage gather unless the user has an opinion.
func collectLess() {
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

// percentFor returns the garbage to allow, in percent of what lives, in steps of ten.
func percentFor(live uint64) int {
	percent := mostGarbage * 100 / max(live, 1)
	return int(min(max(percent, usualPercent), garbagePercent)) / 10 * 10
}

// afterCollections calls f after each collection of garbage, in the goroutine of finalizers.
func afterCollections(f func()) {
	type garbage struct{ _ [16]byte }
	var again func(*garbage)
	again = func(g *garbage) {
		f()
		runtime.SetFinalizer(g, again)
	}
	runtime.SetFinalizer(new(garbage), again)
}
