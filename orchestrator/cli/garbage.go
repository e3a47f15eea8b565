package cli

import (
	"os"
	"runtime/debug"
)

// garbagePercent is how much garbage, in percent of what lives, a server or a worker lets gather before it is collected:
// three times the usual. What they make is short-lived, a collection takes milliseconds that reports wait for, and with
// twice of them a second, as at 500 reports/s by default, more than one report in a hundred waits.
const garbagePercent = 300

// collectLess applies garbagePercent unless the user has an opinion.
func collectLess() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(garbagePercent)
	}
}
