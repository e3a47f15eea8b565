//go:build race

package ledger_test

import (
	"flag"

	_ "pgregory.net/rapid" // defines the flag
)

// raceEnabled reports whether the race detector is on, which makes everything many times slower.
const raceEnabled = true

// Property tests try 20 examples under the race detector instead of 100, unless -rapid.checks is given. make test also
// runs them whole without it.
var _ = flag.Set("rapid.checks", "20")
