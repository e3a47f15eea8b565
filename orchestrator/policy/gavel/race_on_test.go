//go:build race

package gavel

// raceEnabled says that the race detector runs, which makes everything many times slower.
const raceEnabled = true
