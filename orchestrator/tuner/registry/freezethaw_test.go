package registry_test

import (
	"math"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/outbid-dev/outbid/orchestrator/lab/curvetest"
	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/registry"
	"github.com/outbid-dev/outbid/orchestrator/tuner/tunertest"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// crossed returns synthetic curves whose last tenth is that of another curve, so that earlier ranks say nothing about
// the end.
func crossed(curves, steps int, seed uint64) curvetest.Task {
	task := curvetest.Made("power law", curves, steps, seed)
	whose := rand.New(rand.NewPCG(seed, 1)).Perm(curves)
	ends := make([][]float64, curves)
	for i, w := range whose {
		ends[i] = append(ends[i], task.Curves[w][steps*9/10:]...)
	}
	for i := range task.Curves {
		// All curves fall at the end, as under a decaying learning rate.
		for s, v := range ends[i] {
			task.Curves[i][steps*9/10+s] = v - 1
		}
	}
	return task
}

var keptAt = regexp.MustCompile(`step (\d+): kept, one of .* number (\d+) of (\d+) by`)

// ended returns the number of trials that freeze_thaw trained to the end with a budget of 24 trainings, and how many of
// those it kept. It checks that, except for the first trial, no kept trial was young or among the worst third.
func ended(t *testing.T, task curvetest.Task, seed uint64) (all, kept int) {
	t.Helper()
	steps := int64(task.Steps())
	params, pick := tableSpace(&task, true, seed)
	made, err := registry.New(tunertest.Spec(freeze(&outbidv1.FreezeThaw{MaxSteps: steps, Sampler: "random"}), func(s *outbidv1.SweepSpec) {
		s.Mode, s.Space, s.Tuner.Seed = "min", params, new(seed)
	}))
	if err != nil {
		t.Fatal(err)
	}
	c := &contest{task: &task, tuner: made, pick: pick, keeping: func(reason string) {
		if !strings.Contains(reason, "kept, one of") || strings.HasPrefix(reason, "random draw 1:") {
			return
		}
		m := keptAt.FindStringSubmatch(reason)
		if m == nil {
			t.Fatalf("a trial is kept with no step and no standing: %s", reason)
		}
		step, _ := strconv.ParseFloat(m[1], 64)
		place, _ := strconv.ParseFloat(m[2], 64)
		if of, _ := strconv.ParseFloat(m[3], 64); step < 0.06*float64(steps) || place > of*2/3+0.5 {
			t.Errorf("one that is young or one of the worst is kept: %s", reason)
		}
	}}
	c.hold(t, 4, 24*int(steps)/4)
	for trial, step := range c.step {
		if step == int(steps) {
			all++
			if c.kept[tuner.Trial(trial)] {
				kept++
			}
		}
	}
	return all, kept
}

// If completed trials prove that ranks predict nothing, freeze_thaw approaches random search: it completes most of the
// trials that the budget allows, most of them as kept trials. If ranks predict well, it completes less than half.
func TestFreezeThawDoubtsForecastsThatProveWrong(t *testing.T) {
	t.Parallel()
	var all, kept [2]int
	for seed := range uint64(2) {
		for i, task := range []curvetest.Task{curvetest.Made("power law", 200, 20, seed), crossed(200, 20, seed)} {
			a, k := ended(t, task, seed)
			all[i], kept[i] = all[i]+a, kept[i]+k
		}
	}
	if all[0] > 24 || all[1] < 40 {
		t.Errorf("of 48 trials that the budget has room for %d and %d were trained to the end, %d and %d of them kept; want at most 24 "+
			"where forecasts are right, and at least 40 where they are not", all[0], all[1], kept[0], kept[1])
	}
	if kept[0] > 6 || kept[1] < 34 {
		t.Errorf("of those trained to the end %d and %d were kept; want at most 6 where forecasts are right, and at least 34 where they are not", kept[0], kept[1])
	}
}

// The reason of a kept trial states the share of steps that kept trials get.
func TestFreezeThawSaysWhatItKeeps(t *testing.T) {
	t.Parallel()
	made, err := registry.New(tunertest.Spec(freeze(&outbidv1.FreezeThaw{MaxSteps: 4})))
	if err != nil {
		t.Fatal(err)
	}
	actions, err := made.Handle(tuner.Ask{N: 1})
	if err != nil {
		t.Fatal(err)
	}
	want := "random draw 1: kept, one of the 90 % of steps"
	if got := actions[0].(tuner.Create).Reason; !strings.HasPrefix(got, want) {
		t.Errorf("the first trial is created with %q, want %q", got, want)
	}
}

// Eight trials are begun before any trial that is not kept is trained beyond its second look. A sweep of fewer trials
// does not wait for eight.
func TestFreezeThawBeginsTrialsAbreast(t *testing.T) {
	t.Parallel()
	const steps, second = 40, 2 // looks are at 1, 2, 3, 4, 6 steps and so on
	for limit, begun := range map[int32]int{0: 8, 3: 3} {
		task := curvetest.Made("power law", 200, steps, 7)
		params, pick := tableSpace(&task, true, 7)
		made, err := registry.New(tunertest.Spec(freeze(&outbidv1.FreezeThaw{MaxSteps: steps}), tunertest.Trials(limit), func(s *outbidv1.SweepSpec) {
			s.Mode, s.Space, s.Tuner.Seed = "min", params, new(uint64(7))
		}))
		if err != nil {
			t.Fatal(err)
		}
		c := &contest{task: &task, tuner: made, pick: pick}
		beyond := 0 // the number of trials begun when a trial that is not kept was first trained beyond its second look
		for range 10 * steps {
			if c.hold(t, 1, 1); beyond > 0 {
				break
			}
			for trial, step := range c.step {
				if step > second && !c.kept[tuner.Trial(trial)] {
					beyond = len(c.step)
				}
			}
		}
		if beyond < begun {
			t.Errorf("with a limit of %d, %d trials were begun when one was trained beyond its second look; want %d", limit, beyond, begun)
		}
	}
}

// BenchmarkFreezeThaw measures the cost of a decision in a sweep of 24 trainings of 50 steps, four at a time, whose
// configurations are modelled.
func BenchmarkFreezeThaw(b *testing.B) {
	task := curvetest.Made("power law", 400, 50, 1)
	params, pick := tableSpace(&task, true, 1)
	decisions, trials := 0, 0
	for b.Loop() {
		made, err := registry.New(tunertest.Spec(freeze(&outbidv1.FreezeThaw{MaxSteps: 50}), func(s *outbidv1.SweepSpec) {
			s.Mode, s.Space, s.Tuner.Seed = "min", params, new(uint64(1))
		}))
		if err != nil {
			b.Fatal(err)
		}
		c := &contest{task: &task, tuner: made, pick: pick}
		c.hold(b, 4, 24*50/4)
		decisions += c.decisions
		trials += len(c.which)
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(decisions), "us/decision")
	b.ReportMetric(float64(trials)/float64(b.N), "trials")
}

// No configuration is chosen twice, because the second training would teach the model nothing.
func TestFreezeThawTriesNothingTwice(t *testing.T) {
	t.Parallel()
	task := curvetest.Made("power law", 400, 20, 5)
	seen := map[float64]bool{}
	made, err := registry.New(tunertest.Spec(freeze(&outbidv1.FreezeThaw{MaxSteps: 20}), func(s *outbidv1.SweepSpec) {
		s.Mode, s.Tuner.Seed = "min", new(uint64(5))
	}))
	if err != nil {
		t.Fatal(err)
	}
	c := &contest{task: &task, tuner: made, pick: func(config tuner.Config) int {
		lr := config["lr"].(float64)
		rounded := math.Round(math.Log10(lr)*1e5) / 1e5
		if seen[rounded] {
			t.Errorf("lr %v is tried again", lr)
		}
		seen[rounded] = true
		return len(seen) % len(task.Curves)
	}}
	c.hold(t, 4, 24*20/4)
	if len(seen) < 20 {
		t.Errorf("%d configurations were tried", len(seen))
	}
}
