package registry_test

import (
	"bufio"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"flag"
	"log/slog"
	"math"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/outbid-dev/outbid/orchestrator/lab/curvetest"
	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/plugin"
	"github.com/outbid-dev/outbid/orchestrator/tuner/tunertest"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// A contest runs one tuner on one task with one seed. At every tick, each slot trains a trial for a step.
type contest struct {
	task  *curvetest.Task
	tuner tuner.Tuner
	// pick returns the curve of a new trial.
	pick    func(tuner.Config) int
	which   []int
	step    []int
	until   []int
	running []tuner.Trial
	waiting []tuner.Trial
	pauses  int
	// decisions counts reached targets and requests for trials.
	decisions int
	best      float64
	bySteps   []float64 // the best cost after each number of steps of all trials
	byTicks   []float64 // the best cost after each tick
	forecast  func(contestEnd)
	// kept are the trials that freeze_thaw trains to the end regardless of their forecast. keeping is called with the
	// reason.
	kept    map[tuner.Trial]bool
	keeping func(reason string)
	// said holds, for each forecast, the chance to beat the best, whether the trial did, and whether it was stopped.
	said [][3]float64
}

// A contestEnd is a trial that a tuner ended early.
type contestEnd struct {
	trial  tuner.Trial
	reason string
	best   float64
	step   int
}

// hold runs the contest for a number of ticks.
func (c *contest) hold(t testing.TB, slots, ticks int) {
	t.Helper()
	c.best = math.Inf(1)
	for range ticks {
		if room := slots - len(c.running) - len(c.waiting); room > 0 && !c.tuner.Status().Waiting {
			c.send(t, tuner.Ask{N: room})
		}
		for len(c.running) < slots && len(c.waiting) > 0 {
			c.running, c.waiting = append(c.running, c.waiting[0]), c.waiting[1:]
		}
		for _, trial := range slices.Clone(c.running) {
			if slices.Contains(c.running, trial) {
				c.train(t, trial)
			}
		}
		c.byTicks = append(c.byTicks, c.best)
	}
}

func (c *contest) train(t testing.TB, trial tuner.Trial) {
	t.Helper()
	c.step[trial]++
	at := c.step[trial]
	value, fresh := c.task.Curves[c.which[trial]][at-1], c.task.Fresh[c.which[trial]][at-1]
	if v := cost(c.task, value); v < c.best {
		c.best = v
	}
	c.bySteps = append(c.bySteps, c.best)
	metrics := map[string]float64{"accuracy": value}
	if c.until[trial] == 0 && at == c.task.Steps() { // the training code ends by itself
		c.send(t, tuner.Reported{Trial: trial, Step: int64(at), Metric: value, Metrics: metrics})
		if i := slices.Index(c.running, trial); i >= 0 {
			c.running = slices.Delete(c.running, i, i+1)
			c.send(t, tuner.Exited{Trial: trial, Step: int64(at), Metric: value, Metrics: metrics})
		}
	} else if at == c.until[trial] {
		c.running = slices.DeleteFunc(c.running, func(o tuner.Trial) bool { return o == trial })
		c.send(t, tuner.Reached{Trial: trial, Step: int64(at), Metric: value})
	} else if fresh {
		c.send(t, tuner.Reported{Trial: trial, Step: int64(at), Metric: value, Metrics: metrics})
	}
}

func (c *contest) send(t testing.TB, e tuner.Event) {
	t.Helper()
	actions, err := c.tuner.Handle(e)
	if err != nil {
		t.Fatal(err)
	}
	reached, at := e.(tuner.Reached)
	if _, asked := e.(tuner.Ask); at || asked {
		c.decisions++
	}
	if at {
		c.check(reached, actions)
	}
	for _, a := range actions {
		switch a := a.(type) {
		case tuner.Create:
			c.waiting = append(c.waiting, tuner.Trial(len(c.which)))
			c.keep(tuner.Trial(len(c.which)), a.Reason)
			c.which = append(c.which, c.pick(a.Config))
			c.step, c.until = append(c.step, 0), append(c.until, int(a.UntilStep))
		case tuner.Train:
			c.until[a.Trial] = int(a.UntilStep)
			c.keep(a.Trial, a.Reason)
			if at && reached.Trial == a.Trial {
				c.running = append(c.running, a.Trial)
			} else {
				c.waiting = append(c.waiting, a.Trial)
			}
		case tuner.Pause:
			c.pauses++
		case tuner.End:
			gone := func(o tuner.Trial) bool { return o == a.Trial }
			c.running, c.waiting = slices.DeleteFunc(c.running, gone), slices.DeleteFunc(c.waiting, gone)
			if c.forecast != nil && !a.Completed {
				c.forecast(contestEnd{a.Trial, a.Reason, c.best, c.step[a.Trial]})
			}
		}
	}
}

// keep records a trial that is kept regardless of its forecast.
func (c *contest) keep(t tuner.Trial, reason string) {
	if !strings.Contains(reason, ": kept, ") {
		return
	}
	if c.kept == nil {
		c.kept = map[tuner.Trial]bool{}
	}
	c.kept[t] = true
	if c.keeping != nil {
		c.keeping(reason)
	}
}

var chanceOf = regexp.MustCompile(`a chance of ([-+.0-9e]+) to beat`)

// check records the chance that a tuner gave a trial, and whether the trial would have beaten the best value of that
// time.
func (c *contest) check(e tuner.Reached, actions []tuner.Action) {
	for _, a := range actions {
		reason, ends := "", false
		switch a := a.(type) {
		case tuner.Train:
			if a.Trial == e.Trial {
				reason = a.Reason
			}
		case tuner.Pause:
			reason = a.Reason
		case tuner.End:
			if a.Trial == e.Trial {
				reason, ends = a.Reason, true
			}
		}
		found := chanceOf.FindStringSubmatch(reason)
		if found == nil {
			continue
		}
		p, err := strconv.ParseFloat(found[1], 64)
		if err != nil {
			continue
		}
		won := 0.0
		for _, v := range c.task.Curves[c.which[e.Trial]][e.Step:] {
			if cost(c.task, v) < c.best {
				won = 1
			}
		}
		c.said = append(c.said, [3]float64{p, won, map[bool]float64{true: 1}[ends]})
	}
}

// devTask reports whether the tuner was developed on a task: those that the prior of package curve was fitted on,
// LCBench's tables with odd numbers, and since the tenth comparison all of AlgoPerf's and the first tasks of
// trained.py. All others are held out, including those of trained_large_tasks.py.
func devTask(task *curvetest.Task) bool {
	if strings.HasPrefix(task.Name, "row-") {
		return strings.ContainsAny(task.Name[len(task.Name)-1:], "13579")
	}
	return slices.ContainsFunc(strings.Fields(`
		patch128_LSTM128_bs64 patch32_IRNN64 patch32_GRU128
		criteo1tb imagenet_resnet librispeech_conformer ogbg fastmri imagenet_vit librispeech_deepspeech wmt
		digits-constant cancer-constant names-constant photographs-constant sources-constant documentation-cosine
		digits-linear digits-wrong-labels names-restarts photographs-steps diabetes-boosting`),
		func(family string) bool { return strings.HasPrefix(task.Name, family) })
}

var (
	contestOut   = flag.String("contest-out", "", "file that results of contests are added to, a JSON object a line; no contest if empty")
	contestHeld  = flag.Bool("contest-held-out", false, "on the tasks that are held out, and not on those of development")
	contestSeed  = flag.Uint64("contest-seed", 1, "first seed")
	contestSeeds = flag.Int("contest-seeds", 3, "seeds of each contest")
	contestSlots = flag.String("contest-slots", "4", "slots, by commas")
	contestOnly  = flag.String("contest-tuners", "random,asha,hyperband,freeze_thaw", "tuners, by commas")
	contestSets  = flag.String("contest-sets", "TaskSet,AlgoPerf,LCBench,Trained", "sets of tasks, by commas")
	contestMode  = flag.String("contest-spaces", "blind,table", "what spaces say of configurations, by commas")
	contestRows  = flag.String("contest-tables", "", "numbers of LCBench's tables, by commas; all if empty")
	contestDraw  = flag.String("contest-sampler", "", "sampler of freeze_thaw")
	contestLong  = flag.Int("contest-trainings", 16, "trainings that a contest goes on for, at least 16")
	contestDump  = flag.String("contest-dump", "", "file that the tasks are written to instead, for rivals.py")
	contestMost  = flag.Int("contest-tasks", 100, "tasks of each set, at the most")
)

// contestBudgets returns budgets in trainings of max_steps.
func contestBudgets() []int {
	budgets := []int{2, 4, 8, 16}
	for _, b := range []int{60, 200, 1000} {
		if b <= *contestLong {
			budgets = append(budgets, b)
		}
	}
	return budgets
}

// A contestResult is a line of the results: the best costs at the budgets, by steps of all trials and by ticks.
type contestResult struct {
	Set, Task, Space, Tuner string
	Slots                   int
	Seed                    uint64
	// Share is the percentage of the task's curves that ever get better than the best seen. Regret is the best value's
	// distance from the best of the task, relative to the distance of the median of the curves' best values.
	ShareBySteps, ShareByTicks, RegretBySteps, RegretByTicks []float64
	// RegretMean is the mean over all ticks after 8 trainings. At exactly 16, all trainings of random search end at
	// once on 4 slots.
	RegretMean     float64
	Trials, Pauses int
	Said           [][3]float64
}

// A contestScale rates the costs of a task.
type contestScale struct{ rising []float64 }

func newContestScale(task *curvetest.Task) contestScale {
	var s contestScale
	for _, c := range task.Curves {
		best := math.Inf(1)
		for _, v := range c {
			best = min(best, cost(task, v))
		}
		s.rising = append(s.rising, best)
	}
	slices.Sort(s.rising)
	return s
}

func (s contestScale) share(best float64) float64 {
	better, _ := slices.BinarySearch(s.rising, best)
	return 100 * float64(better) / float64(len(s.rising))
}

func (s contestScale) regret(best float64) float64 {
	least, median := s.rising[0], s.rising[len(s.rising)/2]
	return min(1, (best-least)/(median-least))
}

func contestant(name string, steps int64) *outbidv1.Tuner {
	switch name {
	case "random":
		return &outbidv1.Tuner{Kind: &outbidv1.Tuner_Random{Random: &outbidv1.RandomSearch{MaxSteps: steps}}}
	case "bayes":
		return &outbidv1.Tuner{Kind: &outbidv1.Tuner_Bayes{Bayes: &outbidv1.BayesianSearch{}}}
	case "auto":
		return &outbidv1.Tuner{Kind: &outbidv1.Tuner_Auto{Auto: &outbidv1.Auto{}}}
	case "bayes_asha":
		return asha(&outbidv1.Asha{MaxSteps: steps, MinSteps: max(1, steps/27), Sampler: "bayes"})
	case "median":
		return median(&outbidv1.MedianStopping{MaxSteps: steps, GraceSteps: max(1, steps/10)})
	case "asha":
		return asha(&outbidv1.Asha{MaxSteps: steps, MinSteps: max(1, steps/27)})
	case "hyperband":
		return hyperband(&outbidv1.Hyperband{MaxSteps: steps, MinSteps: max(1, steps/27), Iterations: 100})
	case "performance_curve":
		return performance(&outbidv1.PerformanceCurve{MaxSteps: steps})
	case "tpe_asha":
		return asha(&outbidv1.Asha{MaxSteps: steps, MinSteps: max(1, steps/27), Sampler: "tpe"})
	default:
		return freeze(&outbidv1.FreezeThaw{MaxSteps: steps, Sampler: *contestDraw})
	}
}

// contestTables returns the tasks of the tables in the file that an environment variable names, or nil if it is not
// set.
func contestTables(t *testing.T, variable string) []curvetest.Task {
	t.Helper()
	name := os.Getenv(variable)
	if name == "" {
		return nil
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	tasks, err := curvetest.Tables(bufio.NewReader(f))
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return tasks
}

// contestTasks returns the tasks of the shared curves, those of LCBench if OUTBID_LCBENCH names their tables, and those
// of trained.py if OUTBID_TRAINED names theirs.
func contestTasks(t *testing.T) []curvetest.Task {
	t.Helper()
	tasks := realTasks(t)
	self, err := curvetest.SelfTuned(os.DirFS("../../../../shared/data/curves"))
	if err != nil {
		t.Fatal(err)
	}
	tasks = append(tasks, self...)
	tasks = append(tasks, contestTables(t, "OUTBID_LCBENCH")...)
	tasks = append(tasks, crossedTasks(tasks)...)
	tasks = append(tasks, contestTables(t, "OUTBID_TRAINED")...)
	for _, row := range strings.Split(*contestRows, ",") {
		if row != "" && !slices.ContainsFunc(tasks, func(task curvetest.Task) bool { return task.Name == "row-"+row }) {
			t.Fatalf("-contest-tables: LCBench has no table %q; they are called 01 to 34", row)
		}
	}
	count := map[string]int{}
	return slices.DeleteFunc(tasks, func(task curvetest.Task) bool {
		if devTask(&task) == *contestHeld || !slices.Contains(strings.Split(*contestSets, ","), task.Set) {
			return true
		}
		if rows := *contestRows; strings.HasPrefix(task.Name, "row-") && rows != "" && !slices.Contains(strings.Split(rows, ","), strings.TrimPrefix(task.Name, "row-")) {
			return true
		}
		count[task.Set]++
		return count[task.Set] > *contestMost
	})
}

func contestOn(t *testing.T, task *curvetest.Task, name, mode string, slots int, seed uint64) *contestResult {
	t.Helper()
	steps := task.Steps()
	params, pick := tableSpace(task, mode == "blind", seed)
	s := tunertest.Spec(contestant(name, int64(steps)), func(s *outbidv1.SweepSpec) {
		s.Tuner.Seed = new(seed)
		if !task.Maximise {
			s.Mode = "min"
		}
		s.Space = params
	})
	made, end := contestTuner(t, s, name)
	defer end()
	c := &contest{task: task, tuner: made, pick: pick}
	budgets := contestBudgets()
	most := max(budgets[len(budgets)-1], *contestLong) * steps
	c.hold(t, slots, (most+slots-1)/slots)
	r := &contestResult{
		Set: task.Set, Task: task.Name, Space: mode, Tuner: name, Slots: slots, Seed: seed, Trials: len(c.which), Pauses: c.pauses, Said: c.said,
	}
	scale := newContestScale(task)
	for _, b := range budgets {
		bySteps, byTicks := c.bySteps[min(len(c.bySteps), b*steps)-1], c.byTicks[(b*steps+slots-1)/slots-1]
		r.ShareBySteps, r.ShareByTicks = append(r.ShareBySteps, scale.share(bySteps)), append(r.ShareByTicks, scale.share(byTicks))
		r.RegretBySteps, r.RegretByTicks = append(r.RegretBySteps, scale.regret(bySteps)), append(r.RegretByTicks, scale.regret(byTicks))
	}
	late := c.byTicks[(8*steps+slots-1)/slots:]
	for _, best := range late {
		r.RegretMean += scale.regret(best) / float64(len(late))
	}
	return r
}

// dumpTasks writes tasks for rivals.py, a JSON object a line. A value that is not finite is null.
func dumpTasks(t *testing.T, tasks []curvetest.Task) {
	t.Helper()
	f, err := os.Create(*contestDump)
	if err != nil {
		t.Fatal(err)
	}
	z := gzip.NewWriter(f)
	write := json.NewEncoder(z)
	for _, task := range tasks {
		curves := make([][]*float64, len(task.Curves))
		for i, c := range task.Curves {
			for _, v := range c {
				if math.IsNaN(v) || math.IsInf(v, 0) {
					curves[i] = append(curves[i], nil)
				} else {
					curves[i] = append(curves[i], &v)
				}
			}
		}
		if err := write.Encode(map[string]any{
			"Set": task.Set, "Name": task.Name, "Maximise": task.Maximise, "Curves": curves, "Fresh": task.Fresh,
			"Parameters": task.Parameters, "Rows": task.Rows, "Kinds": task.Kinds,
		}); err != nil {
			t.Fatal(err)
		}
	}
	if err := cmp.Or(z.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

// contestTuner returns a tuner and a function that stops it. ASHA with Optuna's TPE is a Python program and needs the
// SDK on PYTHONPATH.
func contestTuner(t *testing.T, s tuner.Settings, name string) (tuner.Tuner, func()) {
	t.Helper()
	tuner.Outside(s.Spec.GetTuner())
	made, end, err := plugin.Open(t.Context(), s, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return made, end
}

// TestContest compares tuners on real curves and appends the results to a file.
func TestContest(t *testing.T) {
	if *contestOut == "" {
		t.Skip("a study: give -args -contest-out FILE")
	}
	out, err := os.OpenFile(*contestOut, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = out.Close() }()
	write := json.NewEncoder(out)
	tasks := contestTasks(t)
	if *contestDump != "" {
		dumpTasks(t, tasks)
		return
	}
	for i := range *contestSeeds {
		for _, slots := range strings.Split(*contestSlots, ",") {
			n, err := strconv.Atoi(slots)
			if err != nil {
				t.Fatal(err)
			}
			for _, task := range tasks {
				for _, mode := range strings.Split(*contestMode, ",") {
					for _, name := range strings.Split(*contestOnly, ",") {
						if err := write.Encode(contestOn(t, &task, name, mode, n, *contestSeed+uint64(i))); err != nil {
							t.Fatal(err)
						}
					}
				}
			}
		}
	}
}
