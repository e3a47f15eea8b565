package checkpoint_test

import (
	"encoding/binary"
	"errors"
	"io"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/outbid-dev/outbid/orchestrator/checkpoint"
)

func less(a, b float64) bool { return a < b }

// weightOf returns the only number of a mean.
func weightOf(a *checkpoint.Average) (float64, error) {
	var b [4]byte
	if _, err := a.ReadAt(b[:], a.Size()-4); err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	}
	return float64(math.Float32frombits(binary.LittleEndian.Uint32(b[:]))), nil
}

// TestAGreedySoupKeepsWhatHelps checks that each source is added if the mean is then not worse; the optimum here is a
// weight of 0.
func TestAGreedySoupKeepsWhatHelps(t *testing.T) {
	t.Parallel()
	var sources []checkpoint.Source
	for _, w := range []float32{1, 2, -1, float32(math.NaN()), 0, 8} {
		sources = append(sources, source("trial", 1, file(t, nil, f32("w", w))))
	}
	sources = append(sources, source("other", 1, file(t, nil, f32("w", 1, 2))))
	soup, err := checkpoint.Greedy(sources, less, func(a *checkpoint.Average) (float64, error) {
		w, err := weightOf(a)
		return math.Abs(w), err
	})
	if err != nil {
		t.Fatal(err)
	}
	// 1; with 2 it is 1.5, worse; with -1 it is 0; NaN cannot be added; with 0 it is 0, not worse; with 8 it is 2.
	if !slices.Equal(soup.Kept, []int{0, 2, 4}) || soup.Metric != 0 {
		t.Errorf("kept %v, worth %v", soup.Kept, soup.Metric)
	}
	if !errors.Is(soup.Errors[3], checkpoint.ErrNotFinite) || !errors.Is(soup.Errors[6], checkpoint.ErrMismatch) || soup.Errors[1] != nil {
		t.Errorf("errors %v", soup.Errors)
	}
	if soup.Tried[1] != 1.5 || !math.IsNaN(soup.Tried[6]) {
		t.Errorf("tried %v", soup.Tried)
	}
}

// TestAGreedySoupIsNoWorseThanTheFirst checks that a soup is never worse than the first source alone.
func TestAGreedySoupIsNoWorseThanTheFirst(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var sources []checkpoint.Source
		weights := rapid.SliceOfN(rapid.Float32Range(-10, 10), 1, 8).Draw(t, "weights")
		for _, w := range weights {
			sources = append(sources, source("trial", 1, file(t, nil, f32("w", w))))
		}
		goal := rapid.Float64Range(-10, 10).Draw(t, "goal")
		off := func(a *checkpoint.Average) (float64, error) {
			w, err := weightOf(a)
			return math.Abs(w - goal), err
		}
		soup, err := checkpoint.Greedy(sources, less, off)
		if err != nil {
			t.Fatal(err)
		}
		var kept []checkpoint.Source
		for _, i := range soup.Kept {
			kept = append(kept, sources[i])
		}
		mean, err := checkpoint.New(kept, nil)
		if err != nil {
			t.Fatal(err)
		}
		worth, err := off(mean)
		if err != nil || worth != soup.Metric || worth > math.Abs(float64(weights[0])-goal) {
			t.Fatalf("the soup of %v is worth %v, says %v (%v); the first alone %v", soup.Kept, worth, soup.Metric, err, soup.Tried[0])
		}
	})
}

func TestASoupEndsWhereEvaluatingFails(t *testing.T) {
	t.Parallel()
	one := source("one", 1, file(t, nil, f32("w", 1)))
	broken := errors.New("no such program")
	if _, err := checkpoint.Greedy([]checkpoint.Source{one, one}, less, func(*checkpoint.Average) (float64, error) { return 0, broken }); !errors.Is(err, broken) {
		t.Errorf("it says %v", err)
	}
	if _, err := checkpoint.Greedy(nil, less, weightOf); err == nil {
		t.Error("a soup of nothing is made")
	}
	if _, err := checkpoint.Greedy([]checkpoint.Source{one}, less, func(*checkpoint.Average) (float64, error) { return math.NaN(), nil }); err == nil {
		t.Error("a soup of NaN is made")
	}
}
