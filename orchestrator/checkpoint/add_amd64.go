package checkpoint

import (
	"golang.org/x/sys/cpu"

	"github.com/outbid-dev/outbid/orchestrator/checkpoint/safetensors"
)

//go:noescape
func addF32AVX2(sum *float64, raw *byte, n int, weight float64)

//go:noescape
func addBF16AVX2(sum *float64, raw *byte, n int, weight float64)

//go:noescape
func addF16AVX2(sum *float64, raw *byte, n int, weight float64)

//go:noescape
func putAVX2(raw *byte, sum *float64, n int, shift, half, low, span, one uint64) int

// addVectors says how many of the first numbers it added, which is none where the machine or the type has no vectors for it.
// The compiler makes no vectors, and averaging shall be about as fast as reading.
func addVectors(sum []float64, raw []byte, weight float64, d safetensors.DType) int {
	n := len(sum) / 8 * 8
	if n == 0 || !cpu.X86.HasAVX2 {
		return 0
	}
	switch d {
	case safetensors.F32:
		addF32AVX2(&sum[0], &raw[:4*n][0], n, weight)
	case safetensors.BF16:
		addBF16AVX2(&sum[0], &raw[:2*n][0], n, weight)
	case safetensors.F16:
		// F16C came before AVX2: whatever has the second has the first.
		addF16AVX2(&sum[0], &raw[:2*n][0], n, weight)
	default:
		return 0
	}
	return n
}

// putVectors says how many of the first numbers it rounded to a type of 16 bits and wrote.
func putVectors(raw []byte, sum []float64, l layout) int {
	n := len(sum) / 4 * 4
	if n == 0 || !cpu.X86.HasAVX2 {
		return 0
	}
	shift := uint64(52 - l.fraction)
	low := uint64(1023-l.bias()+1) << l.fraction    // 1 as the exponent, before it is counted from another bias
	span := uint64(1<<l.exponent-2)<<l.fraction - 1 // from there to the largest finite number
	return putAVX2(&raw[:2*n][0], &sum[0], n, shift, 1<<(shift-1)-1, low, span, 1<<l.fraction)
}
