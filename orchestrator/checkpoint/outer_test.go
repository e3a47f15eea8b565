package checkpoint_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/outbid-dev/outbid/orchestrator/checkpoint"
	"github.com/outbid-dev/outbid/orchestrator/checkpoint/safetensors"
)

func f64(name string, values ...float64) tensor {
	return tensor{name, safetensors.F64, []int64{int64(len(values))}, encode(values)}
}

// outerStep returns the weights and the velocity after an outer step, once from reads and once from a stream.
func outerStep(t require, o checkpoint.Outer, sources ...checkpoint.Source) (weights, velocity []byte) {
	t.Helper()
	a, err := checkpoint.New(sources, map[string]string{"k": "v"})
	if err != nil {
		t.Fatal(err)
	}
	w, v, err := a.WithOuter(o)
	if err != nil {
		t.Fatal(err)
	}
	var both [2][]byte
	for i, x := range []*checkpoint.Average{w, v} {
		read, err := io.ReadAll(io.NewSectionReader(x, 0, x.Size()))
		if err != nil {
			t.Fatal(err)
		}
		x.SetPieceForTest(16)
		s := x.Stream(testContext())
		streamed, err := io.ReadAll(s)
		if err := errors.Join(err, s.Close()); err != nil || !bytes.Equal(read, streamed) {
			t.Fatal("a stream differs from what is read: ", err)
		}
		both[i] = read
	}
	return both[0], both[1]
}

func float64At(t require, content []byte, name string) float64 {
	t.Helper()
	return math.Float64frombits(binary.LittleEndian.Uint64(values(t, content, name)))
}

// TestAnOuterStepIsNesterovs checks over several steps that the weights follow Nesterov's gradient as implemented in
// PyTorch.
func TestAnOuterStepIsNesterovs(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		rate, momentum := rapid.Float64Range(0.1, 1.5).Draw(t, "rate"), rapid.Float64Range(0, 0.95).Draw(t, "momentum")
		number := func(name string) float64 { return rapid.Float64Range(-5, 5).Draw(t, name) }
		weight, velocity := number("start"), 0.0
		start := file(t, nil, f64("net.w", weight), f64("net.bn.running_mean", 1))
		var state *checkpoint.Source
		for range rapid.IntRange(1, 4).Draw(t, "rounds") {
			a, b := number("fork"), number("fork")
			w, v := outerStep(t, checkpoint.Outer{Rate: rate, Momentum: momentum, Start: source("start", 0, start), Velocity: state},
				source("one", 3, file(t, nil, f64("net.w", a), f64("net.bn.running_mean", 2))),
				source("two", 1, file(t, nil, f64("net.w", b), f64("net.bn.running_mean", 6))))
			gradient := weight - (3*a+b)/4
			velocity = momentum*velocity + gradient
			weight -= rate * (gradient + momentum*velocity)
			if got := float64At(t, w, "net.w"); math.Abs(got-weight) > 1e-9 {
				t.Fatalf("the weight is %v; want %v", got, weight)
			}
			if got := float64At(t, v, "net.w"); math.Abs(got-velocity) > 1e-9 {
				t.Fatalf("the velocity is %v; want %v", got, velocity)
			}
			if got, kept := float64At(t, w, "net.bn.running_mean"), float64At(t, v, "net.bn.running_mean"); got != 3 || kept != 0 {
				t.Fatalf("a statistic is %v, of velocity %v; want the mean, and none", got, kept)
			}
			start, state = w, &checkpoint.Source{Name: "velocity", File: bytes.NewReader(v), Size: int64(len(v))}
		}
	})
}

// TestAnOuterStepOfRateOneIsTheMean checks that a rate of 1 without momentum is the mean, and that common infinities
// are kept.
func TestAnOuterStepOfRateOneIsTheMean(t *testing.T) {
	t.Parallel()
	mask := f32("mask", float32(math.Inf(-1)), 0)
	start, one, two := file(t, nil, f32("w", 1), mask), file(t, nil, f32("w", 5), mask), file(t, nil, f32("w", 2), mask)
	w, v := outerStep(t, checkpoint.Outer{Rate: 1, Start: source("start", 0, start)}, source("one", 1, one), source("two", 1, two))
	if got := values(t, w, "w"); !bytes.Equal(got, encode([]float32{3.5})) {
		t.Errorf("the weight is %v; want 3.5", got)
	}
	if got := values(t, w, "mask"); !bytes.Equal(got, mask.data) {
		t.Errorf("the mask became %v", got)
	}
	if got := values(t, v, "mask"); !bytes.Equal(got, encode([]float32{0, 0})) {
		t.Errorf("the mask moves: %v", got)
	}
	if !bytes.Contains(w, []byte(`"k":"v"`)) {
		t.Error("the weights have lost the metadata")
	}
}

func TestABadOuterStepIsRefused(t *testing.T) {
	t.Parallel()
	one := source("one", 1, file(t, nil, f32("w", 1)))
	a, err := checkpoint.New([]checkpoint.Source{one}, nil)
	if err != nil {
		t.Fatal(err)
	}
	other, cut := source("other", 1, file(t, nil, f32("v", 1))), source("cut", 1, []byte("short"))
	for name, c := range map[string]struct {
		o    checkpoint.Outer
		want string
	}{
		"rate":     {checkpoint.Outer{Rate: 0, Start: one}, "want a finite rate above 0"},
		"momentum": {checkpoint.Outer{Rate: 1, Momentum: 1, Start: one}, "a momentum of at least 0 and below 1"},
		"NaN":      {checkpoint.Outer{Rate: math.NaN(), Start: one}, "want a finite rate above 0"},
		"start":    {checkpoint.Outer{Rate: 1, Start: other}, `one and other: tensor "v"`},
		"velocity": {checkpoint.Outer{Rate: 1, Start: one, Velocity: &cut}, "cut: not a complete safetensors file"},
	} {
		if _, _, err := a.WithOuter(c.o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %q", name, err, c.want)
		}
	}
}

// TestWhatOverflowsIsSaid checks that a result above its type's maximum is an error, even if all sources have the same
// number, and is never stored as an infinity or as that number.
func TestWhatOverflowsIsSaid(t *testing.T) {
	t.Parallel()
	f16 := func(name string, bits ...uint16) tensor {
		return tensor{name, safetensors.F16, []int64{int64(len(bits))}, encode(bits)}
	}
	const most, below = 0x7bff, 0xfbff // 65504, and -65504
	start, end := file(t, nil, f16("w", 0x3c00, below)), file(t, nil, f16("w", 0x3c00, most))
	f8 := func(bits byte) []byte {
		return file(t, nil, tensor{"w", safetensors.F8E4M3, []int64{1}, []byte{bits}})
	}
	for name, c := range map[string]struct {
		start []byte
		ends  [][]byte
	}{
		"alike":  {start, [][]byte{end, end}},
		"unlike": {start, [][]byte{end, file(t, nil, f16("w", 0x3c00, most-1))}},
		"F8":     {f8(0xfe), [][]byte{f8(0x7e), f8(0x7e)}},
		"F64":    {file(t, nil, f64("w", -math.MaxFloat64)), [][]byte{file(t, nil, f64("w", math.MaxFloat64))}},
	} {
		var sources []checkpoint.Source
		for _, e := range c.ends {
			sources = append(sources, source("end", 1, e))
		}
		a, err := checkpoint.New(sources, nil)
		if err != nil {
			t.Fatal(err)
		}
		w, v, err := a.WithOuter(checkpoint.Outer{Rate: 1.5, Start: source("start", 0, c.start)})
		if err != nil {
			t.Fatal(err)
		}
		for what, x := range map[string]*checkpoint.Average{"weights": w, "velocity": v} {
			_, err = io.ReadAll(io.NewSectionReader(x, 0, x.Size()))
			if !errors.Is(err, checkpoint.ErrNotFinite) || !strings.Contains(err.Error(), "exceeds the largest") {
				t.Errorf("%s, %s: %v", name, what, err)
			}
		}
	}
	apart := func(mean uint16) []byte {
		return file(t, nil, f16("n.running_mean", mean), f16("n.running_var", 0x3c00))
	}
	a, err := checkpoint.New([]checkpoint.Source{source("one", 1, apart(most)), source("two", 1, apart(below))}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = io.ReadAll(io.NewSectionReader(a, 0, a.Size())); !errors.Is(err, checkpoint.ErrNotFinite) {
		t.Errorf("a spread: %v", err)
	}
}

// TestAnOuterStepForgetsInfinities checks that weights that became infinite in all forks do not have a velocity, and
// that an infinite velocity of an earlier step is ignored.
func TestAnOuterStepForgetsInfinities(t *testing.T) {
	t.Parallel()
	inf := float32(math.Inf(1))
	start, end := file(t, nil, f32("w", 1, 2)), file(t, nil, f32("w", inf, 4))
	velocity := source("velocity", 0, file(t, nil, f32("w", 3, inf)))
	w, v := outerStep(t, checkpoint.Outer{Rate: 1, Momentum: 0.5, Start: source("start", 0, start), Velocity: &velocity},
		source("one", 1, end), source("two", 1, end))
	if got := values(t, w, "w"); !bytes.Equal(got, encode([]float32{inf, 5})) { // 2 - (-2 + 0.5 * -2)
		t.Errorf("the weights are % x", got)
	}
	if got := values(t, v, "w"); !bytes.Equal(got, encode([]float32{0, -2})) {
		t.Errorf("the velocity is % x", got)
	}
}
