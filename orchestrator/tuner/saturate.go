package tuner

import (
	"math"
	"math/bits"
)

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

// plus returns a+b for a, b >= 0, or math.MaxInt64 if that overflows.
func plus(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
