// Package ladder computes the rungs of brackets: their steps and how many trials enter them.
package ladder

import (
	"math/big"

	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/saturate"
)

// MaxTrials is the maximum number of trials that a tuner may plan without a trial limit, to catch a mistyped max_steps.
const MaxTrials = 10_000_000

// MaxRungs is the maximum number of rungs in a bracket: 2^62 is the largest power of two that is a valid step.
const MaxRungs = 63

// LogFloor returns floor(log_eta(high/low)) for 1 <= low <= high and eta >= 2. It uses integers because floating point
// logarithms are off by one for values such as log_3(243).
func LogFloor(low, high, eta int64) int {
	n := 0
	for q := high / eta; q >= low; q /= eta {
		n++
	}
	return n
}

// Rising returns the last steps of the rungs from low to high: low * eta^k, with the last one raised to high so
// that the longest trials train for exactly the requested steps. There are s_max + 1 of them, in the papers' notation.
func Rising(low, high, eta int64) []int64 {
	n := LogFloor(low, high, eta)
	levels := make([]int64, n+1)
	for k := range levels {
		levels[k] = low * saturate.Power(eta, k)
	}
	levels[n] = high
	return levels
}

// Higher returns the levels of the rungs, at least one, to add above top when a sweep is extended to high steps.
func Higher(top, high, eta int64) []int64 {
	levels := Rising(top, high, eta)[1:]
	if len(levels) == 0 {
		return []int64{high}
	}
	return levels
}

// AddOutlook adds a bracket to o; sizes[i] trials enter its rung i.
func AddOutlook(o *tuner.Outlook, label int, levels []int64, sizes []int) {
	from := int64(0)
	for i, level := range levels {
		if sizes[i] == 0 {
			return
		}
		steps := saturate.Times(int64(sizes[i]), level-from)
		o.Rungs = append(o.Rungs, tuner.Rung{Bracket: label, UntilStep: level, Trials: sizes[i], Steps: steps})
		o.Steps = saturate.Plus(o.Steps, steps)
		from = level
	}
}

// BracketTrials returns ceil((smax+1)/(s+1) * eta^s), or math.MaxInt64 if that overflows.
func BracketTrials(smax, s int, eta int64) int64 {
	n := new(big.Int).Exp(big.NewInt(eta), big.NewInt(int64(s)), nil)
	n.Mul(n, big.NewInt(int64(smax+1)))
	n.Add(n, big.NewInt(int64(s)))
	n.Div(n, big.NewInt(int64(s+1)))
	if !n.IsInt64() {
		return 1<<63 - 1
	}
	return n.Int64()
}
