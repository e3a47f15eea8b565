package checkpoint_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/outbid-dev/outbid/orchestrator/checkpoint"
	"github.com/outbid-dev/outbid/orchestrator/checkpoint/safetensors"
)

// tensor is a tensor with its bytes.
type tensor struct {
	name  string
	dtype safetensors.DType
	shape []int64
	data  []byte
}

func f32(name string, values ...float32) tensor {
	return tensor{name, safetensors.F32, []int64{int64(len(values))}, encode(values)}
}

func encode(values any) []byte {
	b, err := binary.Append(nil, binary.LittleEndian, values)
	if err != nil {
		panic(err)
	}
	return b
}

// file returns a file with tensors, one after the other.
func file(t require, metadata map[string]string, tensors ...tensor) []byte {
	t.Helper()
	h := safetensors.Header{Metadata: metadata}
	var data []byte
	for _, x := range tensors {
		begin := int64(len(data))
		data = append(data, x.data...)
		h.Tensors = append(h.Tensors, safetensors.Tensor{Name: x.name, DType: x.dtype, Shape: x.shape, Begin: begin, End: int64(len(data))})
	}
	head, err := h.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return append(head, data...)
}

type require interface {
	Helper()
	Fatal(args ...any)
}

func source(name string, weight float64, content []byte) checkpoint.Source {
	return checkpoint.Source{Name: name, Weight: weight, File: bytes.NewReader(content), Size: int64(len(content))}
}

// average returns the whole average.
func average(t require, metadata map[string]string, sources ...checkpoint.Source) []byte {
	t.Helper()
	a, err := checkpoint.New(sources, metadata)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(io.NewSectionReader(a, 0, a.Size()))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// values returns a tensor's bytes in a file.
func values(t require, content []byte, name string) []byte {
	t.Helper()
	h, err := safetensors.ReadHeader(bytes.NewReader(content), int64(len(content)))
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range h.Tensors {
		if x.Name == name {
			return content[h.Bytes+x.Begin : h.Bytes+x.End]
		}
	}
	t.Fatal("no tensor ", name)
	return nil
}

func TestForksAreAveragedByTheStepsThatTheyDid(t *testing.T) {
	t.Parallel()
	mask := tensor{"mask", safetensors.F32, []int64{2}, encode([]float32{0, float32(math.Inf(-1))})}
	fast := file(t, map[string]string{"outbid.metadata": `{"epoch":3}`}, f32("w", 1, 2, 3), mask,
		tensor{"steps", safetensors.I64, []int64{}, encode(int64(300))}, tensor{"none", safetensors.F32, []int64{0, 7}, nil})
	// The same tensors in another order.
	slow := file(t, map[string]string{"outbid.metadata": `{"epoch":1}`}, tensor{"steps", safetensors.I64, []int64{}, encode(int64(100))},
		tensor{"none", safetensors.F32, []int64{0, 7}, nil}, mask, f32("w", 5, 2, -1))
	got := average(t, map[string]string{"outbid.average": "yes"}, source("slow", 100, slow), source("fast", 300, fast))
	for name, want := range map[string]any{"w": []float32{2, 2, 2}, "mask": []float32{0, float32(math.Inf(-1))}, "steps": int64(300)} {
		if b := values(t, got, name); !bytes.Equal(b, encode(want)) {
			t.Errorf("%s: %v; want %v", name, b, want)
		}
	}
	h, err := safetensors.ReadHeader(bytes.NewReader(got), int64(len(got)))
	if err != nil || h.Metadata["outbid.metadata"] != `{"epoch":3}` || h.Metadata["outbid.average"] != "yes" {
		t.Errorf("the metadata is %v (%v)", h.Metadata, err)
	}
}

func TestWhatCannotBeAveragedIsSaid(t *testing.T) {
	t.Parallel()
	one := file(t, nil, f32("a", 1, 2), f32("b", 1))
	nan := float32(math.NaN())
	for name, c := range map[string]struct {
		sources []checkpoint.Source
		is      error
		says    string
	}{
		"none":           {nil, nil, "want at least one checkpoint"},
		"missing tensor": {[]checkpoint.Source{source("one", 2, one), source("two", 1, file(t, nil, f32("a", 1, 2)))}, checkpoint.ErrMismatch, `one and two: tensor "b" (F32 [1]) is only in the first`},
		"extra tensor":   {[]checkpoint.Source{source("one", 1, file(t, nil, f32("a", 1, 2))), source("two", 1, one)}, checkpoint.ErrMismatch, `tensor "b" (F32 [1]) is only in the second`},
		"shape":          {[]checkpoint.Source{source("one", 2, one), source("two", 1, file(t, nil, f32("a", 1, 2), f32("b", 1, 2)))}, checkpoint.ErrMismatch, `tensor "b" (F32 [1]) is "b" (F32 [2]) in the second`},
		"type": {
			[]checkpoint.Source{source("one", 2, one), source("two", 1, file(t, nil, f32("a", 1, 2), tensor{"b", safetensors.U32, []int64{1}, encode(uint32(1))}))},
			checkpoint.ErrMismatch, `is "b" (U32 [1])`,
		},
		"not finite": {
			[]checkpoint.Source{source("one", 2, one), source("two", 1, file(t, nil, f32("a", 1, nan), f32("b", 1)))},
			checkpoint.ErrNotFinite, `tensor "a", element 1: it differs between one and two`,
		},
		"negative weight": {[]checkpoint.Source{source("one", -1, one)}, checkpoint.ErrWeight, "one has -1; want a finite number of at least 0"},
		"no weight":       {[]checkpoint.Source{source("one", 0, one)}, checkpoint.ErrWeight, "the sum is 0"},
		"cut off":         {[]checkpoint.Source{source("one", 1, one), source("two", 1, one[:len(one)-1])}, safetensors.ErrFormat, "two: "},
	} {
		a, err := checkpoint.New(c.sources, nil)
		if err == nil {
			_, err = io.ReadAll(io.NewSectionReader(a, 0, a.Size()))
		}
		if err == nil || !strings.Contains(err.Error(), c.says) || c.is != nil && !errors.Is(err, c.is) {
			t.Errorf("%s: %v; want %q", name, err, c.says)
		}
	}
}

// TestAForkWithoutStepsCountsForNothing checks that a source with weight 0 is ignored, even if it contains NaN.
func TestAForkWithoutStepsCountsForNothing(t *testing.T) {
	t.Parallel()
	got := average(t, nil, source("idle", 0, file(t, nil, f32("a", float32(math.NaN())))), source("busy", 7, file(t, nil, f32("a", 1.25))))
	if b := values(t, got, "a"); !bytes.Equal(b, encode([]float32{1.25})) {
		t.Errorf("the average is %v", b)
	}
}

var dtypes = []safetensors.DType{
	safetensors.F64, safetensors.F32, safetensors.F16, safetensors.BF16, safetensors.F8E5M2, safetensors.F8E4M3, safetensors.I32, safetensors.Bool,
}

// drawFiles draws files with the same tensors, with few to many finite elements.
func drawFiles(t *rapid.T, n int) [][]byte {
	files := make([][]tensor, n)
	for i := range rapid.IntRange(1, 5).Draw(t, "tensors") {
		d := rapid.SampledFrom(dtypes).Draw(t, "type")
		elements := rapid.OneOf(rapid.IntRange(0, 9), rapid.SampledFrom([]int{16384, 40001})).Draw(t, "elements")
		for k := range files {
			data := make([]byte, elements*int(d.Size()))
			state := rapid.Uint64().Draw(t, "seed")
			for j := range data {
				state = state*6364136223846793005 + 1442695040888963407
				data[j] = byte(state >> 56)
				if j%int(d.Size()) == int(d.Size())-1 {
					data[j] &= 0xbb // keeps the exponent from having all bits set
				}
			}
			files[k] = append(files[k], tensor{string(rune('a' + i)), d, []int64{int64(elements)}, data})
		}
	}
	out := make([][]byte, n)
	for k := range files {
		first := 0
		if k > 0 {
			first = rapid.IntRange(0, len(files[k])-1).Draw(t, "first") // so that they have another order
		}
		out[k] = file(t, nil, append(files[k][first:len(files[k]):len(files[k])], files[k][:first]...)...)
	}
	return out
}

func TestTheAverageOfOneOrOfEqualsIsThatOne(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		one := drawFiles(t, 1)[0]
		var sources []checkpoint.Source
		for range rapid.IntRange(1, 5).Draw(t, "copies") {
			sources = append(sources, source("copy", rapid.Float64Range(0.001, 1000).Draw(t, "weight"), one))
		}
		if got := average(t, nil, sources...); !bytes.Equal(got, one) {
			t.Fatalf("%d equal copies became another one", len(sources))
		}
	})
}

// TestPiecesAreOfTheWhole checks that any sequence of reads, and Write, return the same bytes.
func TestPiecesAreOfTheWhole(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		var sources []checkpoint.Source
		for _, f := range drawFiles(t, rapid.IntRange(1, 4).Draw(t, "files")) {
			sources = append(sources, source("fork", rapid.Float64Range(0.1, 10).Draw(t, "weight"), f))
		}
		whole := average(t, nil, sources...)
		a, err := checkpoint.New(sources, nil)
		if err != nil {
			t.Fatal(err)
		}
		from := rapid.IntRange(0, len(whole)).Draw(t, "from")
		p := make([]byte, rapid.IntRange(0, len(whole)-from).Draw(t, "length"))
		if n, err := a.ReadAt(p, int64(from)); n != len(p) || err != nil || !bytes.Equal(p, whole[from:from+len(p)]) {
			t.Fatalf("bytes %d to %d differ from the whole (%d, %v)", from, from+len(p), n, err)
		}
		if n, err := a.ReadAt(make([]byte, 9), a.Size()-3); n != 3 || !errors.Is(err, io.EOF) {
			t.Fatalf("beyond the end: %d, %v", n, err)
		}
		path := filepath.Join(dir, "whole")
		f, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(a.Write(testContext(), f, 3), f.Close()); err != nil {
			t.Fatal(err)
		}
		if b, err := os.ReadFile(path); err != nil || !bytes.Equal(b, whole) {
			t.Fatalf("the written file differs (%v)", err)
		}
	})
}

func TestTheMeanIsExactToTheLastDigit(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var sources []checkpoint.Source
		var values64, weights []float64
		for range rapid.IntRange(1, 6).Draw(t, "forks") {
			v := rapid.Float32Range(-1e6, 1e6).Draw(t, "value")
			w := float64(rapid.IntRange(1, 100000).Draw(t, "steps"))
			values64, weights = append(values64, float64(v)), append(weights, w)
			sources = append(sources, source("fork", w, file(t, nil, f32("w", v))))
		}
		exact, _ := checkpoint.ExactMean(values64, weights).Float64()
		got := math.Float32frombits(binary.LittleEndian.Uint32(values(t, average(t, nil, sources...), "w")))
		// The rounding error of the sum is about the 53rd digit of the largest term, far below half a digit of float32
		// unless terms cancel.
		largest := 0.0
		for _, v := range values64 {
			largest = max(largest, math.Abs(v))
		}
		half := float64(math.Nextafter32(float32(math.Abs(exact)), math.MaxFloat32)-float32(math.Abs(exact))) / 2
		if diff := math.Abs(float64(got) - exact); diff > half*1.0001+largest*1e-15 {
			t.Fatalf("the mean of %v by %v is %v; exactly %v", values64, weights, got, exact)
		}
	})
}
