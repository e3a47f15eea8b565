package trace

import "slices"

// NetworkIntensive reports whether a model needs its tasks on one machine. Themis's paper names VGG16 as sensitive to
// placement and Inception-v3 as insensitive; the others are classified by the size of their parameters.
func NetworkIntensive(model string) bool {
	return slices.Contains([]string{"VGG16", "VGG19", "AlexNet", "GNMT", "Transformer", "DeepSpeech"}, model)
}
