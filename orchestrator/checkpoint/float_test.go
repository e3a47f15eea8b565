package checkpoint

import (
	"encoding/binary"
	"math"
	"math/big"
	"testing"

	"pgregory.net/rapid"

	"github.com/outbid-dev/outbid/orchestrator/checkpoint/safetensors"
)

var narrow = map[safetensors.DType]layout{
	safetensors.F16: layoutOf(safetensors.F16), safetensors.BF16: layoutOf(safetensors.BF16),
	safetensors.F8E5M2: layoutOf(safetensors.F8E5M2), safetensors.F8E4M3: layoutOf(safetensors.F8E4M3),
}

// TestNarrowNumbersAreDecodedTheSame compares the fast decoders with decode.
func TestNarrowNumbersAreDecodedTheSame(t *testing.T) {
	t.Parallel()
	same := func(d safetensors.DType, bits int, got float32) {
		if want := narrow[d].decode(uint16(bits)); float64(got) != want && !(math.IsNaN(want) && math.IsNaN(float64(got))) {
			t.Errorf("%s: %#x is %v; want %v", d, bits, got, want)
		}
	}
	for bits := range 1 << 16 {
		same(safetensors.F16, bits, fromF16(uint16(bits)))
	}
	for bits := range 1 << 8 {
		same(safetensors.F8E5M2, bits, fromF16(uint16(bits)<<8))
		same(safetensors.F8E4M3, bits, fromF8E4M3(uint8(bits)))
	}
}

// TestNarrowNumbersAreWhatTheirStandardsSay checks the bits of some numbers as printed in IEEE 754 and the Open Compute
// Project's paper on 8-bit floating point.
func TestNarrowNumbersAreWhatTheirStandardsSay(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		d    safetensors.DType
		bits uint16
		want float64
	}{
		{safetensors.F16, 0x3c00, 1},
		{safetensors.F16, 0x7bff, 65504},
		{safetensors.F16, 0x0001, math.Ldexp(1, -24)},
		{safetensors.F16, 0xfc00, math.Inf(-1)},
		{safetensors.BF16, 0x3f80, 1},
		{safetensors.BF16, 0xc049, -3.140625},
		{safetensors.BF16, 0x0001, math.Ldexp(1, -133)},
		{safetensors.F8E5M2, 0x7b, 57344},
		{safetensors.F8E5M2, 0x01, math.Ldexp(1, -16)},
		{safetensors.F8E5M2, 0x7c, math.Inf(1)},
		{safetensors.F8E4M3, 0x7e, 448},
		{safetensors.F8E4M3, 0x01, math.Ldexp(1, -9)},
		{safetensors.F8E4M3, 0xb8, -1},
	} {
		if got := narrow[c.d].decode(c.bits); got != c.want {
			t.Errorf("%s: %#x is %v; want %v", c.d, c.bits, got, c.want)
		}
		if got := narrow[c.d].encode(c.want); got != c.bits {
			t.Errorf("%s: %v is %#x; want %#x", c.d, c.want, got, c.bits)
		}
	}
	for d, l := range narrow {
		if v := l.decode(l.nan()); !math.IsNaN(v) || !math.IsNaN(l.decode(l.encode(v))) {
			t.Errorf("%s: a NaN is %v", d, v)
		}
	}
}

func TestEveryNarrowNumberSurvives(t *testing.T) {
	t.Parallel()
	for d, l := range narrow {
		for bits := range 1 << (1 + l.exponent + l.fraction) {
			v := l.decode(uint16(bits))
			if got := l.encode(v); got != uint16(bits) && !math.IsNaN(v) {
				t.Errorf("%s: %#x, which is %v, comes back as %#x", d, bits, v, got)
			}
		}
	}
}

// TestNumbersAreRoundedToTheNearest checks that encode returns the nearest number of the type, and for ties the one
// whose last bit is 0.
func TestNumbersAreRoundedToTheNearest(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := rapid.SampledFrom([]safetensors.DType{safetensors.F16, safetensors.BF16, safetensors.F8E5M2, safetensors.F8E4M3}).Draw(t, "type")
		l := narrow[d]
		largest := uint16(1<<(l.exponent+l.fraction) - 2) // below NaN
		if l.infinities {
			largest = uint16(1<<l.exponent-1)<<l.fraction - 1
		}
		below := uint16(rapid.IntRange(0, int(largest)-1).Draw(t, "below"))
		low, high := l.decode(below), l.decode(below+1)
		at := rapid.OneOf(rapid.Float64Range(0, 1), rapid.SampledFrom([]float64{0, 0.5, 1})).Draw(t, "at")
		v := low + at*(high-low)
		want := below
		if middle := low + (high-low)/2; v > middle || v == middle && below&1 == 1 {
			want = below + 1
		}
		if got := l.encode(v); got != want {
			t.Fatalf("%s: %v between %v and %v became %v", d, v, low, high, l.decode(got))
		}
		if got, sign := l.encode(-v), uint16(1)<<(l.exponent+l.fraction); got != want|sign {
			t.Fatalf("%s: %v became %v", d, -v, l.decode(got))
		}
	})
}

// exactMean returns the mean, computed with 400 bits.
func exactMean(values, weights []float64) *big.Float {
	num := func(v float64) *big.Float { return new(big.Float).SetPrec(400).SetFloat64(v) }
	sum, total := num(0), num(0)
	for i, v := range values {
		sum.Add(sum, new(big.Float).SetPrec(400).Mul(num(v), num(weights[i])))
		total.Add(total, num(weights[i]))
	}
	return sum.Quo(sum, total)
}

// TestVectorsAddTheSame checks that vector instructions add bit by bit the same, and that setting equals adding to -0.
func TestVectorsAddTheSame(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := rapid.SampledFrom([]safetensors.DType{
			safetensors.F64, safetensors.F32, safetensors.F16, safetensors.BF16, safetensors.F8E5M2, safetensors.F8E4M3,
		}).Draw(t, "type")
		n := rapid.IntRange(0, 40).Draw(t, "numbers")
		raw := rapid.SliceOfN(rapid.Byte(), n*int(d.Size()), n*int(d.Size())).Draw(t, "raw")
		sum := rapid.SliceOfN(rapid.Float64Range(-1e3, 1e3), n, n).Draw(t, "sum")
		weight := rapid.Float64Range(0, 1).Draw(t, "weight")
		want := append([]float64{}, sum...)
		addEach(want, raw, weight, d)
		add(sum, raw, weight, d)
		for i := range sum {
			if math.Float64bits(sum[i]) != math.Float64bits(want[i]) && !math.IsNaN(want[i]) {
				t.Fatalf("%s: number %d of %x: %v; one by one %v", d, i, raw, sum[i], want[i])
			}
		}
		for i := range want {
			want[i] = math.Copysign(0, -1)
		}
		addEach(want, raw, weight, d)
		set(sum, raw, weight, d)
		for i := range sum {
			if math.Float64bits(sum[i]) != math.Float64bits(want[i]) && !math.IsNaN(want[i]) {
				t.Fatalf("%s: number %d of %x is set to %v; one by one %v", d, i, raw, sum[i], want[i])
			}
		}
	})
}

// TestVectorsRoundTheSame checks that vector instructions round the same, also for numbers that are not normal or not
// finite.
func TestVectorsRoundTheSame(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := rapid.SampledFrom([]safetensors.DType{safetensors.F32, safetensors.F16, safetensors.BF16}).Draw(t, "type")
		sum := rapid.SliceOfN(numberNear(d), 0, 40).Draw(t, "sum")
		raw := make([]byte, int(d.Size())*len(sum))
		finite, want := put(raw, sum, d), true
		for i, v := range sum {
			want = want && !math.IsNaN(v) && !math.IsInf(v, 0)
			got := binary.LittleEndian.AppendUint32(nil, math.Float32bits(float32(v)))
			if d != safetensors.F32 {
				got = binary.LittleEndian.AppendUint16(nil, narrow[d].encode(v))
			}
			if one := raw[i*len(got) : (i+1)*len(got)]; string(one) != string(got) {
				t.Fatalf("%s: number %d of %v became %x; one by one %x", d, i, sum, one, got)
			}
		}
		if finite != want {
			t.Fatalf("%v: said to be finite %t; want %t", sum, finite, want)
		}
	})
}

// numberNear draws numbers of a type, midpoints between two of them, subnormal ones, and any others.
func numberNear(d safetensors.DType) *rapid.Generator[float64] {
	held := func(bits uint32) float64 { return float64(math.Float32frombits(bits)) }
	if l, ok := narrow[d]; ok {
		held = func(bits uint32) float64 { return l.decode(uint16(bits >> 16)) }
	}
	return rapid.OneOf(
		rapid.Float64Range(-2, 2), rapid.Float64(),
		rapid.SampledFrom([]float64{0, math.Copysign(0, -1), math.Inf(1), math.Inf(-1), math.NaN(), 65519, 65520, 1e-7, 5e-324, 1e-45}),
		rapid.Custom(func(t *rapid.T) float64 { return held(rapid.Uint32().Draw(t, "bits")) }),
		rapid.Custom(func(t *rapid.T) float64 {
			bits := rapid.Uint32Range(0, 0x6fff_ffff).Draw(t, "bits")
			step := uint32(1)
			if d != safetensors.F32 {
				step = 1 << 16
			}
			return (held(bits) + held(bits+step)) / 2
		}),
	)
}
