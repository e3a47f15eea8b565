// Package saturate multiplies and adds counts of steps. A result that does not fit is the largest one that does.
package saturate

import (
	"math"
	"math/bits"
)

// Power returns base^n, or math.MaxInt64 if that overflows.
func Power(base int64, n int) int64 {
	p := int64(1)
	for range n {
		p = Times(p, base)
	}
	return p
}

// Times returns a*b for a, b >= 0, or math.MaxInt64 if that overflows.
func Times(a, b int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi != 0 || lo > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(lo)
}

// Plus returns a+b for a, b >= 0, or math.MaxInt64 if that overflows.
func Plus(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
