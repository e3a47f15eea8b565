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

// setVectors sets the first numbers and returns how many. It returns 0 if the machine or the type has no suitable
// vector instructions. The compiler does not vectorise, and averaging should be about as fast as reading.
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
		// F16C is older than AVX2: every CPU with AVX2 has it.
		setF16AVX2(&sum[0], &raw[:2*n][0], n, weight)
	default:
		return 0
	}
	return n
}

// addVectors adds the first numbers and returns how many, like setVectors.
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

// fuseVectors sums the first numbers like fuse and returns how many.
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

// putWide rounds the first numbers to float32 and writes them. It returns how many, and whether all of them are finite.
func putWide(raw []byte, sum []float64) (n int, finite bool) {
	if n = len(sum) / 8 * 8; n == 0 || !cpu.X86.HasAVX2 {
		return 0, true
	}
	return n, putF32AVX2(&raw[:4*n][0], &sum[0], n)
}

// putVectors rounds the first numbers to a 16-bit type, writes them and returns how many.
func putVectors(raw []byte, sum []float64, l layout) int {
	n := len(sum) / 4 * 4
	if n == 0 || !cpu.X86.HasAVX2 {
		return 0
	}
	shift := uint64(52 - l.fraction)
	low := uint64(1023-l.bias()+1) << l.fraction    // the exponent 1, converted to the float64 bias
	span := uint64(1<<l.exponent-2)<<l.fraction - 1 // distance from there to the largest finite number
	small := math.Ldexp(1, l.bias()-1+int(l.fraction))
	return putAVX2(&raw[:2*n][0], &sum[0], n, shift, 1<<(shift-1)-1, low, span, 1<<l.fraction, small)
}
