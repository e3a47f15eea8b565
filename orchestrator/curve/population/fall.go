package population

import (
	"math"
	"slices"
)

const (
	// fallsCount is the weight of the mean fall of curves.
	fallsCount = 5
	// leastFall and mostFall limit a fall. Curves that rise count as falling by the least.
	leastFall, mostFall = 0.01, 3
	// fallsDiffer is the standard deviation of the logarithm of the fall between tasks of one correlation model.
	fallsDiffer = 0.7
	// The fall after a look counts if at least leastBegun curves have begun and leastBetter of them are known there.
	leastBegun, leastBetter = 5, 3
)

// fall returns how much curves fall in a doubling of the steps, relative to the spread of the better half:
// the mean over looks, or NaN if too few curves are known. Curves that fall by far less than their spread will keep
// their order; others may end in any order.
func (s *standings) fall(looks []int64) float64 {
	sum, n := 0.0, 0.0
	for k := range len(looks) - 1 {
		if fall := s.fallAfter(k, looks); !math.IsNaN(fall) {
			sum, n = sum+fall, n+1
		}
	}
	return sum / n
}

// fallAfter returns the fall of curves after a look.
func (s *standings) fallAfter(k int, looks []int64) float64 {
	var there []float64
	for _, c := range s.curves {
		if v := c.at(k); finite(v) {
			there = append(there, v)
		}
	}
	if s.begun < leastBegun || len(there) < leastBetter {
		return math.NaN()
	}
	slices.Sort(there)
	better := there[:min(len(there), max(leastBetter, (s.begun+1)/2))]
	worst := better[len(better)-1]
	differ := worst - better[0]
	var falls []float64
	for _, c := range s.curves {
		if v, next := c.at(k), c.at(k+1); v <= worst && finite(next) {
			falls = append(falls, v-next)
		}
	}
	if len(falls) < 2 || differ <= 0 {
		return math.NaN()
	}
	doublings := math.Log2(float64(looks[k+1]) / float64(looks[k]))
	early := 1 + float64(looks[len(looks)-1])/float64(looks[k])/32 // at first all curves fall
	return min(max(median(falls)/doublings/differ/early, leastFall), mostFall)
}

// falling returns the log likelihood of a fall: Student's t with three degrees of freedom.
func (c *CorrelationModel) falling(fall float64) float64 {
	if math.IsNaN(fall) {
		return 0
	}
	d := math.Log(fall/c.Falls) / fallsDiffer
	return -2 * math.Log1p(d*d/3)
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// median returns the median and sorts its argument.
func median(values []float64) float64 {
	slices.Sort(values)
	n := len(values)
	return (values[(n-1)/2] + values[n/2]) / 2
}
