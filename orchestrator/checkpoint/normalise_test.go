package checkpoint_test

import (
	"encoding/binary"
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/outbid-dev/outbid/orchestrator/checkpoint"
	"github.com/outbid-dev/outbid/orchestrator/checkpoint/safetensors"
)

// moments returns the mean and the variance of numbers.
func moments(of []float64) (mean, variance float64) {
	for _, v := range of {
		mean += v / float64(len(of))
	}
	for _, v := range of {
		variance += (v - mean) * (v - mean) / float64(len(of))
	}
	return mean, variance
}

// TestRunningStatisticsAreThoseOfAllSamples checks that the running statistics of normalisation layers become those of
// all samples of the sources, according to their weights.
func TestRunningStatisticsAreThoseOfAllSamples(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		prefix := rapid.SampledFrom([]string{"", "net.1.bn.", "net/bn/"}).Draw(t, "layer")
		meanName, varName := prefix+"running_mean", prefix+"running_var"
		if rapid.Bool().Draw(t, "keras") {
			meanName, varName = prefix+"moving_mean", prefix+"moving_variance"
		}
		var all []float64
		var sources []checkpoint.Source
		for range rapid.IntRange(1, 5).Draw(t, "forks") {
			saw := rapid.SliceOfN(rapid.Float64Range(-100, 100), 1, 20).Draw(t, "samples")
			mean, variance := moments(saw)
			all = append(all, saw...)
			f := file(t, nil, tensor{meanName, safetensors.F64, []int64{1}, encode(mean)}, tensor{varName, safetensors.F64, []int64{1}, encode(variance)},
				tensor{prefix + "num_batches_tracked", safetensors.I64, []int64{}, encode(int64(len(saw)))})
			sources = append(sources, source("fork", float64(len(saw)), f))
		}
		got := average(t, nil, sources...)
		streamed, _, err := stream(t, 8, sources...)
		if err != nil {
			t.Fatal(err)
		}
		wantMean, wantVar := moments(all)
		for _, b := range [][]byte{got, streamed} {
			mean := math.Float64frombits(binary.LittleEndian.Uint64(values(t, b, meanName)))
			variance := math.Float64frombits(binary.LittleEndian.Uint64(values(t, b, varName)))
			if math.Abs(mean-wantMean) > 1e-10 || math.Abs(variance-wantVar) > 1e-8 {
				t.Fatalf("mean %v, variance %v; want %v, %v", mean, variance, wantMean, wantVar)
			}
		}
	})
}

// TestAVarianceAloneIsAveraged checks that a variance without a mean of the same shape is averaged like any other
// tensor.
func TestAVarianceAloneIsAveraged(t *testing.T) {
	t.Parallel()
	one := file(t, nil, f32("a.running_mean", 0), f32("b.running_var", 1), f32("c.running_mean", 0, 0), f32("c.running_var", 1), f32("d", 1), f32("mean", 0))
	two := file(t, nil, f32("a.running_mean", 9), f32("b.running_var", 3), f32("c.running_mean", 9, 9), f32("c.running_var", 3), f32("d", 3), f32("mean", 9))
	got := average(t, nil, source("one", 1, one), source("two", 1, two))
	for _, name := range []string{"b.running_var", "c.running_var", "d"} {
		if v := math.Float32frombits(binary.LittleEndian.Uint32(values(t, got, name))); v != 2 {
			t.Errorf("%s became %v; want 2", name, v)
		}
	}
}
