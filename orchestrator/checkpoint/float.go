package checkpoint

import (
	"encoding/binary"
	"math"

	"github.com/outbid-dev/outbid/orchestrator/checkpoint/safetensors"
)

// layout is how a binary floating-point number narrower than 64 bits lies in its bits.
type layout struct {
	exponent, fraction uint // bits
	// infinities says whether the largest exponent is kept for infinities and NaN, as IEEE 754 has it. F8E4M3 has none, and
	// all ones are its NaN.
	infinities bool
}

// layoutOf is the layout of a type of 8 or 16 bits.
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

// nan are the bits of a NaN.
func (l layout) nan() uint16 {
	if l.infinities {
		return uint16(1<<(l.exponent+1)-1) << (l.fraction - 1)
	}
	return 1<<(l.exponent+l.fraction) - 1
}

// decode gives the number of these bits, which float64 holds exactly.
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

// encode gives the bits of the nearest number, of two that are equally near the one with an even fraction. What is beyond
// the largest is an infinity where there are any, and NaN elsewhere, as PyTorch has it.
func (l layout) encode(v float64) uint16 {
	u := math.Float64bits(v)
	sign := uint16(u>>63) << (l.exponent + l.fraction)
	if u<<1 == 0 {
		return sign
	}
	shift := 52 - l.fraction
	// Adding just under half of the last kept bit, and one more if that bit is set, rounds to the nearest even; a carry out
	// of the fraction raises the exponent, which is what it must do.
	rounded := (u&(1<<63-1) + 1<<(shift-1) - 1 + u>>shift&1) >> shift
	exponent := int(rounded>>l.fraction) - 1023 + l.bias()
	if exponent >= 1 && exponent < 1<<l.exponent-1 {
		return sign | uint16(exponent)<<l.fraction | uint16(rounded)&(1<<l.fraction-1)
	}
	return l.encodeRare(v, sign, exponent, uint16(rounded)&(1<<l.fraction-1))
}

// encodeRare encodes what is not in the range of normal numbers, or in F8E4M3's last exponent.
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
	default: // Below the normal numbers: a multiple of the smallest. One that rounds up to 1<<fraction is the first normal number.
		return sign | uint16(math.RoundToEven(math.Ldexp(math.Abs(v), l.bias()-1+int(l.fraction))))
	}
}

// fromF16 is decode for F16, as a float32: its bits are moved to where a float32's lie, and a product sets the exponent right,
// for numbers below the normal ones too.
func fromF16(bits uint16) float32 {
	if bits&0x7c00 == 0x7c00 { // an infinity or NaN
		return math.Float32frombits(uint32(bits&0x8000)<<16 | 0x7f800000 | uint32(bits&0x3ff)<<13)
	}
	return math.Float32frombits(uint32(bits&0x8000)<<16|uint32(bits&0x7fff)<<13) * 0x1p112
}

// fromF8E4M3 is decode for F8E4M3, as fromF16.
func fromF8E4M3(bits uint8) float32 {
	if bits&0x7f == 0x7f {
		return float32(math.NaN())
	}
	return math.Float32frombits(uint32(bits&0x80)<<24|uint32(bits&0x7f)<<20) * 0x1p120
}

// set sets sum to weight times each number of raw, which is what add makes of a sum of -0.
func set(sum []float64, raw []byte, weight float64, d safetensors.DType) {
	n := setVectors(sum, raw, weight, d)
	for i := range sum[n:] {
		sum[n+i] = math.Copysign(0, -1) // which any number added to it replaces, -0 too
	}
	addEach(sum[n:], raw[int64(n)*d.Size():], weight, d)
}

// add adds weight times each number of raw to sum. raw holds len(sum) elements of a floating-point type, little-endian.
func add(sum []float64, raw []byte, weight float64, d safetensors.DType) {
	n := addVectors(sum, raw, weight, d)
	addEach(sum[n:], raw[int64(n)*d.Size():], weight, d)
}

// addEach is add, one number after the other.
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

// addDifference adds weight times the difference of each number of raw, of 64 bits, from base.
func addDifference(sum []float64, raw []byte, base []float64, weight float64) {
	for i := range sum {
		sum[i] += weight * (math.Float64frombits(binary.LittleEndian.Uint64(raw[8*i:])) - base[i])
	}
}

// put writes each number of sum, rounded to the nearest of the type, to raw; it says whether all of them are finite.
func put(raw []byte, sum []float64, d safetensors.DType) (finite bool) {
	le := binary.LittleEndian
	check := 0.0 // stays 0 as long as all are finite: 0 times an infinity or NaN is NaN
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
