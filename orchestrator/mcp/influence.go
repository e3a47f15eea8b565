package mcp

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// influence is the association of a parameter with the sweep's metric.
type influence struct {
	Parameter string `json:"parameter"`
	Trials    int    `json:"trials" jsonschema:"number of trials with the parameter and a metric"`
	// Strength orders numbers and words together.
	Strength number `json:"strength" jsonschema:"0 for none to 1 for complete"`
	// Correlation is only set for numbers.
	Correlation *number      `json:"rank_correlation,omitempty" jsonschema:"of a number: Spearman's, from -1 to 1; positive if the metric rises with it"`
	Values      []valueMeans `json:"values,omitempty" jsonschema:"mean metric by value; of a number, by quarter if that is stronger than the correlation"`
}

// valueMeans is the mean metric of the trials with a value.
type valueMeans struct {
	Value  string `json:"value"`
	Trials int    `json:"trials"`
	Mean   number `json:"mean_metric"`
}

const (
	// minInfluence is the fewest trials from which an association is computed.
	minInfluence = 8
	// maxInfluences is the number of parameters, and of values of each, that are listed.
	maxInfluences = 12
)

// influences returns the association of each parameter with the metric, the strongest first.
func influences(all []*outbidv1.Trial) []influence {
	metrics := map[string][]float64{}
	values := map[string][]any{}
	for _, t := range all {
		if t.Best == nil || math.IsNaN(t.GetBest()) || math.IsInf(t.GetBest(), 0) {
			continue
		}
		for path, value := range configOf(t) {
			metrics[path], values[path] = append(metrics[path], t.GetBest()), append(values[path], value)
		}
	}
	var found []influence
	for path := range values {
		if len(values[path]) < minInfluence {
			continue
		}
		if one := influenceOf(values[path], metrics[path]); one.Strength > 0 {
			one.Parameter, one.Trials = path, len(values[path])
			found = append(found, one)
		}
	}
	slices.SortFunc(found, func(a, b influence) int {
		return cmp.Or(cmp.Compare(b.Strength, a.Strength), cmp.Compare(a.Parameter, b.Parameter))
	})
	return found[:min(len(found), maxInfluences)]
}

// influenceOf compares values of a parameter with the metrics of their trials.
func influenceOf(values []any, metrics []float64) influence {
	x := make([]float64, len(values))
	for i, v := range values {
		n, ok := v.(json.Number)
		if !ok {
			return groupInfluence(values, metrics)
		}
		x[i], _ = n.Float64()
	}
	r := correlation(ranks(x), ranks(metrics))
	found := influence{Strength: round3(math.Abs(r)), Correlation: new(round3(r))}
	if inParts := groupInfluence(quarters(x), metrics); inParts.Strength > found.Strength {
		found.Strength, found.Values = inParts.Strength, inParts.Values // such as an optimum in the middle
	}
	return found
}

// quarters returns the quarter of the values in which each value is, with the quarter's range.
func quarters(x []float64) []any {
	order := slices.Sorted(slices.Values(x))
	bounds := []float64{order[len(order)/4], order[len(order)/2], order[len(order)*3/4], math.Inf(1)}
	parts := make([]any, len(x))
	for i, v := range x {
		part := slices.IndexFunc(bounds, func(bound float64) bool { return v < bound })
		parts[i] = fmt.Sprintf("quarter %d, below %.4g", part+1, bounds[part])
		if part == 3 {
			parts[i] = fmt.Sprintf("quarter 4, up to %.4g", order[len(order)-1])
		}
	}
	return parts
}

// groupInfluence returns how much of the variation of the metric's ranks the values explain, beyond what as many groups
// explain by chance: the root of epsilon squared.
func groupInfluence(values []any, metrics []float64) influence {
	order := ranks(metrics)
	mean := meanOf(order)
	groups := map[string][]int{}
	total := 0.0
	for i, v := range values {
		word := fmt.Sprint(v)
		groups[word] = append(groups[word], i)
		total += (order[i] - mean) * (order[i] - mean)
	}
	if len(groups) < 2 || len(groups) > len(values)/2 || total == 0 {
		return influence{}
	}
	between := 0.0
	var means []valueMeans
	for word, members := range groups {
		var rank, metric float64
		for _, i := range members {
			rank += order[i] / float64(len(members))
			metric += metrics[i] / float64(len(members))
		}
		between += float64(len(members)) * (rank - mean) * (rank - mean)
		means = append(means, valueMeans{word, len(members), number(metric)})
	}
	slices.SortFunc(means, func(a, b valueMeans) int {
		return cmp.Or(cmp.Compare(b.Trials, a.Trials), cmp.Compare(a.Value, b.Value))
	})
	n, k := float64(len(values)), float64(len(groups))
	explained := max(0, 1-(1-between/total)*(n-1)/(n-k))
	return influence{Strength: round3(math.Sqrt(explained)), Values: means[:min(len(means), maxInfluences)]}
}

func round3(v float64) number { return number(math.Round(v*1000) / 1000) }

func meanOf(x []float64) float64 {
	sum := 0.0
	for _, v := range x {
		sum += v
	}
	return sum / float64(len(x))
}

// ranks returns the rank of each value from 1; equal values share the mean of their ranks.
func ranks(x []float64) []float64 {
	order := make([]int, len(x))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(x[a], x[b]) })
	ranks := make([]float64, len(x))
	for i := 0; i < len(order); {
		j := i
		for j < len(order) && x[order[j]] == x[order[i]] {
			j++
		}
		for _, k := range order[i:j] {
			ranks[k] = float64(i+j+1) / 2
		}
		i = j
	}
	return ranks
}

// correlation returns Pearson's correlation, or 0 if one side does not vary.
func correlation(x, y []float64) float64 {
	mx, my := meanOf(x), meanOf(y)
	var xy, xx, yy float64
	for i := range x {
		xy += (x[i] - mx) * (y[i] - my)
		xx += (x[i] - mx) * (x[i] - mx)
		yy += (y[i] - my) * (y[i] - my)
	}
	if xx == 0 || yy == 0 {
		return 0
	}
	return xy / math.Sqrt(xx*yy)
}
