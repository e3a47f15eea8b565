package auto_test

import (
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/registry"
	"github.com/outbid-dev/outbid/orchestrator/tuner/tunertest"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// A sweep trains trials one after another until their code ends or they are stopped.
type sweep struct {
	t       *testing.T
	tuner   tuner.Tuner
	configs []tuner.Config
	reasons map[int]string // of trials that were stopped
	steps   []int
}

func newSweep(t *testing.T, made *outbidv1.Tuner, trials int32) *sweep {
	t.Helper()
	made.Seed = new(uint64(5))
	s, err := registry.New(tunertest.Spec(made, tunertest.Trials(trials), tunertest.Minimise))
	if err != nil {
		t.Fatal(err)
	}
	return &sweep{t: t, tuner: s, reasons: map[int]string{}}
}

func (s *sweep) handle(e tuner.Event) []tuner.Action {
	s.t.Helper()
	actions, err := s.tuner.Handle(e)
	if err != nil {
		s.t.Fatal(err)
	}
	return actions
}

// run trains the next trial, which reports the losses at steps 1, 2 and so on and then ends.
func (s *sweep) run(losses func(tuner.Config) []float64) {
	s.t.Helper()
	created, ok := s.handle(tuner.Ask{N: 1})[0].(tuner.Create)
	if !ok || created.UntilStep != 0 {
		s.t.Fatalf("want a trial that trains until its code ends, got %v", created)
	}
	n := len(s.configs)
	s.configs, s.steps = append(s.configs, created.Config), append(s.steps, 0)
	var last float64
	for i, loss := range losses(created.Config) {
		s.steps[n], last = i+1, loss
		reported := tuner.Reported{Trial: tuner.Trial(n), Step: int64(i + 1), Metric: loss, Metrics: map[string]float64{"accuracy": loss}}
		for _, a := range s.handle(reported) {
			end, ok := a.(tuner.End)
			if !ok || end.Completed || int(end.Trial) != n {
				s.t.Fatalf("got %v, want that trial %d is stopped", a, n)
			}
			s.reasons[n] = end.Reason
			return
		}
	}
	s.handle(tuner.Exited{Trial: tuner.Trial(n), Step: int64(s.steps[n]), Metric: last, Metrics: map[string]float64{"accuracy": last}})
}

func auto(sampler string) *outbidv1.Tuner {
	return &outbidv1.Tuner{Kind: &outbidv1.Tuner_Auto{Auto: &outbidv1.Auto{Sampler: sampler}}}
}

func bayes() *outbidv1.Tuner {
	return &outbidv1.Tuner{Kind: &outbidv1.Tuner_Bayes{Bayes: &outbidv1.BayesianSearch{}}}
}

// falling returns losses that fall from 1 above an end to it.
func falling(end float64, steps int) []float64 {
	losses := make([]float64, steps)
	for i := range losses {
		losses[i] = end + 1/float64(i+1) - 1/float64(steps)
	}
	return losses
}

// Trials that report once, at whatever step, are never stopped and get the configurations of bayes.
func TestTrialsThatReportOnceAreThoseOfBayes(t *testing.T) {
	t.Parallel()
	for _, at := range []int{1, 100} {
		var got [2]*sweep
		for i, made := range []*outbidv1.Tuner{auto("bayes"), bayes()} {
			got[i] = newSweep(t, made, 16)
			for n := range 16 {
				c := got[i].handle(tuner.Ask{N: 1})[0].(tuner.Create)
				loss, step := c.Config["lr"].(float64), int64(at)
				if at > 1 {
					step = int64(n*37%at + 1) // such as the number of trees
				}
				metrics := map[string]float64{"accuracy": loss}
				if ends := got[i].handle(tuner.Reported{Trial: tuner.Trial(n), Step: step, Metric: loss, Metrics: metrics}); len(ends) > 0 {
					t.Fatalf("a trial that reported once was stopped: %v", ends)
				}
				got[i].handle(tuner.Exited{Trial: tuner.Trial(n), Step: step, Metric: loss, Metrics: metrics})
				got[i].configs = append(got[i].configs, c.Config)
			}
		}
		if !reflect.DeepEqual(got[0].configs, got[1].configs) {
			t.Error("auto and bayes chose different configurations")
		}
	}
}

// Where early ranks hold, trials far behind are stopped once three have ended, and the best one is not.
func TestTrialsFarBehindAreStopped(t *testing.T) {
	t.Parallel()
	s := newSweep(t, auto("bayes"), 0)
	ends := []float64{5, 1, 3, 4, 2, 6, 7, 2.5, 3.5, 4.5, 8, 0.5, 9, 10, 5.5}
	for _, end := range ends {
		s.run(func(tuner.Config) []float64 { return falling(end, 40) })
	}
	if len(s.reasons) < 4 {
		t.Errorf("only %d of %d trials were stopped", len(s.reasons), len(ends))
	}
	for n, reason := range s.reasons {
		if n < 3 || ends[n] < 2 {
			t.Errorf("trial %d, which would have ended at %v, was stopped: %s", n, ends[n], reason)
		}
		if !strings.Contains(reason, "of about") || !strings.Contains(reason, "by accuracy") {
			t.Errorf("the reason is %q", reason)
		}
	}
}

// Where ends have nothing to do with early ranks, most trials train to the end.
func TestFewTrialsAreStoppedWhereRanksMislead(t *testing.T) {
	t.Parallel()
	s := newSweep(t, auto("random"), 0)
	rng := rand.New(rand.NewPCG(1, 2))
	steps := 0
	for range 40 {
		s.run(func(tuner.Config) []float64 {
			losses := make([]float64, 40)
			level := 5 + rng.Float64()
			for i := range losses {
				if i == 34 {
					level = rng.Float64()
				}
				losses[i] = level
			}
			return losses
		})
	}
	for _, n := range s.steps {
		steps += n
	}
	if steps < 40*40*6/10 {
		t.Errorf("trials trained for %d of %d steps; %d were stopped", steps, 40*40, len(s.reasons))
	}
}

// A trial that is longer than usual is not stopped beyond the usual length, and a shorter one that is good is kept.
func TestUnusualLengths(t *testing.T) {
	t.Parallel()
	s := newSweep(t, auto("random"), 0)
	for _, end := range []float64{5, 1, 3, 4, 2} {
		s.run(func(tuner.Config) []float64 { return falling(end, 40) })
	}
	before := len(s.reasons)
	s.run(func(tuner.Config) []float64 { return falling(0.1, 5) }) // its loss at step 5 is that of others at step 40
	s.run(func(tuner.Config) []float64 {
		return append(falling(0.05, 40), 50, 50, 50, 50, 50, 50, 50, 50, 50, 50, 50, 50, 50, 50, 50, 50, 50, 50, 50, 50, 50, 50, 50, 50, 50)
	})
	if len(s.reasons) != before {
		t.Errorf("got %v", s.reasons)
	}
}

// With the sampler random, configurations do not depend on results.
func TestTheSamplerMayIgnoreResults(t *testing.T) {
	t.Parallel()
	var got [2]*sweep
	for i, factor := range []float64{1, -1} {
		got[i] = newSweep(t, auto("random"), 0)
		for range 20 {
			got[i].run(func(c tuner.Config) []float64 { return falling(factor*c["lr"].(float64), 3) })
		}
	}
	if !reflect.DeepEqual(got[0].configs, got[1].configs) {
		t.Error("results changed random configurations")
	}
}
