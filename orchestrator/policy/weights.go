package policy

import (
	"math"
	"strconv"
	"strings"
)

// Weights reads an option such as "vision=2,speech=1": tenants and their weights, which must be above 0. The default is
// empty.
func (o *Options) Weights(name, help string) map[string]float64 {
	text, ok := o.lookup(name, "", help)
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

// WeightOrOne returns the weight, or 1 if it is not above 0 or is infinite.
func WeightOrOne(weight float64) float64 {
	if weight > 0 && !math.IsInf(weight, 1) {
		return weight
	}
	return 1
}
