package population

import (
	"math"
	"slices"
)

const (
	// fallsCount is how often the mean fall of curves counts.
	fallsCount = 5
	// leastFall and mostFall are where a fall is cut off: curves that rise fall by the least.
	leastFall, mostFall = 0.01, 3
	// fallsDiffer is by how much the logarithms of the falls of tasks of one course differ.
	fallsDiffer = 0.7
	// leastBegun curves must be begun and leastBetter of them be known at a look, before how much they fall from there is counted.
	leastBegun, leastBetter = 5, 3
)

// fall is how much curves fall while their steps double, in parts of what the better half of them differ by: the mean over looks; NaN while too few
// are known. Curves that fall by far less than they differ are to end as they stand; those that fall by as much may end in any order.
func (s *standings) fall(looks []int64) float64 {
	sum, n := 0.0, 0.0
	for k := range len(looks) - 1 {
		if fall := s.fallAfter(k, looks); !math.IsNaN(fall) {
			sum, n = sum+fall, n+1
		}
	}
	return sum / n
}

// fallAfter is how much curves fall after a look.
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

// falling is the log of the likelihood of a fall: Student's t with three degrees of freedom.
func (c *Course) falling(fall float64) float64 {
	if math.IsNaN(fall) {
		return 0
	}
	d := math.Log(fall/c.Falls) / fallsDiffer
	return -2 * math.Log1p(d*d/3)
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// median sorts what it is given.
func median(values []float64) float64 {
	slices.Sort(values)
	n := len(values)
	return (values[(n-1)/2] + values[n/2]) / 2
}
