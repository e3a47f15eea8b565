package checkpoint

import (
	"encoding/binary"
	"math"

	"github.com/outbid-dev/outbid/orchestrator/checkpoint/safetensors"
)

// layout is the bit layout of a binary floating-point number with fewer than 64 bits.
type layout struct {
	exponent, fraction uint // bits
	// infinities is set if the largest exponent is reserved for infinities and NaN, as in IEEE 754. F8E4M3 does not
	// have infinities; its NaN has all bits set.
	infinities bool
}

// layoutOf returns the layout of an 8-bit or 16-bit type.
func layoutOf(d safetensors.DType) layout {
	switch d {
	case safetensors.F16:
		return layout{exponent: 5, fraction: 10, infinities: true}
	case safetensors.BF16:
		return layout{exponent: 8, fraction: 7, infinities: true}
	case safetensors.F8E5M2:
		return layout{exponent: 5, fraction: 2, infinities: true}
	default:
		return layout{exponent: 4, fraction: 3} // F8E4M3
	}
}

func (l layout) bias() int { return 1<<(l.exponent-1) - 1 }

// nan returns the bits of a NaN.
func (l layout) nan() uint16 {
	if l.infinities {
		return uint16(1<<(l.exponent+1)-1) << (l.fraction - 1)
	}
	return 1<<(l.exponent+l.fraction) - 1
}

// decode returns the number of these bits, which float64 represents exactly.
func (l layout) decode(bits uint16) float64 {
	sign := 1.0
	if bits>>(l.exponent+l.fraction)&1 == 1 {
		sign = -1
	}
	exponent := int(bits>>l.fraction) & (1<<l.exponent - 1)
	fraction := int(bits) & (1<<l.fraction - 1)
	switch {
	case l.infinities && exponent == 1<<l.exponent-1:
		if fraction != 0 {
			return math.NaN()
		}
		return math.Inf(int(sign))
	case !l.infinities && exponent == 1<<l.exponent-1 && fraction == 1<<l.fraction-1:
		return math.NaN()
	case exponent == 0:
		return sign * math.Ldexp(float64(fraction), 1-l.bias()-int(l.fraction))
	default:
		return sign * math.Ldexp(float64(fraction|1<<l.fraction), exponent-l.bias()-int(l.fraction))
	}
}

// encode returns the bits of the nearest number, rounding ties to even. A number beyond the largest becomes an infinity
// if the type has one, and otherwise NaN, as in PyTorch.
func (l layout) encode(v float64) uint16 {
	u := math.Float64bits(v)
	sign := uint16(u>>63) << (l.exponent + l.fraction)
	if u<<1 == 0 {
		return sign
	}
	shift := 52 - l.fraction
	// Adding just under half of the last kept bit, plus one if that bit is set, rounds to the nearest even. A carry out
	// of the fraction increments the exponent, which is correct.
	rounded := (u&(1<<63-1) + 1<<(shift-1) - 1 + u>>shift&1) >> shift
	exponent := int(rounded>>l.fraction) - 1023 + l.bias()
	if exponent >= 1 && exponent < 1<<l.exponent-1 {
		return sign | uint16(exponent)<<l.fraction | uint16(rounded)&(1<<l.fraction-1)
	}
	return l.encodeRare(v, sign, exponent, uint16(rounded)&(1<<l.fraction-1))
}

// encodeRare encodes a number outside the range of normal numbers, or in F8E4M3's last exponent.
func (l layout) encodeRare(v float64, sign uint16, exponent int, fraction uint16) uint16 {
	last := 1<<l.exponent - 1
	switch {
	case math.IsNaN(v):
		return l.nan()
	case exponent >= last && l.infinities:
		return sign | uint16(last)<<l.fraction
	case exponent == last && fraction != 1<<l.fraction-1:
		return sign | uint16(last)<<l.fraction | fraction
	case exponent >= last:
		return sign | l.nan()
	default: // Subnormal: a multiple of the smallest number. If it rounds up to 1<<fraction it is the first normal number.
		return sign | uint16(math.RoundToEven(math.Ldexp(math.Abs(v), l.bias()-1+int(l.fraction))))
	}
}

// fromF16 is decode for F16, with a float32 result. It moves the bits to their positions in a float32, and a product
// corrects the exponent, also for subnormal numbers.
func fromF16(bits uint16) float32 {
	if bits&0x7c00 == 0x7c00 { // an infinity or NaN
		return math.Float32frombits(uint32(bits&0x8000)<<16 | 0x7f800000 | uint32(bits&0x3ff)<<13)
	}
	return math.Float32frombits(uint32(bits&0x8000)<<16|uint32(bits&0x7fff)<<13) * 0x1p112
}

// fromF8E4M3 is decode for F8E4M3, like fromF16.
func fromF8E4M3(bits uint8) float32 {
	if bits&0x7f == 0x7f {
		return float32(math.NaN())
	}
	return math.Float32frombits(uint32(bits&0x80)<<24|uint32(bits&0x7f)<<20) * 0x1p120
}

// set sets sum to weight times each number of raw. This is what add returns for a sum of -0.
func set(sum []float64, raw []byte, weight float64, d safetensors.DType) {
	n := setVectors(sum, raw, weight, d)
	for i := range sum[n:] {
		sum[n+i] = math.Copysign(0, -1) // adding any number, even -0, replaces it
	}
	addEach(sum[n:], raw[int64(n)*d.Size():], weight, d)
}

// add adds weight times each number of raw to sum. raw has len(sum) elements of a floating-point type, little-endian.
func add(sum []float64, raw []byte, weight float64, d safetensors.DType) {
	n := addVectors(sum, raw, weight, d)
	addEach(sum[n:], raw[int64(n)*d.Size():], weight, d)
}

// addEach is add without vector instructions.
func addEach(sum []float64, raw []byte, weight float64, d safetensors.DType) {
	le := binary.LittleEndian
	switch d {
	case safetensors.F64:
		for i := range sum {
			sum[i] += weight * math.Float64frombits(le.Uint64(raw[8*i:]))
		}
	case safetensors.F32:
		for i := range sum {
			sum[i] += weight * float64(math.Float32frombits(le.Uint32(raw[4*i:])))
		}
	case safetensors.BF16:
		for i := range sum {
			sum[i] += weight * float64(math.Float32frombits(uint32(le.Uint16(raw[2*i:]))<<16))
		}
	case safetensors.F16:
		for i := range sum {
			sum[i] += weight * float64(fromF16(le.Uint16(raw[2*i:])))
		}
	case safetensors.F8E5M2:
		for i, b := range raw[:len(sum)] {
			sum[i] += weight * float64(fromF16(uint16(b)<<8))
		}
	case safetensors.F8E4M3:
		for i, b := range raw[:len(sum)] {
			sum[i] += weight * float64(fromF8E4M3(b))
		}
	}
}

// addDifference adds weight times the difference between each 64-bit number of raw and base.
func addDifference(sum []float64, raw []byte, base []float64, weight float64) {
	for i := range sum {
		sum[i] += weight * (math.Float64frombits(binary.LittleEndian.Uint64(raw[8*i:])) - base[i])
	}
}

// put rounds each number of sum to the nearest of the type and writes it to raw. It reports whether all of them are
// finite.
func put(raw []byte, sum []float64, d safetensors.DType) (finite bool) {
	le := binary.LittleEndian
	check := 0.0 // stays 0 while all are finite: 0 times an infinity or NaN is NaN
	switch d {
	case safetensors.F64:
		for i, v := range sum {
			check += 0 * v
			le.PutUint64(raw[8*i:], math.Float64bits(v))
		}
	case safetensors.F32:
		n, finite := putWide(raw, sum)
		for i := n; i < len(sum); i++ {
			check += 0 * sum[i]
			le.PutUint32(raw[4*i:], math.Float32bits(float32(sum[i])))
		}
		return finite && check == 0
	case safetensors.BF16, safetensors.F16:
		l := layoutOf(d)
		for i := 0; i < len(sum); i++ {
			if i += putVectors(raw[2*i:], sum[i:], l); i == len(sum) {
				break
			}
			check += 0 * sum[i]
			le.PutUint16(raw[2*i:], l.encode(sum[i]))
		}
	case safetensors.F8E5M2, safetensors.F8E4M3:
		l := layoutOf(d)
		for i, v := range sum {
			check += 0 * v
			raw[i] = byte(l.encode(v))
		}
	}
	return check == 0
}
