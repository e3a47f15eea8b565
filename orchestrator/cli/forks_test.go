package cli

import (
	"strings"
	"testing"
	"time"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// forkedTrial is a trial with two forks, whose first fork slot has ended.
func forkedTrial() *outbidv1.Trial {
	parts := func(steps, counted int64, how string) []*outbidv1.TrialFork {
		return []*outbidv1.TrialFork{
			{
				LeaseId: 8, Places: []*outbidv1.TrialPlace{{Node: "left", Devices: []int32{0}, Type: "A100"}}, State: how,
				Share: 4000, Steps: steps, Counted: counted, StepsPerSecond: 20, ForecastStepsPerSecond: 25,
			},
			{
				LeaseId: 9, Places: []*outbidv1.TrialPlace{{Node: "right", Devices: []int32{0, 1}, Type: "V100"}}, State: how,
				Share: 1000, Steps: steps / 4, Counted: counted / 4, StepsPerSecond: 10, ForecastStepsPerSecond: 8,
			},
		}
	}
	return &outbidv1.Trial{
		Sweep: "digits-2", Number: 2, State: outbidv1.TrialState_TRIAL_STATE_RUNNING, Step: 6000, UntilStep: 10_000, ConfigJson: `{"lr":1.0}`,
		Created: ago(2 * time.Minute), Node: "left", Devices: []int32{0}, StepsPerSecond: 30, Rounds: 1,
		Round: &outbidv1.TrialRound{FromStep: 5000, Began: ago(time.Minute), Ends: ago(-time.Minute), Forks: parts(800, 400, "running")},
		Merges: []*outbidv1.TrialMerge{{
			Round: 1, Began: ago(2 * time.Minute), Time: ago(time.Minute), Step: 5000, Forks: parts(4000, 4000, "ended"), AveragedOn: "right",
			Reason: "what its forks saved is averaged",
		}},
	}
}

// forkedGoldens are command lines about trials with forks.
func forkedGoldens() map[string][]string {
	return map[string][]string{
		"show-forks":           {"show", "digits-2/2"},
		"show-forks-json":      {"show", "digits-2/2", "-o", "json"},
		"show-forks-averaging": {"show", "digits-2/3"},
	}
}

// TestAForkedTrialIsShown checks that a trial shows its forks and the results of its fork slots.
func TestAForkedTrialIsShown(t *testing.T) {
	t.Parallel()
	fake := newFake()
	averaging := forkedTrial()
	averaging.Number, averaging.State, averaging.Node = 3, outbidv1.TrialState_TRIAL_STATE_QUEUED, ""
	averaging.Round.ConsolidatesOn, averaging.Round.Attempt, averaging.Merges[0].AveragedOn = "left", 2, ""
	averaging.Rounds, averaging.Merges[0].Reason = 12, "one fork saved steps"
	fake.trials["digits-2"] = append(fake.trials["digits-2"], forkedTrial(), averaging)
	url, _ := serveFake(t, fake, "127.0.0.1:0")
	for name, args := range forkedGoldens() {
		app := newTestApp(strings.NewReader(""), map[string]string{"OUTBID_URL": url})
		code := app.run(t.Context(), args)
		checkGolden(t, name, transcript(args, app, code))
	}
}

// TestForksAreWatched checks that a follower sees the forks below their trial if there is room, and a note for each
// fork slot that ends.
func TestForksAreWatched(t *testing.T) {
	t.Parallel()
	s, now := newFake().list[0], time.Now()
	p := newProgress()
	first := forkedTrial()
	first.Rounds, first.Merges = 0, nil
	p.update(&outbidv1.WatchSweepResponse{Sweep: s, Trials: []*outbidv1.Trial{first}}, now)
	var out strings.Builder
	pp := &plainPresenter{w: &out, now: func() time.Time { return now }}
	tell := func(trials ...*outbidv1.Trial) string {
		out.Reset()
		u := &outbidv1.WatchSweepResponse{Sweep: s, Trials: trials}
		p.update(u, now)
		if err := pp.update(p, u); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	tell(first)
	if got := tell(forkedTrial()); !strings.HasSuffix(got, "trial 2: fork slot 1: step 0 to 5,000, averaged on right\n") {
		t.Errorf("it is told %q", got)
	}
	if got := tell(forkedTrial()); got != "" {
		t.Errorf("then it is told %q", got)
	}
	lines := strings.Join(runningLines(s, p.running(), 120, 10), "\n")
	for _, want := range []string{"6,000/10,000", "800/4,000     running", "left:0 (A100)", "200/1,000", "right:0,1 (V100)", "where round 1 ended"} {
		if !strings.Contains(lines, want) {
			t.Errorf("%q is not in\n%s", want, lines)
		}
	}
	if got := runningLines(s, p.running(), 120, 2); len(got) != 2 {
		t.Errorf("in two lines it is %q", got)
	}
	averaging := forkedTrial()
	averaging.State, averaging.Node, averaging.Round.ConsolidatesOn = outbidv1.TrialState_TRIAL_STATE_QUEUED, "", "left"
	tell(averaging)
	if lines := strings.Join(runningLines(s, p.running(), 120, 10), "\n"); !strings.Contains(lines, "averaged on left") {
		t.Errorf("while it is averaged\n%s", lines)
	}
}
