package curve_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/outbid-dev/outbid/orchestrator/curve"
)

// A tally counts results, and those inside their intervals.
type tally struct{ inside, all float64 }

func (y *tally) add(r curve.Result) {
	y.all++
	if r.Inside {
		y.inside++
	}
}

func (y *tally) share() float64 { return y.inside / y.all }

// A row is the coverage of the 90 % intervals of a task's curves at one cut.
type row struct {
	curves int
	// alone uses only the built-in prior, taught also the scores of completed curves of the same sweep. best is taught
	// restricted to the curves that were in the best quarter at the cut.
	alone, taught, best tally
}

const (
	// taughtBy is the number of the sweep's completed curves that a calibration has seen.
	taughtBy = 32
	// orders is the number of orders of the curves to average over.
	orders = 50
	// tested is the maximum number of other curves that are then forecast.
	tested = 80
)

func coverage(guesses []guess) row {
	all := slices.Clone(guesses)
	r := row{curves: len(all)}
	ranks := make([]float64, len(all))
	for i, g := range all {
		ranks[i] = g.rank
		r.alone.add(outcome(g, &curve.Calibration{}))
	}
	slices.Sort(ranks)
	best := ranks[len(ranks)/4]
	order := rand.New(rand.NewPCG(uint64(len(all)), 1))
	for range orders {
		order.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		var known curve.Calibration
		for _, g := range all[:taughtBy] {
			known.Learn(g.forecast.Claim(), g.final, 1)
		}
		for _, g := range all[taughtBy:min(len(all), taughtBy+tested)] {
			low, high := known.Interval(g.forecast.Doublings, g.fit.Place)
			score := g.forecast.Claim().Score(g.final)
			result := curve.Result{Inside: low <= score && score <= high}
			r.taught.add(result)
			if g.rank <= best {
				r.best.add(result)
			}
		}
	}
	return r
}

func outcome(g guess, k *curve.Calibration) curve.Result {
	known := *k
	known.Learn(g.forecast.Claim(), g.final, 1)
	return known.Results[len(known.Results)-1]
}

// On held-out tasks, the 90 % intervals of forecasts of a curve's end cover 85 to 95 % once 32 of the sweep's own
// curves have completed. The test prints the table of docs/research/performance-curve.md:
//
//	go test ./orchestrator/curve -run Coverage -v
func TestCoverageOnRealCurves(t *testing.T) {
	t.Parallel()
	var table strings.Builder
	sums := map[string]*row{}
	for _, task := range realTasks(t) {
		fmt.Fprintf(&table, "| %s | %s | %s |", task.Set, task.Name, map[bool]string{true: "fitted", false: "held out"}[fitted(task.Name)])
		for i, cut := range cuts() {
			r := coverage(task.guesses[i])
			fmt.Fprintf(&table, " %d | %.1f | %.1f | %.1f |", r.curves, 100*r.alone.share(), 100*r.taught.share(), 100*r.best.share())
			if fitted(task.Name) {
				continue
			}
			if got := r.taught.share(); got < 0.85 || got > 0.95 {
				t.Errorf("%s, %s, at %v of training: 90 %% intervals cover %.3f", task.Set, task.Name, cut, got)
			}
			key := fmt.Sprint(task.Set, " ", i)
			if sums[key] == nil {
				sums[key] = &row{}
			}
			// Each task has the same weight.
			sums[key].curves++
			sums[key].taught.inside += r.taught.share()
			sums[key].alone.inside += r.alone.share()
			sums[key].best.inside += r.best.share()
		}
		table.WriteByte('\n')
	}
	for _, set := range []string{"TaskSet", "AlgoPerf"} {
		fmt.Fprintf(&table, "| %s | mean of the tasks | held out |", set)
		for i := range cuts() {
			s := sums[fmt.Sprint(set, " ", i)]
			n := float64(s.curves)
			fmt.Fprintf(&table, " | %.1f | %.1f | %.1f |", 100*s.alone.inside/n, 100*s.taught.inside/n, 100*s.best.inside/n)
			if got := s.taught.inside / n; got < 0.85 || got > 0.95 {
				t.Errorf("%s at %v of training: 90 %% intervals cover %.3f", set, cuts()[i], got)
			}
		}
		table.WriteByte('\n')
	}
	t.Logf("\n%s", table.String())
}
