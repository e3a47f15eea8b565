package checkpoint

import (
	"errors"
	"fmt"
	"math"
)

// Soup is the result of a greedy soup.
type Soup struct {
	// Kept are the indexes of the sources in the mean. Metric is the evaluation of the mean.
	Kept   []int
	Metric float64
	// Tried is the evaluation of the mean with each source, or NaN if it could not be averaged with the others; Errors
	// has the reasons.
	Tried  []float64
	Errors []error
}

// Greedy makes a greedy soup (Wortsman et al., "Model soups", ICML 2022, recipe 1). The mean starts with the first
// source, and each other one is added, with its weight, if the mean is then not worse. So sources should be ordered
// from the best to the worst. evaluate evaluates a mean on held-out data, and better compares two results; NaN is never
// kept. A source with other tensors than the first is skipped; any other error ends the soup.
func Greedy(sources []Source, better func(a, b float64) bool, evaluate func(*Average) (float64, error)) (*Soup, error) {
	s := &Soup{Tried: make([]float64, len(sources)), Errors: make([]error, len(sources))}
	var kept []Source
	for i, source := range sources {
		s.Tried[i] = math.NaN()
		mean, err := New(append(kept[:len(kept):len(kept)], source), nil)
		if err == nil {
			s.Tried[i], err = evaluate(mean)
		}
		switch {
		case err != nil && i > 0 && (errors.Is(err, ErrMismatch) || errors.Is(err, ErrNotFinite)):
			s.Errors[i] = err
			continue
		case err != nil:
			return nil, fmt.Errorf("soup with %s: %w", source.Name, err)
		case i == 0 && math.IsNaN(s.Tried[0]):
			return nil, fmt.Errorf("soup: the evaluation of %s alone is NaN", source.Name)
		case i > 0 && (math.IsNaN(s.Tried[i]) || better(s.Metric, s.Tried[i])):
			continue
		}
		kept, s.Kept, s.Metric = append(kept, source), append(s.Kept, i), s.Tried[i]
	}
	if len(kept) == 0 {
		return nil, errors.New("soup: want at least one checkpoint")
	}
	return s, nil
}
