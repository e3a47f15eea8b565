//go:build !race

package control_test

// raceEnabled reports whether the race detector is on, which makes everything many times slower.
const raceEnabled = false
