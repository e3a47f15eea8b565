package policy

import (
	"math"
	"strconv"
	"strings"
)

// Weights is an option such as "vision=2,speech=1": the weight, above 0, of each tenant that is named. It is empty by
// default.
func (o *Options) Weights(name, help string) map[string]float64 {
	text, ok := o.take(name, "", help)
	if !ok {
		return nil
	}
	weights := map[string]float64{}
	for pair := range strings.SplitSeq(text, ",") {
		tenant, value, _ := strings.Cut(pair, "=")
		weight, err := strconv.ParseFloat(value, 64)
		if _, twice := weights[tenant]; twice || tenant == "" || err != nil || !(weight > 0 && weight < 1e12) {
			o.fail(name, text, "tenants and their weights such as vision=2,speech=1")
			return nil
		}
		weights[tenant] = weight
	}
	return weights
}

// WeightOrOne is a weight, or 1 where it is none: not above 0, or without bound.
func WeightOrOne(weight float64) float64 {
	if weight > 0 && !math.IsInf(weight, 1) {
		return weight
	}
	return 1
}
