package state_test

import (
	"math"
	"slices"
	"testing"

	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// running returns a state whose trials each hold a lease: trial n holds lease n+1 on device n.
func running(t *testing.T, sp *outbidv1.SweepSpec, trials int32) (*state.State, *state.Sweep) {
	t.Helper()
	st := state.New()
	apply(t, st, submitted(sp), joined(int(trials)))
	for n := range trials {
		apply(t, st, created(n), granted(n, uint64(n+1), n))
	}
	return st, st.Sweeps["s-1"]
}

// says is a report of a trial's step; NaN means a report that lacks the metric.
func says(n int32, step int64, loss float64) *outbidv1.Event {
	e := reported(n, uint64(n+1), loss)
	e.GetTrialReported().Report.Step = step
	return e
}

func mute(n int32, step int64) *outbidv1.Event {
	e := says(n, step, 0)
	e.GetTrialReported().Report.Metrics = map[string]float64{"accuracy": 1}
	return e
}

func reached(n int32, step int64) *outbidv1.Event {
	return &outbidv1.Event{Kind: &outbidv1.Event_TrialReached{TrialReached: &outbidv1.TrialReached{
		Sweep: "s-1", Trial: n, LeaseId: uint64(n + 1), Step: step,
	}}}
}

func begins(n int32, step int64) *outbidv1.Event {
	e := began(uint64(n+1), step)
	e.GetForkStarted().Trial = n
	return e
}

// The best trial has the best finite value. Of equals it is the first by number, whichever reported first.
func TestTheBestTrial(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		mode   string
		events []*outbidv1.Event
		best   int32
		value  float64
	}{
		"none said anything":         {"min", nil, -1, math.NaN()},
		"the only one":               {"min", []*outbidv1.Event{says(1, 1, .5)}, 1, .5},
		"the least":                  {"min", []*outbidv1.Event{says(0, 1, .5), says(1, 1, .3), says(2, 1, .4)}, 1, .3},
		"the most":                   {"max", []*outbidv1.Event{says(0, 1, .5), says(1, 1, .6), says(2, 1, .4)}, 1, .6},
		"its best, not its newest":   {"min", []*outbidv1.Event{says(0, 1, .3), says(0, 2, .9), says(1, 1, .4)}, 0, .3},
		"a later one as good":        {"min", []*outbidv1.Event{says(0, 1, .3), says(1, 1, .3)}, 0, .3},
		"an earlier one as good":     {"min", []*outbidv1.Event{says(1, 1, .3), says(0, 1, .3)}, 0, .3},
		"an earlier one as good max": {"max", []*outbidv1.Event{says(2, 1, .3), says(1, 1, .3)}, 1, .3},
		"an earlier one is worse":    {"min", []*outbidv1.Event{says(1, 1, .3), says(0, 1, .4)}, 1, .3},
		"an infinity is no value":    {"min", []*outbidv1.Event{says(1, 1, math.Inf(-1)), says(0, 1, .4)}, 0, .4},
		"NaN is no value":            {"max", []*outbidv1.Event{says(0, 1, .3), says(1, 1, math.NaN())}, 0, .3},
	} {
		sp := spec(1)
		sp.Mode = tc.mode
		st, s := running(t, sp, 3)
		apply(t, st, tc.events...)
		for _, s := range []*state.Sweep{s, restore(t, st).Sweeps["s-1"]} {
			if s.Best != tc.best || s.Best >= 0 && s.Trials[s.Best].Best != tc.value {
				t.Errorf("%s: trial %d is best, want %d with %g", name, s.Best, tc.best, tc.value)
			}
		}
		if v := st.View(s); (v.GetBest() != nil) != (tc.best >= 0) || v.GetBest() != nil && (v.GetBest().GetNumber() != tc.best || v.GetBest().GetBest() != tc.value) {
			t.Errorf("%s: %v is seen as the best", name, v.GetBest())
		}
	}
}

func TestTrialsByTheirMetric(t *testing.T) {
	t.Parallel()
	for mode, want := range map[string][]int32{"min": {2, 1, 3, 0, 4}, "max": {0, 1, 3, 2, 4}} {
		sp := spec(1)
		sp.Mode = mode
		st, s := running(t, sp, 5)
		apply(t, st, says(3, 1, .5), says(0, 1, .9), says(2, 1, .1), says(1, 1, .5))
		for offset := range 7 {
			for n := range 7 {
				var got []int32
				for _, tr := range s.BestTrials(n, offset) {
					got = append(got, tr.Number)
				}
				if want := want[min(offset, 5):min(offset+n, 5)]; !slices.Equal(got, want) {
					t.Fatalf("%s: %d from %d on are %v, want %v", mode, n, offset, got, want)
				}
			}
		}
	}
}

// A step counts once, however often it is trained.
func TestStepsAreCountedOnce(t *testing.T) {
	t.Parallel()
	st, s := running(t, spec(1), 2)
	for i, step := range []struct {
		event               *outbidv1.Event
		steps, at, furthest int64
	}{
		{begins(0, 0), 0, 0, 0},
		{says(0, 2, .5), 2, 2, 2},
		{begins(0, 1), 2, 1, 2}, // it goes back to a checkpoint
		{says(0, 2, .5), 2, 2, 2},
		{says(0, 5, .5), 5, 5, 5},
		{reached(0, 6), 6, 6, 6},
	} {
		apply(t, st, step.event)
		if tr := s.Trials[0]; s.Steps != step.steps || tr.Step != step.at || tr.MaxStep != step.furthest {
			t.Errorf("step %d: the sweep did %d, the trial is at %d of %d", i, s.Steps, tr.Step, tr.MaxStep)
		}
	}
	apply(t, st, says(1, 3, .5))
	if s.Steps != 9 {
		t.Errorf("two trials did %d steps, want 9", s.Steps)
	}
}

// A tuner gets only new reports: not those that a restarted fork repeats, nor the one at the target, which has its
// own event.
func TestWhichReportsTunersGet(t *testing.T) {
	t.Parallel()
	open := created(0)
	open.GetTrialCreated().UntilStep = 0
	stopped := outbidv1.TrialState_TRIAL_STATE_STOPPED
	byTuner := ended(0, stopped)
	byTuner.GetTrialEnded().ByTuner = true
	for name, tc := range map[string]struct {
		created *outbidv1.Event
		before  []*outbidv1.Event
		event   *outbidv1.Event
		news    bool
	}{
		"the first report":               {created(0), nil, says(0, 1, .5), true},
		"one without the metric":         {created(0), nil, mute(0, 1), false},
		"a step further":                 {created(0), []*outbidv1.Event{says(0, 1, .5)}, says(0, 2, .5), true},
		"the same step again":            {created(0), []*outbidv1.Event{says(0, 1, .5)}, says(0, 1, .4), false},
		"a step back":                    {created(0), []*outbidv1.Event{says(0, 2, .5), begins(0, 0)}, says(0, 1, .5), false},
		"the metric after mute steps":    {created(0), []*outbidv1.Event{mute(0, 1), begins(0, 0)}, says(0, 1, .5), true},
		"the target":                     {created(0), nil, says(0, 3, .5), false},
		"beyond the target":              {created(0), nil, says(0, 4, .5), false},
		"far, without a target":          {open, nil, says(0, 100, .5), true},
		"one of a trial that has ended":  {created(0), []*outbidv1.Event{ended(0, stopped)}, says(0, 1, .5), false},
		"that it exited":                 {created(0), nil, ended(0, stopped), true},
		"that it ended it itself":        {created(0), nil, byTuner, false},
		"that a person stopped it":       {created(0), nil, cancelled(0), false},
		"that the target is reached":     {created(0), nil, reached(0, 3), true},
		"a report that follows a report": {open, []*outbidv1.Event{says(0, 7, .5)}, says(0, 8, .5), true},
	} {
		st := state.New()
		apply(t, st, submitted(spec(1)), joined(1), tc.created, granted(0, 1, 0))
		apply(t, st, tc.before...)
		change, err := st.Fold(at(), tc.event)
		if err != nil || change.News != tc.news {
			t.Errorf("%s: news %t, %v", name, change.News, err)
		}
	}
}

func TestMissingAndNaNMetrics(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		events            []*outbidv1.Event
		nan, has, lacking bool
	}{
		"nothing said":               {nil, false, false, false},
		"a number":                   {[]*outbidv1.Event{says(0, 1, .5)}, false, true, false},
		"NaN":                        {[]*outbidv1.Event{says(0, 1, math.NaN())}, true, true, false},
		"NaN, then a number":         {[]*outbidv1.Event{says(0, 1, math.NaN()), says(0, 2, .5)}, true, true, false},
		"an infinity":                {[]*outbidv1.Event{says(0, 1, math.Inf(1))}, true, true, false},
		"it lacks":                   {[]*outbidv1.Event{mute(0, 1)}, false, false, true},
		"it lacks, after a number":   {[]*outbidv1.Event{says(0, 1, .5), mute(0, 2)}, false, true, false},
		"another trial had a number": {[]*outbidv1.Event{says(1, 1, .5), mute(0, 1)}, false, false, false},
	} {
		live, _ := running(t, spec(1), 2)
		apply(t, live, tc.events...)
		for _, st := range []*state.State{live, restore(t, live)} {
			s := st.Sweeps["s-1"]
			if tr := s.Trials[0]; tr.NaNNoted != tc.nan || tr.HasMetric() != tc.has || s.LackNoted != tc.lacking {
				t.Errorf("%s: NaN noted %t, has it %t, lack noted %t", name, tr.NaNNoted, tr.HasMetric(), s.LackNoted)
			}
		}
	}
}

// A target only moves forward. A trial that waits at its target then continues, and a completed trial is resumed.
func TestATargetMoves(t *testing.T) {
	t.Parallel()
	reopens := targeted(0, 9)
	reopens.GetTrialTargeted().Reopens = true
	completed := outbidv1.TrialState_TRIAL_STATE_COMPLETED
	for name, tc := range map[string]struct {
		events  []*outbidv1.Event
		event   *outbidv1.Event
		want    string
		resumes int32
		trains  int // seconds after the beginning since when it trains; -1 if it does not
	}{
		"while it starts":             {nil, targeted(0, 9), "running", 0, -1},
		"while it trains":             {[]*outbidv1.Event{begins(0, 0)}, targeted(0, 9), "running", 0, 0},
		"when it waits for word":      {[]*outbidv1.Event{begins(0, 0), reached(0, 3)}, targeted(0, 9), "running", 0, 60},
		"when it was paused":          {[]*outbidv1.Event{paused(0), leaseEnded(0, 1)}, targeted(0, 9), "queued", 1, -1},
		"when it was completed":       {[]*outbidv1.Event{ended(0, completed), leaseEnded(0, 1)}, targeted(0, 9), "queued", 1, -1},
		"while its process is ending": {[]*outbidv1.Event{begins(0, 0), ended(0, completed)}, reopens, "running", 1, 60},
		"when it waits for devices":   {[]*outbidv1.Event{leaseEnded(0, 1)}, targeted(0, 9), "queued", 0, -1},
		"cloned while it is paused":   {[]*outbidv1.Event{paused(0), leaseEnded(0, 1)}, cloned(0, 0, 9), "queued", 1, -1},
		"cloned while it trains":      {[]*outbidv1.Event{begins(0, 0)}, cloned(0, 0, 9), "running", 0, 0},
		"cloned while it waits":       {[]*outbidv1.Event{leaseEnded(0, 1)}, cloned(0, 0, 9), "queued", 0, -1},
	} {
		st, s := running(t, spec(1), 1)
		apply(t, st, tc.events...)
		tr := s.Trials[0]
		var version uint64
		if l := tr.Lead(); l != nil {
			version = l.Version
		}
		applyAt(t, st, 60, tc.event)
		if got := state.TrialWord(tr.State); got != tc.want || tr.Resumes != tc.resumes || tr.UntilStep != 9 {
			t.Errorf("%s: it is %s after %d resumes, until %d", name, got, tr.Resumes, tr.UntilStep)
		}
		if want := tc.want == "queued"; slices.Contains(s.Queued, 0) != want || len(s.Queued) > 1 {
			t.Errorf("%s: %v wait", name, s.Queued)
		}
		if !tr.Ended.IsZero() {
			t.Errorf("%s: it ended at %s", name, tr.Ended)
		}
		if l := tr.Lead(); l != nil {
			if l.Training.IsZero() != (tc.trains < 0) || tc.trains >= 0 && !l.Training.Equal(after(tc.trains)) {
				t.Errorf("%s: it trains since %s", name, l.Training)
			}
			if tc.event.GetTrialTargeted() != nil && l.Version <= version {
				t.Errorf("%s: its worker is not told: version %d", name, l.Version)
			}
		}
	}
	for until, fits := range map[int64]bool{2: false, 3: false, 4: true} {
		st, _ := running(t, spec(1), 1)
		if err := st.Apply(at(), targeted(0, until)); (err == nil) != fits {
			t.Errorf("from 3 to %d: %v", until, err)
		}
	}
	st := state.New()
	open := created(0)
	open.GetTrialCreated().UntilStep = 0
	apply(t, st, submitted(spec(1)), open, targeted(0, 2))
	if got := st.Sweeps["s-1"].Trials[0].UntilStep; got != 2 {
		t.Errorf("a trial without a target has one of %d", got)
	}
}

// A reader that has seen a version of a sweep gets what changed since, or everything if the version is not from this
// state.
func TestChangedSinceAVersion(t *testing.T) {
	t.Parallel()
	st, s := running(t, spec(1), 3)
	seen := map[uint64][]int32{s.Version: {0, 1, 2}, s.Version + 1: {0, 2}, s.Version + 2: {0}, s.Version + 3: nil}
	apply(t, st, says(1, 1, .5), says(2, 1, .5), says(0, 1, .5))
	for v, want := range seen {
		if got := s.ChangedSince(v); !slices.Equal(got, want) {
			t.Errorf("since %d of %d: %v, want %v", v, s.Version, got, want)
		}
	}
	if got := s.ChangedSince(s.Version + 1); len(got) != 3 {
		t.Errorf("since a version that is not: %v, want all", got)
	}
	if got := s.ChangedSince(math.MaxUint64); len(got) != 0 {
		t.Errorf("since the last of all: %v", got)
	}
}
