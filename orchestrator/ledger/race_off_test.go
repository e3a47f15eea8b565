//go:build !race

package ledger_test

// raceEnabled says that the race detector runs, which makes everything many times slower.
const raceEnabled = false
