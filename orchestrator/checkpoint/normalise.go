package checkpoint

import (
	"slices"
	"strings"

	"github.com/outbid-dev/outbid/orchestrator/checkpoint/safetensors"
)

// meanBeside is the name of the mean that a running variance is around, as PyTorch's and Keras's layers name what they measured
// of their inputs; "" for what is no variance.
func meanBeside(name string) string {
	cut := strings.LastIndexAny(name, "./") + 1
	switch name[cut:] {
	case "running_var":
		return name[:cut] + "running_mean"
	case "moving_variance":
		return name[:cut] + "moving_mean"
	}
	return ""
}

// meansOf finds the mean of each running variance, by the variance's name: beside it, of the same shape.
func meansOf(tensors []safetensors.Tensor) map[string]safetensors.Tensor {
	byName := make(map[string]safetensors.Tensor)
	for _, t := range tensors {
		byName[t.Name] = t
	}
	means := make(map[string]safetensors.Tensor)
	for _, t := range tensors {
		beside := meanBeside(t.Name)
		if m, ok := byName[beside]; beside != "" && ok && t.DType.IsFloat() && m.DType.IsFloat() && slices.Equal(m.Shape, t.Shape) {
			means[t.Name] = m
		}
	}
	return means
}

// addSpread adds to a mean of variances, from an element on, how far the means are apart that these are around: by the law of
// total variance, that is the variance of all that the sources measured. It is 0 where they have the same means.
func (a *Average) addSpread(sum []float64, m safetensors.Tensor, first int64, read reader) error {
	size := m.DType.Size()
	raw := make([]byte, int64(len(sum))*size)
	apart := make([][]float64, len(a.sources)) // from the lead's
	base, middle := make([]float64, len(sum)), make([]float64, len(sum))
	got, err := read.bytes(a.lead, m, first*size, raw)
	if err != nil {
		return err
	}
	add(base, got, 1, m.DType)
	for i, s := range a.sources {
		if got, err = read.bytes(s, m, first*size, raw); err != nil {
			return err
		}
		apart[i] = make([]float64, len(sum))
		add(apart[i], got, 1, m.DType)
		for k := range sum {
			apart[i][k] -= base[k]
			middle[k] += s.share * apart[i][k]
		}
	}
	for i, s := range a.sources {
		for k := range sum {
			if off := apart[i][k] - middle[k]; finite(base[k]) { // else that is said of the mean itself
				sum[k] += s.share * off * off
			}
		}
	}
	return nil
}
