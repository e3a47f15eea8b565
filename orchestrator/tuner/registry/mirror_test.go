package registry_test

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/registry"
	"github.com/outbid-dev/outbid/orchestrator/tuner/tunertest"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// mirrored returns a sweep with the opposite mode and the negated target.
func mirrored(s tuner.Settings) tuner.Settings {
	c := proto.CloneOf(s.Spec)
	if c.Mode = "max"; s.Spec.GetMode() == "max" {
		c.Mode = "min"
	}
	if c.GetLimits().GetTarget() != 0 {
		c.Limits.Target = new(-c.GetLimits().GetTarget())
	}
	return tuner.Settings{Spec: c}
}

// learning is a curve that rises towards the trial's final value, with a little noise.
func learning(t tuner.Trial, _ tuner.Config, step int64) float64 {
	part := func(n float64) float64 { _, f := math.Modf(math.Abs(math.Sin(n)) * 1e4); return f }
	own := part(float64(t) + 1)
	return own - own/math.Pow(float64(step)+1, .6) + .002*part(float64(t)*1000+float64(step))
}

func negative(t tuner.Trial, c tuner.Config, step int64) float64 { return -learning(t, c, step) }

// Maximising a metric equals minimising its negative: the same trials are created, continue and end.
func TestTheMostIsTheLeastOfTheNegative(t *testing.T) {
	t.Parallel()
	run := func(t *testing.T, s, longer tuner.Settings, metric func(tuner.Trial, tuner.Config, int64) float64) []string {
		t.Helper()
		made, err := registry.New(s)
		if err != nil {
			t.Fatal(err)
		}
		var done []string
		_, err = tunertest.Drive(made, tunertest.Options{
			Metric: metric, ReportEvery: 2, Fail: .01, Extend: []tuner.Settings{longer}, MaxTrials: 100,
			Observe: func(s tunertest.Step) error {
				for _, a := range s.Actions {
					switch a := a.(type) {
					case tuner.Create:
						done = append(done, fmt.Sprint("create in ", a.Bracket, " until ", a.UntilStep, a.Config))
					case tuner.Train:
						done = append(done, fmt.Sprint("train ", a.Trial, " until ", a.UntilStep))
					case tuner.Pause:
						done = append(done, fmt.Sprint("pause ", a.Trial))
					case tuner.Clone:
						done = append(done, fmt.Sprint("clone ", a.Source, " into ", a.Trial, " until ", a.UntilStep, a.Config))
					case tuner.End:
						done = append(done, fmt.Sprint("end ", a.Trial, a.Completed))
					}
				}
				return nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		return done
	}
	for name, settings := range sweeps() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := settings()
			more := grown(s, longer(2))
			if name == "random code" || strings.HasPrefix(name, "performance") { // one of these has no steps, and the others take long
				more = s
			}
			was := run(t, s, more, learning)
			if diff := cmp.Diff(was, run(t, mirrored(s), mirrored(more), negative)); diff != "" {
				t.Errorf("of %d actions others are done on the negative (-most +least):\n%s", len(was), diff)
			}
		})
	}
}

// Reasons use ordinals: 1st, 2nd, 3rd, 11th, 21st.
func TestPlacesAreSaidAsPeopleSayThem(t *testing.T) {
	t.Parallel()
	made, err := registry.New(tunertest.Spec(halving(&outbidv1.SuccessiveHalving{MaxSteps: 27, Eta: 2, Trials: 256})))
	if err != nil {
		t.Fatal(err)
	}
	places := regexp.MustCompile(`(\d+)(st|nd|rd|th)\b`)
	seen := map[int]bool{}
	_, err = tunertest.Drive(made, tunertest.Options{Observe: func(s tunertest.Step) error {
		for _, a := range s.Actions {
			train, ok := a.(tuner.Train)
			if !ok {
				continue
			}
			for _, m := range places.FindAllStringSubmatch(train.Reason, -1) {
				n, _ := strconv.Atoi(m[1])
				want := map[int]string{1: "st", 2: "nd", 3: "rd"}[n%10]
				if want == "" || n%100/10 == 1 {
					want = "th"
				}
				if seen[n] = true; m[2] != want {
					return fmt.Errorf("%s, want %d%s", m[0], n, want)
				}
			}
		}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{1, 2, 3, 4, 11, 12, 13, 21, 22, 23, 101, 111, 112} {
		if !seen[n] {
			t.Errorf("no reason says who was number %d", n)
		}
	}
}

// A trial has to beat the target if the user set one, and otherwise the value that other trials are sure to reach.
func TestWhatATrialHasToBeat(t *testing.T) {
	t.Parallel()
	plain := sweeps()["performance"]()
	target := grown(plain, func(s *outbidv1.SweepSpec) { s.Limits.Target = new(.9) })
	for name, settings := range map[string]tuner.Settings{"without": plain, "a target": mirrored(target)} {
		wanted := strings.Contains(name, "a target")
		made, err := registry.New(settings)
		if err != nil {
			t.Fatal(err)
		}
		metric := learning
		if settings.Spec.GetMode() == "min" {
			metric = negative
		}
		of := map[bool]int{}
		_, err = tunertest.Drive(made, tunertest.Options{Metric: metric, ReportEvery: 4, Observe: func(s tunertest.Step) error {
			for _, a := range s.Actions {
				switch a := a.(type) {
				case tuner.Train:
					of[strings.Contains(a.Reason, "(the target)")] += strings.Count(a.Reason, " to beat ")
				case tuner.End:
					of[strings.Contains(a.Reason, "(the target)")] += strings.Count(a.Reason, " to beat ")
				}
			}
			return nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		if of[wanted] == 0 || of[!wanted] > 0 {
			t.Errorf("%s: %d trials had to beat the target, %d another", name, of[true], of[false])
		}
	}
}
