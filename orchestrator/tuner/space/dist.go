package space

import (
	"fmt"
	"math/rand/v2"

	"google.golang.org/protobuf/types/known/structpb"
)

// A dist is the distribution of one leaf's values.
type dist interface {
	// at returns the value at u in [0, 1).
	at(u float64) any
	// check describes what is wrong with a value, or returns "" if the distribution contains it.
	check(v any) string
	// perturb multiplies a value of the distribution by a factor, or moves it to a neighbour.
	perturb(v any, factor float64, rng *rand.Rand) any
	// count returns the number of grid points if an unquantised range gets at most points of them.
	count(points int) uint64
	// grid lists the grid points. It is called only if their count is within limits.
	grid(points int) []any
}

// choiceDist is a uniform choice between values.
type choiceDist struct{ values []any }

func newChoice(field string, values []*structpb.Value) (dist, error) {
	if len(values) == 0 {
		return nil, wrong(field, "is empty; list at least one value")
	}
	d := choiceDist{values: make([]any, len(values))}
	seen := make(map[string]int, len(values))
	for i, pv := range values {
		at := fmt.Sprintf("%s[%d]", field, i)
		v, err := fromValue(at, pv, 0)
		if err != nil {
			return nil, err
		}
		text := show(v)
		if first, dup := seen[text]; dup {
			return nil, wrong(at, "%s is a duplicate of %s[%d]; list every value once", short(text), field, first)
		}
		seen[text] = i
		d.values[i] = v
	}
	return d, nil
}

func (d choiceDist) at(u float64) any {
	return d.values[min(int(u*float64(len(d.values))), len(d.values)-1)]
}

func (d choiceDist) check(v any) string {
	if contains(d.values, v) {
		return ""
	}
	return fmt.Sprintf("%s is not one of %s", short(show(v)), short(show(d.values)))
}

// perturb moves to the value before or after. A value at an end has one neighbour.
func (d choiceDist) perturb(v any, _ float64, rng *rand.Rand) any {
	up := rng.IntN(2) == 1
	for i := range d.values {
		if !equal(d.values[i], v) {
			continue
		}
		switch {
		case up && i+1 < len(d.values):
			return d.values[i+1]
		case i > 0:
			return d.values[i-1]
		default:
			return d.values[min(1, len(d.values)-1)]
		}
	}
	return v
}

func (d choiceDist) count(int) uint64 { return uint64(len(d.values)) }

func (d choiceDist) grid(int) []any { return d.values }

// constDist always has the same value.
type constDist struct{ value any }

func (d constDist) at(float64) any { return d.value }

func (d constDist) check(v any) string {
	if equal(d.value, v) {
		return ""
	}
	return fmt.Sprintf("%s is not the constant %s", short(show(v)), short(show(d.value)))
}

func (d constDist) perturb(v any, _ float64, _ *rand.Rand) any { return v }

func (d constDist) count(int) uint64 { return 1 }

func (d constDist) grid(int) []any { return []any{d.value} }

// show formats a value as JSON for an error or a comparison.
func show(v any) string {
	text, err := canonical(v)
	if err != nil {
		return fmt.Sprintf("%v", v)
	}
	return text
}

// short truncates text that would make an error unreadable.
func short(text string) string {
	const limit = 80
	runes := []rune(text)
	if len(runes) <= limit {
		return text
	}
	return string(runes[:limit-3]) + "..."
}
