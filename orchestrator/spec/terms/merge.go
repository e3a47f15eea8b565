package terms

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Merge is the way to average a trial's forks.
type Merge struct {
	// Uniform weights all forks equally; otherwise they are weighted by the steps that they did.
	Uniform bool
	// Outer applies an outer optimizer with this rate and momentum to the mean.
	Outer          bool
	Rate, Momentum float64
	// Best accepts the mean only if its first reported metric is not worse than the best fork's.
	Best bool
}

// These are the outer optimizer's settings that the DiLoCo paper found best.
const (
	outerRate     = 0.7
	outerMomentum = 0.9
)

// ParseMerge reads resources.forks_merge: "" or "steps", "uniform", "best", "outer", or "outer(RATE, MOMENTUM)".
func ParseMerge(text string) (Merge, error) {
	switch text {
	case "", "steps":
		return Merge{}, nil
	case "uniform":
		return Merge{Uniform: true}, nil
	case "best":
		return Merge{Best: true}, nil
	case "outer":
		return Merge{Outer: true, Rate: outerRate, Momentum: outerMomentum}, nil
	}
	bad := func(why string) (Merge, error) {
		return Merge{}, fmt.Errorf("%q %s; write steps, uniform, best, outer, or outer(RATE, MOMENTUM) such as outer(0.7, 0.9)", text, why)
	}
	inside, ok := strings.CutPrefix(text, "outer(")
	inside, closed := strings.CutSuffix(inside, ")")
	rateText, momentumText, both := strings.Cut(inside, ",")
	if !ok || !closed || !both {
		return bad("is unknown")
	}
	rate, rateErr := strconv.ParseFloat(strings.TrimSpace(rateText), 64)
	momentum, momentumErr := strconv.ParseFloat(strings.TrimSpace(momentumText), 64)
	switch {
	case rateErr != nil || momentumErr != nil:
		return bad("has a rate or momentum that is not a number")
	case !(rate > 0) || math.IsInf(rate, 0):
		return bad("has a rate that is not above 0")
	case !(momentum >= 0 && momentum < 1):
		return bad("has a momentum that is not at least 0 and below 1")
	}
	return Merge{Outer: true, Rate: rate, Momentum: momentum}, nil
}
