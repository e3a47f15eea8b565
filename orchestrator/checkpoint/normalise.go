package checkpoint

import (
	"slices"
	"strings"

	"github.com/outbid-dev/outbid/orchestrator/checkpoint/safetensors"
)

// runningMeanName returns the name of the running mean of a running variance, according to the names in layers of PyTorch
// and Keras. It returns "" if the name is not that of a variance.
func runningMeanName(name string) string {
	cut := strings.LastIndexAny(name, "./") + 1
	switch name[cut:] {
	case "running_var":
		return name[:cut] + "running_mean"
	case "moving_variance":
		return name[:cut] + "moving_mean"
	}
	return ""
}

// meansOf returns the mean of each running variance, by the variance's name. It has the same prefix and shape.
func meansOf(tensors []safetensors.Tensor) map[string]safetensors.Tensor {
	byName := make(map[string]safetensors.Tensor)
	for _, t := range tensors {
		byName[t.Name] = t
	}
	means := make(map[string]safetensors.Tensor)
	for _, t := range tensors {
		beside := runningMeanName(t.Name)
		if m, ok := byName[beside]; beside != "" && ok && t.DType.IsFloat() && m.DType.IsFloat() && slices.Equal(m.Shape, t.Shape) {
			means[t.Name] = m
		}
	}
	return means
}

// addSpread adds to a mean of variances, starting at an element, the variance of the corresponding means. By the law of
// total variance the sum is the variance of all samples of the sources. The addend is 0 if the means are equal.
func (a *Average) addSpread(sum []float64, m safetensors.Tensor, first int64, read reader) error {
	size := m.DType.Size()
	raw := make([]byte, int64(len(sum))*size)
	apart := make([][]float64, len(a.sources)) // differences from the lead
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
			if off := apart[i][k] - middle[k]; finite(base[k]) { // an infinite mean is reported for the mean itself
				sum[k] += s.share * off * off
			}
		}
	}
	return nil
}
