package tuner

import (
	"fmt"
	"math"
	"math/bits"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// maxTrials bounds the trials that a plan may hold by itself.
const maxTrials = 10_000_000

// maxRungs is the most rungs a bracket can have: 2^62 is the last power of two among the steps.
const maxRungs = 63

// logFloor is floor(log_eta(high/low)) for 1 <= low <= high and eta >= 2, in whole numbers: the logarithm of floats
// is off by one for values such as log_3(243).
func logFloor(low, high, eta int64) int {
	n := 0
	for q := high / eta; q >= low; q /= eta {
		n++
	}
	return n
}

// power is base^n, or math.MaxInt64 if that does not fit.
func power(base int64, n int) int64 {
	p := int64(1)
	for range n {
		p = times(p, base)
	}
	return p
}

// times is a*b for a, b >= 0, or math.MaxInt64 if that does not fit.
func times(a, b int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi != 0 || lo > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(lo)
}

// risingLevels are the steps at which the rungs from low to high end: low * eta^k, the last one moved up to high, so
// that the longest trials are trained for exactly the steps asked for. Their number is the papers' s_max + 1.
func risingLevels(low, high, eta int64) []int64 {
	n := logFloor(low, high, eta)
	levels := make([]int64, n+1)
	for k := range levels {
		levels[k] = low * power(eta, k)
	}
	levels[n] = high
	return levels
}

// higherLevels are the rungs to put above top when a sweep is extended to high steps: at least one.
func higherLevels(top, high, eta int64) []int64 {
	levels := risingLevels(top, high, eta)[1:]
	if len(levels) == 0 {
		return []int64{high}
	}
	return levels
}

// checkRungs checks the settings that all tuners with rungs share, and puts in the defaults. The names of the fields in
// errors begin with the tuner's.
func checkRungs(tuner string, maxSteps, minSteps, eta int64) (low, factor int64, err error) {
	if eta == 0 {
		eta = 3
	}
	if minSteps == 0 {
		minSteps = 1
	}
	switch {
	case eta < 2:
		return 0, 0, fmt.Errorf("tuner.%s.eta: %d is too small; the least is 2, 3 is usual", tuner, eta)
	case minSteps < 0:
		return 0, 0, fmt.Errorf("tuner.%s.min_steps: %d is negative; use 1 or more", tuner, minSteps)
	case maxSteps < 1:
		return 0, 0, fmt.Errorf("tuner.%s.max_steps: %d steps are no training; use 1 or more", tuner, maxSteps)
	case minSteps > maxSteps:
		return 0, 0, fmt.Errorf("tuner.%s.min_steps: %d is more than max_steps %d", tuner, minSteps, maxSteps)
	}
	return minSteps, eta, nil
}

// bracketOutlook adds a bracket whose rung i is entered by sizes[i] trials.
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

// plus is a+b for a, b >= 0, or math.MaxInt64 if that does not fit.
func plus(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// maxSteps is the most steps that a spec trains one trial for, 0 if its code ends by itself.
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
