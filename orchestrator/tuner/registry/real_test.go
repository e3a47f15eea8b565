package registry_test

import (
	"flag"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/outbid-dev/outbid/orchestrator/lab/curvetest"
	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/registry"
	"github.com/outbid-dev/outbid/orchestrator/tuner/tunertest"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// A race is a tuner that trains real curves: a configuration is the index of a curve.
type race struct {
	task    *curvetest.Task
	tuner   tuner.Tuner
	workers int
	which   []int
	step    []int
	until   []int
	running []tuner.Trial
	waiting []tuner.Trial
	// spent is the number of steps trained; best holds the best cost for each number of steps.
	best []float64
	// reasons counts the first words of the reasons of ends and pauses; ended are the trials that ended.
	reasons map[string]int
	ended   []tuner.Trial
	// order is the curves of the trials, if they do not follow from the configurations.
	order []int
}

func cost(task *curvetest.Task, v float64) float64 {
	switch {
	case math.IsNaN(v):
		return math.Inf(1)
	case task.Maximise:
		return -v
	default:
		return v
	}
}

func (r *race) run(t *testing.T, budget int) {
	t.Helper()
	for len(r.best) < budget {
		if !r.fill(t) {
			t.Fatal("nothing runs")
		}
		for _, trial := range slices.Clone(r.running) {
			r.train(t, trial)
		}
	}
}

// fill gives trials to free workers and reports whether any trial runs.
func (r *race) fill(t *testing.T) bool {
	t.Helper()
	if room := r.workers - len(r.running); room > 0 {
		r.waiting = append(r.waiting, r.send(t, tuner.Ask{N: room})...)
	}
	for len(r.running) < r.workers && len(r.waiting) > 0 {
		r.running, r.waiting = append(r.running, r.waiting[0]), r.waiting[1:]
	}
	return len(r.running) > 0
}

// train lets a trial do a step and report it.
func (r *race) train(t *testing.T, trial tuner.Trial) {
	t.Helper()
	r.step[trial]++
	at := r.step[trial]
	value, fresh := r.task.Curves[r.which[trial]][at-1], r.task.Fresh[r.which[trial]][at-1]
	best := cost(r.task, value)
	if n := len(r.best); n > 0 {
		best = min(best, r.best[n-1])
	}
	r.best = append(r.best, best)
	if at == r.until[trial] {
		r.running = slices.DeleteFunc(r.running, func(o tuner.Trial) bool { return o == trial })
		more := r.send(t, tuner.Reached{Trial: trial, Step: int64(at), Metric: value})
		for _, m := range more {
			if m == trial {
				r.running = append(r.running, m)
			} else {
				r.waiting = append(r.waiting, m)
			}
		}
	} else if fresh {
		r.send(t, tuner.Reported{Trial: trial, Step: int64(at), Metric: value, Metrics: map[string]float64{"accuracy": value}})
	}
}

// send passes an event to the tuner and returns the trials to train.
func (r *race) send(t *testing.T, e tuner.Event) []tuner.Trial {
	t.Helper()
	actions, err := r.tuner.Handle(e)
	if err != nil {
		t.Fatal(err)
	}
	var train []tuner.Trial
	for _, a := range actions {
		switch a := a.(type) {
		case tuner.Create:
			train = append(train, tuner.Trial(len(r.which)))
			which := int(a.Config["curve"].(int64))
			if r.order != nil {
				which = r.order[len(r.which)]
			}
			r.which = append(r.which, which)
			r.step, r.until = append(r.step, 0), append(r.until, int(a.UntilStep))
		case tuner.Train:
			train = append(train, a.Trial)
			r.until[a.Trial] = int(a.UntilStep)
		case tuner.Pause:
			r.reasons["pause"]++
		case tuner.End:
			r.reasons[reasonKind(a)]++
			r.ended = append(r.ended, a.Trial)
			r.running = slices.DeleteFunc(r.running, func(o tuner.Trial) bool { return o == a.Trial })
		}
	}
	return train
}

func reasonKind(a tuner.End) string {
	switch {
	case a.Completed:
		return "completed"
	case strings.Contains(a.Reason, "poor"):
		return "poor"
	case strings.Contains(a.Reason, "calibrated"), strings.Contains(a.Reason, "too few to forecast"):
		return "rank"
	default:
		return "other"
	}
}

// racers returns the tuners to compare, with typical settings.
func racers(steps int64) []*outbidv1.Tuner {
	return []*outbidv1.Tuner{
		{Kind: &outbidv1.Tuner_Random{Random: &outbidv1.RandomSearch{MaxSteps: steps}}},
		median(&outbidv1.MedianStopping{MaxSteps: steps, GraceSteps: max(1, steps/10)}),
		asha(&outbidv1.Asha{MaxSteps: steps, MinSteps: max(1, steps/27)}),
		performance(&outbidv1.PerformanceCurve{MaxSteps: steps}),
	}
}

func racerNames() []string { return []string{"random", "median", "asha", "performance_curve"} }

var raceSeeds = flag.Int("race-seeds", 0, "seeds of the races on real curves, each with a budget of 64 trainings")

// budgets returns the budgets of a race in trainings of max_steps.
func budgets() []int {
	if *raceSeeds == 0 {
		return []int{4, 8, 16}
	}
	return []int{4, 8, 16, 32, 64}
}

// raceOn returns, for each budget, the percentage of a task's curves that ever get better than the best that a tuner
// has seen: the mean over seeds.
func raceOn(t *testing.T, task *curvetest.Task, racer int, seeds int, reasons map[string]int) []float64 {
	t.Helper()
	var bests []float64
	for _, c := range task.Curves {
		best := math.Inf(1)
		for _, v := range c {
			best = min(best, cost(task, v))
		}
		bests = append(bests, best)
	}
	slices.Sort(bests)
	steps := task.Steps()
	regret := make([]float64, len(budgets()))
	for seed := range seeds {
		s := tunertest.Spec(racers(int64(steps))[racer], func(s *outbidv1.SweepSpec) {
			s.Tuner.Seed = new(uint64(seed))
			if !task.Maximise {
				s.Mode = "min"
			}
			s.Space = map[string]*outbidv1.Parameter{"curve": {Kind: &outbidv1.Parameter_Int{
				Int: &outbidv1.IntRange{High: int64(len(task.Curves) - 1)},
			}}}
		})
		made, err := registry.New(s)
		if err != nil {
			t.Fatal(err)
		}
		r := &race{task: task, tuner: made, workers: 4, reasons: reasons}
		r.run(t, budgets()[len(budgets())-1]*steps)
		for i, b := range budgets() {
			better, _ := slices.BinarySearch(bests, r.best[b*steps-1])
			regret[i] += 100 * float64(better) / float64(len(bests)) / float64(seeds)
		}
	}
	return regret
}

// realTasks returns the tasks of the shared curves, and skips the test if they are not available.
func realTasks(t *testing.T) []curvetest.Task {
	t.Helper()
	tasks, err := curvetest.All(os.DirFS("../../../../shared/data/curves"))
	if err != nil {
		t.Fatal(err)
	}
	if len(tasks) == 0 {
		t.Skip("the shared curves are not here")
	}
	return tasks
}

// TestRaceOnRealCurves compares tuners on real curves at equal budgets, with four workers. It prints the tables of
// docs/research/performance-curve.md:
//
//	go test ./orchestrator/tuner -run Race -v -args -race-seeds 20
func TestRaceOnRealCurves(t *testing.T) {
	t.Parallel()
	tasks := realTasks(t)
	var table strings.Builder
	sums := map[string][]float64{}
	for _, task := range tasks {
		for i, name := range racerNames() {
			reasons := map[string]int{}
			regret := raceOn(t, &task, i, max(2, *raceSeeds), reasons)
			line(&table, task.Set, task.Name, name, regret)
			fmt.Fprintln(&table, reasons)
			key := task.Set + " " + name
			if sums[key] == nil {
				sums[key] = make([]float64, len(regret)+1)
			}
			for j, v := range regret {
				sums[key][j] += v
			}
			sums[key][len(regret)]++
		}
	}
	for _, set := range []string{"TaskSet", "AlgoPerf"} {
		for _, name := range racerNames() {
			sum := sums[set+" "+name]
			for j := range budgets() {
				sum[j] /= sum[len(sum)-1]
			}
			line(&table, set, "mean of the tasks", name, sum[:len(sum)-1])
			table.WriteByte('\n')
		}
	}
	t.Logf("\n%s", table.String())
	// These hold at 16 trainings: the benefit of early stopping where it helps, and a limit on its cost elsewhere.
	if ours, random := sums["TaskSet performance_curve"][2], sums["TaskSet random"][2]; ours > random/2 {
		t.Errorf("on TaskSet %.1f %% of the curves are better than the best found, by random search %.1f %%", ours, random)
	}
	if ours, rival := sums["AlgoPerf performance_curve"][2], sums["AlgoPerf asha"][2]; ours > rival {
		t.Errorf("on AlgoPerf %.1f %% of the curves are better than the best found, by ASHA %.1f %%", ours, rival)
	}
}

func line(table *strings.Builder, set, task, name string, regret []float64) {
	fmt.Fprintf(table, "| %s | %s | %s |", set, task, name)
	for _, v := range regret {
		fmt.Fprintf(table, " %.1f |", v)
	}
}
