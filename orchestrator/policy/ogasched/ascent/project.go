package ascent

import "math"

// Project replaces z by the closest point, in least squares, among those with 0 <= y_l <= most_l and a sum of at most
// limit: min(max(z_l - theta, 0), most_l), with the one theta >= 0 that meets the limit, or 0 if the limit is met
// already. The paper's procedure (algorithm 1) checks only whether the largest z is at its bound, which does not give
// the closest point if bounds differ.
func Project(z, most []float64, limit float64) {
	sum, high := 0.0, 0.0
	for i, x := range z {
		sum += min(max(x, 0), most[i])
		high = max(high, x)
	}
	theta := 0.0
	if sum > limit {
		theta = shift(z, most, limit, high)
	}
	for i, x := range z {
		z[i] = min(max(x-theta, 0), most[i])
	}
}

// tolerance of the sum, relative to the limit.
const tolerance = 1e-13

// shift returns the theta between 0, where the sum is above the limit, and high, where it is 0. The sum is piecewise
// linear and falls with theta, so a Newton step from the right piece hits it. A step that leaves the bracket is
// replaced by bisection.
func shift(z, most []float64, limit, high float64) float64 {
	low, theta := 0.0, 0.0
	for range 200 {
		sum, slope := 0.0, 0
		for i, x := range z {
			y := x - theta
			switch {
			case y <= 0:
			case y >= most[i]:
				sum += most[i]
			default:
				sum += y
				slope++
			}
		}
		over := sum - limit
		if math.Abs(over) <= tolerance*(1+limit) {
			return theta
		}
		if over > 0 {
			low = theta
		} else {
			high = theta
		}
		next := low
		if slope > 0 {
			next = theta + over/float64(slope)
		}
		if next <= low || next >= high {
			next = low + (high-low)/2
		}
		if next == theta {
			return theta
		}
		theta = next
	}
	return high // the side that meets the limit
}
