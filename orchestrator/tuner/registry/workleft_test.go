package registry_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/outbid-dev/outbid/orchestrator/lab/curvetest"
	"github.com/outbid-dev/outbid/orchestrator/tuner/registry"
	"github.com/outbid-dev/outbid/orchestrator/tuner/tunertest"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// stages returns the shares of a sweep's steps, and of a trial's full training, when the remaining work is forecast.
func stages() []float64 { return []float64{0.1, 0.25, 0.5, 0.75} }

// A leftover is the forecast and the actual remaining work of a sweep or a trial at a stage.
type leftover struct{ said, whole, was float64 }

// lefts are the leftovers of a family, by stage.
type lefts struct{ sweeps, trials [][]leftover }

func newLefts() *lefts {
	return &lefts{make([][]leftover, len(stages())), make([][]leftover, len(stages()))}
}

// A promise is a sweep's outlook after some steps, and the outlook if every trial that has not ended counted as trained
// to its end.
type promise struct{ done, said, whole int64 }

// runSweep trains a sweep of randomly drawn curves of a task to its end. It returns the outlooks on the way and the
// number of steps of each trial.
func runSweep(t *testing.T, task *curvetest.Task, trial, workers int, seed uint64) ([]promise, []int) {
	t.Helper()
	most := int64(task.Steps())
	made, err := registry.New(tunertest.Spec(performance(&outbidv1.PerformanceCurve{MaxSteps: most}), tunertest.Trials(int32(trial)), func(s *outbidv1.SweepSpec) {
		s.Tuner.Seed = new(seed)
		if !task.Maximise {
			s.Mode = "min"
		}
		s.Space = map[string]*outbidv1.Parameter{"curve": {Kind: &outbidv1.Parameter_Int{
			Int: &outbidv1.IntRange{High: int64(len(task.Curves) - 1)},
		}}}
	}))
	if err != nil {
		t.Fatal(err)
	}
	r := &race{
		task: task, tuner: made, workers: workers, reasons: map[string]int{},
		order: rand.New(rand.NewPCG(seed, uint64(trial))).Perm(len(task.Curves)),
	}
	var all []promise
	for r.fill(t) {
		for _, one := range slices.Clone(r.running) {
			r.train(t, one)
		}
		ended, did := int64(0), int64(0)
		for _, kind := range []string{"completed", "poor", "rank", "other"} {
			ended += int64(r.reasons[kind])
		}
		for _, one := range r.ended {
			did += int64(r.step[one])
		}
		all = append(all, promise{int64(len(r.best)), made.Outlook().Steps, did + (int64(trial)-ended)*most})
	}
	if len(r.step) != trial || made.Outlook().Steps != int64(len(r.best)) {
		t.Fatalf("%s: %d of %d trials were begun; %d steps done, and the outlook says %d", task.Name, len(r.step), trial, len(r.best),
			made.Outlook().Steps)
	}
	return all, r.step
}

// look adds the leftovers of a sweep and its trials at each stage.
func (l *lefts) look(promised []promise, steps []int, most int) {
	total := promised[len(promised)-1].done
	for k, stage := range stages() {
		i := slices.IndexFunc(promised, func(p promise) bool { return float64(p.done) >= stage*float64(total) })
		p := promised[i]
		if p.done < total {
			l.sweeps[k] = append(l.sweeps[k], leftover{float64(p.said - p.done), float64(p.whole - p.done), float64(total - p.done)})
		}
		at := int(math.Round(stage * float64(most)))
		for _, end := range steps {
			if end > at {
				whole := float64(most - at)
				l.trials[k] = append(l.trials[k], leftover{whole, whole, float64(end - at)})
			}
		}
	}
}

// covered returns the share of leftovers that were no more than forecast.
func covered(all []leftover) float64 {
	n := 0
	for _, o := range all {
		if o.said >= o.was {
			n++
		}
	}
	return float64(n) / float64(len(all))
}

// middle returns a quantile of a figure of the leftovers.
func middle(all []leftover, p float64, figure func(leftover) float64) float64 {
	var values []float64
	for _, o := range all {
		values = append(values, figure(o))
	}
	slices.Sort(values)
	return values[int(p*float64(len(values)-1))]
}

func over(o leftover) float64      { return o.said / o.was }
func overWhole(o leftover) float64 { return o.whole / o.was }
func part(o leftover) float64      { return o.was / o.whole }

// rows returns the rows for sweeps and trials in the tables of docs/research/work-left.md.
func (l *lefts) rows(name string) (sweeps, trial string) {
	sweeps, trial = "| "+name+" |", "| "+name+" |"
	for k := range stages() {
		s, one := l.sweeps[k], l.trials[k]
		sweeps += fmt.Sprintf(" %d | %.1f | %.2f | %.2f |", len(s), 100*covered(s), middle(s, 0.5, over), middle(s, 0.5, overWhole))
		trial += fmt.Sprintf(" %d | %.1f | %.2f | %.2f |", len(one), 100*covered(one), middle(one, 0.5, overWhole), middle(one, 0.9, part))
	}
	return sweeps, trial
}

// checkLefts fails if the forecast was too low for more than a tenth of a family's sweeps, or if forecasts are hardly
// lower than with all trials trained to their ends.
func checkLefts(t *testing.T, name string, l *lefts) {
	t.Helper()
	for k, stage := range stages() {
		if got := covered(l.sweeps[k]); got < 0.9 {
			t.Errorf("%s: at %v of their steps %.3f of %d sweeps had no more left than they said", name, stage, got, len(l.sweeps[k]))
		}
		if len(l.sweeps[k]) == 0 || len(l.trials[k]) == 0 {
			t.Errorf("%s: at %v there were %d sweeps and %d trials to look at", name, stage, len(l.sweeps[k]), len(l.trials[k]))
		}
		// A full training is an upper bound on the remaining work of any trial.
		if got := covered(l.trials[k]); got < 1 {
			t.Errorf("%s: at %v of their training %.3f of %d trials ended by their last step", name, stage, got, len(l.trials[k]))
		}
	}
	if said, whole := middle(l.sweeps[2], 0.5, over), middle(l.sweeps[2], 0.5, overWhole); whole > 1.5 && said > 0.95*whole {
		t.Errorf("%s: half-way what is left is said to be %.2f times what it is, and %.2f times if all were trained to the end", name, said, whole)
	}
}

// The forecast of the remaining work errs on the long side for synthetic curves of every family: it suffices nine times
// in ten.
func TestWorkLeftOfMadeCurvesErrsOnTheLongSide(t *testing.T) {
	t.Parallel()
	for _, family := range curvetest.Families() {
		t.Run(family, func(t *testing.T) {
			t.Parallel()
			l := newLefts()
			for seed := range uint64(5) {
				task := curvetest.Made(family, 120, 40, seed)
				for _, trial := range []int{20, 60, 120} {
					promised, steps := runSweep(t, &task, trial, 4, seed)
					l.look(promised, steps, task.Steps())
				}
			}
			checkLefts(t, family, l)
			sweeps, trial := l.rows(family)
			t.Logf("\n%s\n%s", sweeps, trial)
		})
	}
}

// fittedHere reports whether the constants of the outlook, like those of package curve, were chosen on a task. All
// others are held out.
func fittedHere(name string) bool {
	return slices.ContainsFunc([]string{
		"patch128_LSTM128_bs64", "patch32_IRNN64", "patch32_GRU128", "criteo1tb", "imagenet_resnet", "librispeech_conformer", "ogbg",
	}, func(family string) bool { return strings.HasPrefix(name, family) })
}

// TestWorkLeftOfRealCurvesErrsOnTheLongSide checks the same on real curves of held-out tasks, as documented in
// docs/research/work-left.md:
//
//	go test ./orchestrator/tuner -run WorkLeftOfReal -v
func TestWorkLeftOfRealCurvesErrsOnTheLongSide(t *testing.T) {
	t.Parallel()
	tasks := realTasks(t)
	sets := map[string]*lefts{"TaskSet": newLefts(), "AlgoPerf": newLefts()}
	var table strings.Builder
	for _, task := range tasks {
		if fittedHere(task.Name) != (os.Getenv("OUTBID_FITTED_TASKS") != "") {
			continue
		}
		own := newLefts()
		for _, trial := range []int{20, 60, 120} {
			for _, workers := range []int{4, 12} {
				for seed := range uint64(3) {
					promised, steps := runSweep(t, &task, min(trial, len(task.Curves)), workers, 100+seed)
					sets[task.Set].look(promised, steps, task.Steps())
					own.look(promised, steps, task.Steps())
				}
			}
		}
		sweeps, trial := own.rows(task.Name)
		fmt.Fprintf(&table, "%s\n%s\n", sweeps, trial)
	}
	for _, set := range []string{"TaskSet", "AlgoPerf"} {
		checkLefts(t, set, sets[set])
		sweeps, trial := sets[set].rows(set)
		fmt.Fprintf(&table, "%s\n%s\n", sweeps, trial)
	}
	t.Logf("\n%s", table.String())
}
