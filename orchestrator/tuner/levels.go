package tuner

import "math/big"

// maxTrials is the maximum number of trials that a tuner may plan without a trial limit, to catch a mistyped max_steps.
const maxTrials = 10_000_000

// maxRungs is the maximum number of rungs in a bracket: 2^62 is the largest power of two that is a valid step.
const maxRungs = 63

// logFloor returns floor(log_eta(high/low)) for 1 <= low <= high and eta >= 2. It uses integers because floating point
// logarithms are off by one for values such as log_3(243).
func logFloor(low, high, eta int64) int {
	n := 0
	for q := high / eta; q >= low; q /= eta {
		n++
	}
	return n
}

// risingLevels returns the last steps of the rungs from low to high: low * eta^k, with the last one raised to high so
// that the longest trials train for exactly the requested steps. There are s_max + 1 of them, in the papers' notation.
func risingLevels(low, high, eta int64) []int64 {
	n := logFloor(low, high, eta)
	levels := make([]int64, n+1)
	for k := range levels {
		levels[k] = low * power(eta, k)
	}
	levels[n] = high
	return levels
}

// higherLevels returns the levels of the rungs, at least one, to add above top when a sweep is extended to high steps.
func higherLevels(top, high, eta int64) []int64 {
	levels := risingLevels(top, high, eta)[1:]
	if len(levels) == 0 {
		return []int64{high}
	}
	return levels
}

// bracketOutlook adds a bracket to o; sizes[i] trials enter its rung i.
func bracketOutlook(o *Outlook, label int, levels []int64, sizes []int) {
	from := int64(0)
	for i, level := range levels {
		if sizes[i] == 0 {
			return
		}
		steps := times(int64(sizes[i]), level-from)
		o.Rungs = append(o.Rungs, Rung{Bracket: label, UntilStep: level, Trials: sizes[i], Steps: steps})
		o.Steps = plus(o.Steps, steps)
		from = level
	}
}

// hyperbandTrials returns ceil((smax+1)/(s+1) * eta^s), or math.MaxInt64 if that overflows.
func hyperbandTrials(smax, s int, eta int64) int64 {
	n := new(big.Int).Exp(big.NewInt(eta), big.NewInt(int64(s)), nil)
	n.Mul(n, big.NewInt(int64(smax+1)))
	n.Add(n, big.NewInt(int64(s)))
	n.Div(n, big.NewInt(int64(s+1)))
	if !n.IsInt64() {
		return 1<<63 - 1
	}
	return n.Int64()
}
