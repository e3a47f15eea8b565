package tuner

import (
	"fmt"
	"math"
	"math/bits"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// maxTrials is the maximum number of trials that a tuner may plan without a trial limit.
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

// power returns base^n, or math.MaxInt64 if that overflows.
func power(base int64, n int) int64 {
	p := int64(1)
	for range n {
		p = times(p, base)
	}
	return p
}

// times returns a*b for a, b >= 0, or math.MaxInt64 if that overflows.
func times(a, b int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi != 0 || lo > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(lo)
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

// checkRungs checks the settings that all tuners with rungs share and returns them with defaults filled in. Field names
// in errors begin with the tuner's name.
func checkRungs(tuner string, maxSteps, minSteps, eta int64) (low, factor int64, err error) {
	if eta == 0 {
		eta = 3
	}
	if minSteps == 0 {
		minSteps = 1
	}
	switch {
	case eta < 2:
		return 0, 0, fmt.Errorf("tuner.%s.eta: must be at least 2, got %d; 3 is usual", tuner, eta)
	case minSteps < 0:
		return 0, 0, fmt.Errorf("tuner.%s.min_steps: %d is negative; use 1 or more", tuner, minSteps)
	case maxSteps < 1:
		return 0, 0, fmt.Errorf("tuner.%s.max_steps: must be at least 1, got %d", tuner, maxSteps)
	case minSteps > maxSteps:
		return 0, 0, fmt.Errorf("tuner.%s.min_steps: %d is more than max_steps (%d)", tuner, minSteps, maxSteps)
	}
	return minSteps, eta, nil
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

// plus returns a+b for a, b >= 0, or math.MaxInt64 if that overflows.
func plus(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// maxSteps returns the maximum number of steps of one trial, or 0 if the training code decides when to end.
func maxSteps(spec *outbidv1.SweepSpec) int64 {
	switch kind := spec.GetTuner().GetKind().(type) {
	case *outbidv1.Tuner_Random:
		return kind.Random.GetMaxSteps()
	case *outbidv1.Tuner_Grid:
		return kind.Grid.GetMaxSteps()
	case *outbidv1.Tuner_Sobol:
		return kind.Sobol.GetMaxSteps()
	case *outbidv1.Tuner_Bayes:
		return kind.Bayes.GetMaxSteps()
	case *outbidv1.Tuner_SuccessiveHalving:
		return kind.SuccessiveHalving.GetMaxSteps()
	case *outbidv1.Tuner_Hyperband:
		return kind.Hyperband.GetMaxSteps()
	case *outbidv1.Tuner_Asha:
		return kind.Asha.GetMaxSteps()
	case *outbidv1.Tuner_Median:
		return kind.Median.GetMaxSteps()
	case *outbidv1.Tuner_PerformanceCurve:
		return kind.PerformanceCurve.GetMaxSteps()
	case *outbidv1.Tuner_FreezeThaw:
		return kind.FreezeThaw.GetMaxSteps()
	case *outbidv1.Tuner_Pbt:
		return kind.Pbt.GetMaxSteps()
	case *outbidv1.Tuner_Plugin:
		return kind.Plugin.GetMaxSteps()
	default:
		return 0
	}
}
