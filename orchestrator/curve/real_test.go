package curve_test

import (
	"cmp"
	"flag"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/outbid-dev/outbid/orchestrator/curve"
	"github.com/outbid-dev/outbid/orchestrator/lab/curvetest"
)

var printPrior = flag.Bool("prior", false, "print the prior's tables as prior.go holds them")

// shared is the path of the real curves relative to this package.
const shared = "../../../shared/data/curves"

// cuts returns the shares of training after which curves are forecast.
func cuts() []float64 { return []float64{0.1, 0.25, 0.5} }

// fitted reports whether the prior was fitted on a task. All other tasks are held out, and none of them is a variant of
// the same model and data.
func fitted(name string) bool {
	for _, family := range []string{
		"patch128_LSTM128_bs64", "patch32_IRNN64", "patch32_GRU128", "criteo1tb", "imagenet_resnet", "librispeech_conformer", "ogbg",
	} {
		if strings.HasPrefix(name, family) {
			return true
		}
	}
	return false
}

// A realTask is a task with the forecasts of its curves' ends at each cut.
type realTask struct {
	curvetest.Task
	guesses [][]guess
}

// readTasks reads and forecasts once for all tests.
var readTasks = sync.OnceValues(func() ([]realTask, error) {
	tasks, err := curvetest.All(os.DirFS(shared))
	if err != nil {
		return nil, err
	}
	var all []realTask
	for _, task := range tasks {
		real := realTask{Task: task}
		for _, cut := range cuts() {
			real.guesses = append(real.guesses, guesses(&task, cut))
		}
		all = append(all, real)
	}
	return all, nil
})

func realTasks(tb testing.TB) []realTask {
	tb.Helper()
	tasks, err := readTasks()
	if err != nil {
		tb.Fatal(err)
	}
	if len(tasks) == 0 {
		tb.Skip("the shared curves are not here")
	}
	return tasks
}

func cutStep(t *curvetest.Task, cut float64) int { return int(math.Round(cut * float64(t.Steps()))) }

// A guess is a forecast of a curve's end, the actual end, and the cost at the cut for ranking.
type guess struct {
	forecast    curve.Forecast
	final, rank float64
	fit         *curve.Curve
}

// guesses forecasts the ends of a task's curves that had not diverged at a cut and were long enough.
func guesses(t *curvetest.Task, cut float64) []guess {
	step := cutStep(t, cut)
	var all []guess
	for i := range t.Curves {
		if !t.Known(i, step) {
			continue
		}
		if c, ok := curve.Fit(t.Points(i, step), t.Maximise); ok {
			rank := t.Curves[i][step-1]
			if t.Maximise {
				rank = -rank
			}
			all = append(all, guess{final: t.Curves[i][t.Steps()-1], rank: rank, fit: c})
		}
	}
	slices.SortFunc(all, func(a, b guess) int { return cmp.Compare(a.rank, b.rank) })
	for from := 0; from < len(all); {
		to := from
		for to < len(all) && all[to].rank == all[from].rank {
			to++
		}
		for i := from; i < to; i++ {
			all[i].fit.Place = float64(from+to) / 2 / float64(len(all))
			all[i].forecast = all[i].fit.At(int64(t.Steps()), &curve.Calibration{})
		}
		from = to
	}
	return all
}

// The tables of prior.go follow from the fitted tasks. Each task has the same weight within its set, and both sets have
// the same weight.
func TestThePriorIsWhatTheFittedTasksGive(t *testing.T) {
	t.Parallel()
	tasks := realTasks(t)
	for i, cut := range cuts() {
		type atom struct{ z, weight float64 }
		var atoms []atom
		count := map[string]float64{}
		for _, task := range tasks {
			if fitted(task.Name) {
				count[task.Set]++
			}
		}
		total := 0.0
		for _, task := range tasks {
			if !fitted(task.Name) {
				continue
			}
			all := task.guesses[i]
			for _, g := range all {
				weight := 1 / count[task.Set] / float64(len(all))
				total += weight
				atoms = append(atoms, atom{g.forecast.Claim().Score(g.final), weight})
			}
		}
		slices.SortFunc(atoms, func(a, b atom) int {
			if a.z < b.z {
				return -1
			}
			return 1
		})
		var table [40]float64
		for j := range table {
			sum := 0.0
			for _, a := range atoms {
				if sum += a.weight; sum >= total*(float64(j)+0.5)/40 {
					table[j] = math.Round(a.z*100) / 100
					break
				}
			}
		}
		if *printPrior {
			var text []string
			for _, z := range table {
				text = append(text, fmt.Sprint(z))
			}
			fmt.Printf("{math.Log2(1 / %v), [40]float64{%s}},\n", cut, strings.Join(text, ", "))
			continue
		}
		have := curve.PriorScores(math.Log2(1 / cut))
		for j := range table {
			if math.Abs(have[j]-table[j]) > 0.02 {
				t.Errorf("at %v of training the prior's quantile %d is %v, and not %v", cut, j, have[j], table[j])
			}
		}
	}
}
