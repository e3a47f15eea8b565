package ascent

import "math"

// Utility is the gain of a job from the devices of one type on one instance (equation 60 of the paper): 0 without
// devices, with diminishing returns.
type Utility uint8

// The utilities, by the paper's names.
const (
	// Linear is alpha*y.
	Linear Utility = iota
	// Log is alpha*ln(y+1).
	Log
	// Reciprocal is 1/alpha - 1/(y+alpha).
	Reciprocal
	// Poly is alpha*sqrt(y+1) - alpha.
	Poly
)

// Gain returns the gain of y devices, where y >= 0 and alpha > 0.
func (u Utility) Gain(alpha, y float64) float64 {
	switch u {
	case Log:
		return alpha * math.Log1p(y)
	case Reciprocal:
		return 1/alpha - 1/(y+alpha)
	case Poly:
		return alpha*math.Sqrt(y+1) - alpha
	default:
		return alpha * y
	}
}

// Slope returns the derivative of Gain.
func (u Utility) Slope(alpha, y float64) float64 {
	switch u {
	case Log:
		return alpha / (y + 1)
	case Reciprocal:
		return 1 / ((y + alpha) * (y + alpha))
	case Poly:
		return alpha / (2 * math.Sqrt(y+1))
	default:
		return alpha
	}
}

// atSlope returns the number of devices, from 0 to most, where the slope has fallen to s: the best number at a unit
// price of s.
func (u Utility) atSlope(alpha, s, most float64) float64 {
	if s <= u.Slope(alpha, most) {
		return most
	}
	y := 0.0
	switch u {
	case Log:
		y = alpha/s - 1
	case Reciprocal:
		y = 1/math.Sqrt(s) - alpha
	case Poly:
		y = alpha*alpha/(4*s*s) - 1
	case Linear:
		return 0
	}
	return min(max(y, 0), most)
}
