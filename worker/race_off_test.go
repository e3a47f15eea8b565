//go:build !race

package worker

// raceEnabled says that the race detector runs, which makes everything many times slower.
const raceEnabled = false
