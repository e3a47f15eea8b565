package checkpoint

import (
	"errors"
	"fmt"
	"math"
)

// Soup is what a greedy soup became.
type Soup struct {
	// Kept are the sources whose mean it is, by index, and Metric what that mean was found to be worth.
	Kept   []int
	Metric float64
	// Tried is what the mean with each source was found to be worth; NaN for those that could not be averaged with the
	// others, whose Errors say why.
	Tried  []float64
	Errors []error
}

// Greedy makes a greedy soup (Wortsman et al., "Model soups", ICML 2022, recipe 1): the mean starts with the first source,
// and each other joins it, with its weight, if that makes the mean no worse. So sources go from the best to the worst.
// evaluate says what a mean is worth on held-out data, better which of two is better; NaN is never kept. A source whose
// tensors differ from the first's is left out; any other error ends it.
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
			return nil, fmt.Errorf("soup: %s alone is worth NaN", source.Name)
		case i > 0 && (math.IsNaN(s.Tried[i]) || better(s.Metric, s.Tried[i])):
			continue
		}
		kept, s.Kept, s.Metric = append(kept, source), append(s.Kept, i), s.Tried[i]
	}
	if len(kept) == 0 {
		return nil, errors.New("soup: there is nothing to average")
	}
	return s, nil
}
