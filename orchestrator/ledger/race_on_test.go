//go:build race

package ledger_test

// raceEnabled reports whether the race detector is on, which makes everything many times slower.
const raceEnabled = true
