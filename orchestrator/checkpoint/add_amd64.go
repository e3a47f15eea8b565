package checkpoint

import (
	"math"

	"golang.org/x/sys/cpu"

	"github.com/outbid-dev/outbid/orchestrator/checkpoint/safetensors"
)

//go:noescape
func setF32AVX2(sum *float64, raw *byte, n int, weight float64)

//go:noescape
func setBF16AVX2(sum *float64, raw *byte, n int, weight float64)

//go:noescape
func setF16AVX2(sum *float64, raw *byte, n int, weight float64)

//go:noescape
func addF32AVX2(sum *float64, raw *byte, n int, weight float64)

//go:noescape
func addBF16AVX2(sum *float64, raw *byte, n int, weight float64)

//go:noescape
func addF16AVX2(sum *float64, raw *byte, n int, weight float64)

//go:noescape
func putF32AVX2(raw *byte, sum *float64, n int) (finite bool)

//go:noescape
func putAVX2(raw *byte, sum *float64, n int, shift, half, low, span, one uint64, small float64) int

//go:noescape
func fuseF32AVX2(sum *float64, raw *[]byte, weights *float64, files, n int)

//go:noescape
func fuseBF16AVX2(sum *float64, raw *[]byte, weights *float64, files, n int)

// setVectors says how many of the first numbers it set, which is none where the machine or the type has no vectors for it.
// The compiler makes no vectors, and averaging shall be about as fast as reading.
func setVectors(sum []float64, raw []byte, weight float64, d safetensors.DType) int {
	n := len(sum) / 8 * 8
	if n == 0 || !cpu.X86.HasAVX2 {
		return 0
	}
	switch d {
	case safetensors.F32:
		setF32AVX2(&sum[0], &raw[:4*n][0], n, weight)
	case safetensors.BF16:
		setBF16AVX2(&sum[0], &raw[:2*n][0], n, weight)
	case safetensors.F16:
		// F16C came before AVX2: whatever has the second has the first.
		setF16AVX2(&sum[0], &raw[:2*n][0], n, weight)
	default:
		return 0
	}
	return n
}

// addVectors says how many of the first numbers it added, as setVectors.
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
		addF16AVX2(&sum[0], &raw[:2*n][0], n, weight)
	default:
		return 0
	}
	return n
}

// fuseVectors says how many of the first numbers it added up, as fuse.
func fuseVectors(sum []float64, raw [][]byte, weights []float64, d safetensors.DType) int {
	n := len(sum) / 32 * 32
	if n == 0 || !cpu.X86.HasAVX2 {
		return 0
	}
	for _, r := range raw {
		_ = r[:int64(n)*d.Size()]
	}
	switch d {
	case safetensors.F32:
		fuseF32AVX2(&sum[0], &raw[0], &weights[0], len(raw), n)
	case safetensors.BF16:
		fuseBF16AVX2(&sum[0], &raw[0], &weights[0], len(raw), n)
	default:
		return 0
	}
	return n
}

// putWide says how many of the first numbers it rounded to float32 and wrote, and whether all of those are finite.
func putWide(raw []byte, sum []float64) (n int, finite bool) {
	if n = len(sum) / 8 * 8; n == 0 || !cpu.X86.HasAVX2 {
		return 0, true
	}
	return n, putF32AVX2(&raw[:4*n][0], &sum[0], n)
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
	small := math.Ldexp(1, l.bias()-1+int(l.fraction))
	return putAVX2(&raw[:2*n][0], &sum[0], n, shift, 1<<(shift-1)-1, low, span, 1<<l.fraction, small)
}
