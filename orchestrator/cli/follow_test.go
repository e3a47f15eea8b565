package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

const sweepFile = `
name: digits
space: {lr: {float: {low: 0.001, high: 1, log: true}}}
metric: accuracy
mode: max
tuner: {hyperband: {max_steps: 9}, seed: 7}
program: {command: [./train, "{lr}"]}
`

// start runs a command in the background and returns a channel for its exit code.
func (t *testApp) start(ctx context.Context, args ...string) <-chan int {
	done := make(chan int, 1)
	go func() { done <- t.run(ctx, args) }()
	return done
}

// patience limits every wait. It is generous because test machines are busy.
const patience = 2 * time.Minute

// wantExit waits for an exit code.
func wantExit(t *testing.T, app *testApp, done <-chan int, want int) {
	t.Helper()
	select {
	case code := <-done:
		if code != want {
			t.Fatalf("exit code %d, want %d\nstdout:\n%s\nstderr:\n%s", code, want, app.out, app.err)
		}
	case <-time.After(patience):
		t.Fatalf("the command did not end\nstdout:\n%s\nstderr:\n%s", app.out, app.err)
	}
}

// holding returns a fake whose sweep runs until release is called with its final state.
func holding() (f *fakeService, release func(outbidv1.SweepState)) {
	f = newFake()
	ends := make(chan outbidv1.SweepState, 4)
	f.watchers = func(_ *outbidv1.WatchSweepRequest, s grpc.ServerStreamingServer[outbidv1.WatchSweepResponse]) error {
		if err := s.Send(&outbidv1.WatchSweepResponse{Sweep: f.list[0], Trials: f.trials["digits-2"]}); err != nil {
			return err
		}
		select {
		case state := <-ends:
			end := proto.CloneOf(f.list[0])
			end.State = state
			return s.Send(&outbidv1.WatchSweepResponse{Sweep: end})
		case <-s.Context().Done():
			return s.Context().Err()
		}
	}
	return f, func(state outbidv1.SweepState) { ends <- state }
}

func TestRunExitCodeSaysHowTheSweepEnded(t *testing.T) {
	t.Parallel()
	for state, want := range map[outbidv1.SweepState]int{
		outbidv1.SweepState_SWEEP_STATE_DONE:    exitOK,
		outbidv1.SweepState_SWEEP_STATE_FAILED:  exitFailed,
		outbidv1.SweepState_SWEEP_STATE_STOPPED: exitStopped,
	} {
		t.Run(sweepState(state), func(t *testing.T) {
			t.Parallel()
			f, release := holding()
			url, _ := serveFake(t, f, "127.0.0.1:0")
			app := newTestApp(strings.NewReader(sweepFile), nil)
			release(state)
			wantExit(t, app, app.start(t.Context(), "run", "-", "--server", url), want)
			if !strings.Contains(app.out.String(), "digits-2 "+sweepState(state)) {
				t.Errorf("no result:\n%s", app.out)
			}
		})
	}
}

func TestRunSendsTheFileAsItIs(t *testing.T) {
	t.Parallel()
	f := newFake()
	url, _ := serveFake(t, f, "127.0.0.1:0")
	app := newTestApp(nil, nil)
	path := writeFile(t, "sweep.yaml", sweepFile)
	wantExit(t, app, app.start(t.Context(), "run", path, "--server", url), exitOK)
	sent, ok := f.asked[0].(*outbidv1.SubmitSweepRequest)
	if !ok || sent.GetIdempotencyKey() == "" {
		t.Fatalf("sent %v", f.asked[0])
	}
	if got := sent.GetSpec().GetTuner().GetHyperband().GetMaxSteps(); got != 9 {
		t.Errorf("max_steps %d arrived, want 9", got)
	}
	if got := sent.GetSpec().GetTenant(); got != "" {
		t.Errorf("tenant %q was sent, though the file names none", got)
	}
}

func TestInterruptedRunWithoutATerminalLeavesTheSweepRunning(t *testing.T) {
	t.Parallel()
	f, _ := holding()
	url, _ := serveFake(t, f, "127.0.0.1:0")
	app := newTestApp(strings.NewReader(sweepFile), nil)
	done := app.start(t.Context(), "run", "-", "--server", url)
	app.out.waitFor(t, "running")
	app.signals <- os.Interrupt
	wantExit(t, app, done, exitInterrupted)
	if want := "outbid stop digits-2"; !strings.Contains(app.err.String(), want) {
		t.Errorf("stderr does not say %q:\n%s", want, app.err)
	}
	if len(f.asked) != 1 {
		t.Errorf("the server was asked for more than the submission: %v", f.asked[1:])
	}
}

func TestInterruptedRunOnATerminalAsks(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		answer  string
		signal  os.Signal
		release outbidv1.SweepState
		want    int
		stopped bool
	}{
		"leave":  {answer: "\n", want: exitInterrupted},
		"yes":    {answer: "y\n", want: exitInterrupted},
		"stop":   {answer: "s\n", release: outbidv1.SweepState_SWEEP_STATE_STOPPED, want: exitStopped, stopped: true},
		"pause":  {answer: "p\n", want: exitInterrupted, stopped: true},
		"watch":  {answer: "w\n", release: outbidv1.SweepState_SWEEP_STATE_DONE, want: exitOK},
		"again":  {signal: os.Interrupt, want: exitInterrupted},
		"ended":  {release: outbidv1.SweepState_SWEEP_STATE_DONE, want: exitOK},
		"sigint": {signal: syscall.SIGTERM, want: exitInterrupted},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, release := holding()
			url, _ := serveFake(t, f, "127.0.0.1:0")
			stdin, answer := io.Pipe()
			defer answer.Close()
			app := newTestApp(stdin, nil)
			app.term.in, app.term.out = true, true
			done := app.start(t.Context(), "run", writeFile(t, "sweep.yaml", sweepFile), "--server", url)
			app.out.waitFor(t, "running")
			app.signals <- os.Interrupt
			app.err.waitFor(t, "Leave digits-2 running?")
			if tc.answer != "" {
				if _, err := io.WriteString(answer, tc.answer); err != nil {
					t.Fatal(err)
				}
			}
			if tc.signal != nil {
				app.signals <- tc.signal
			}
			if tc.release != 0 {
				release(tc.release)
			}
			wantExit(t, app, done, tc.want)
			if stopped := len(f.asked) == 2; stopped != tc.stopped {
				t.Errorf("stopped is %v, want %v", stopped, tc.stopped)
			}
		})
	}
}

func TestWatchComesBackAfterTheServer(t *testing.T) {
	t.Parallel()
	f, release := holding()
	url, stop := serveFake(t, f, "127.0.0.1:0")
	app := newTestApp(nil, nil)
	done := app.start(t.Context(), "watch", "digits", "--server", url)
	app.out.waitFor(t, "running")
	stop()
	app.out.waitFor(t, "does not answer")
	serveFake(t, f, strings.TrimPrefix(url, "http://"))
	release(outbidv1.SweepState_SWEEP_STATE_DONE)
	wantExit(t, app, done, exitOK)
	if !strings.Contains(app.out.String(), "the server is back") {
		t.Errorf("nothing says that the server is back:\n%s", app.out)
	}
}

func TestUnreachableServerHasItsOwnExitCode(t *testing.T) {
	t.Parallel()
	url, stop := serveFake(t, newFake(), "127.0.0.1:0")
	stop()
	for _, args := range [][]string{
		{"ls"}, {"show", "digits"}, {"submit", "-"}, {"nodes"}, {"watch", "digits"}, {"export", "digits"},
	} {
		app := newTestApp(strings.NewReader(sweepFile), nil)
		wantExit(t, app, app.start(t.Context(), append(args, "--server", url)...), exitUnreachable)
		if !strings.Contains(app.err.String(), "outbid up") || strings.Count(app.err.String(), "\n") != 1 {
			t.Errorf("%v: want one line that says how to start a server, got:\n%s", args, app.err)
		}
	}
}

func TestBadServerNamesAreBadUsage(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"127.0.0.1:7700", "ftp://x", "http://", "::"} {
		app := newTestApp(nil, nil)
		wantExit(t, app, app.start(t.Context(), "ls", "--server", url), exitUsage)
	}
}

func TestNotesAreShownOnce(t *testing.T) {
	t.Parallel()
	note := func(s time.Duration, text string) *outbidv1.SweepNote {
		return &outbidv1.SweepNote{Time: ago(s), Text: text}
	}
	a, b, c := note(3*time.Second, "a"), note(2*time.Second, "b"), note(time.Second, "c")
	var log noteLog
	for i, tc := range []struct {
		notes []*outbidv1.SweepNote
		want  int
	}{
		{nil, 0},
		{[]*outbidv1.SweepNote{a}, 1},
		{[]*outbidv1.SweepNote{a}, 0},
		{[]*outbidv1.SweepNote{a, b}, 1},
		{[]*outbidv1.SweepNote{b, c}, 1},
		{[]*outbidv1.SweepNote{c}, 0},
		{nil, 0},
		{[]*outbidv1.SweepNote{note(0, "z")}, 1},
	} {
		if got := len(log.fresh(tc.notes)); got != tc.want {
			t.Errorf("%d: %d notes are new, want %d", i, got, tc.want)
		}
	}
}

func TestRateLooksBackOneWindow(t *testing.T) {
	t.Parallel()
	p := newProgress()
	for s := range 60 { // 10 steps per second, then 100
		steps := int64(10 * s)
		if s > 30 {
			steps = 300 + int64(100*(s-30))
		}
		p.update(&outbidv1.WatchSweepResponse{Sweep: &outbidv1.Sweep{Steps: steps}}, noon().Add(time.Duration(s)*time.Second))
	}
	if got := p.rate(); got < 99 || got > 101 {
		t.Errorf("rate %g, want 100", got)
	}
	if len(p.samples) > 20 {
		t.Errorf("%d samples are kept", len(p.samples))
	}
}

func TestLiveLinesFit(t *testing.T) {
	t.Parallel()
	f := newFake()
	p := newProgress()
	p.update(&outbidv1.WatchSweepResponse{Sweep: f.list[0], Trials: f.trials["digits-2"]}, noon().Add(-5*time.Second))
	later := proto.CloneOf(f.list[0])
	later.Steps += 500
	later.Waiting = "no node has a free device of type \"v100\""
	var many []*outbidv1.Trial
	for i := range 40 {
		tr := proto.CloneOf(f.trials["digits-2"][1])
		tr.Number = int32(i + 2)
		many = append(many, tr)
	}
	p.update(&outbidv1.WatchSweepResponse{Sweep: later, Trials: many}, noon())
	for _, size := range []struct{ columns, rows int }{{80, 24}, {20, 5}, {200, 60}, {40, 10}} {
		lines := liveLines(p, f.list[0].GetNotes(), noon(), size.columns, size.rows-2)
		if len(lines) > max(size.rows-2, 4) {
			t.Errorf("%d lines on %d rows", len(lines), size.rows)
		}
	}
	for _, columns := range []int{60, 80, 100, 120, 160} {
		lines := liveLines(p, f.list[0].GetNotes(), noon(), columns, 22)
		for i, line := range lines {
			lines[i] = shorten(line, columns-1)
		}
		checkGolden(t, fmt.Sprintf("live-%d", columns), []byte(strings.Join(lines, "\n")+"\n"))
	}
}

func TestEveryObjectiveIsShownAndWhatDiffersFirst(t *testing.T) {
	t.Parallel()
	f := newFake()
	sweep := proto.CloneOf(f.list[0])
	sweep.Spec.Metric, sweep.Spec.Objectives = "loss", []*outbidv1.Objective{{Metric: "size", Mode: "min"}}
	var trials []*outbidv1.Trial
	for i := range 3 {
		trials = append(trials, &outbidv1.Trial{
			Sweep: "digits-2", Number: int32(i), State: outbidv1.TrialState_TRIAL_STATE_RUNNING, Step: 3, Best: new(0.5), BestStep: 3,
			ConfigJson: fmt.Sprintf(`{"alike":"/data/of/all","lr":0.%d}`, i+1),
			Last:       &outbidv1.Report{Step: 3, Metrics: map[string]float64{"loss": 0.5, "size": float64(7 + i)}},
		})
	}
	sweep.Best = trials[1]
	p := newProgress()
	p.update(&outbidv1.WatchSweepResponse{Sweep: sweep, Trials: trials}, noon())
	text := strings.Join(liveLines(p, nil, noon(), 160, 22), "\n")
	for _, want := range []string{"best     loss 0.5, size 8, trial 1 at step 3: ", "TRIAL  STEP  LOSS  SIZE  STEPS/S", "lr=0.3 alike=/data/of/all"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	if text = strings.Join(resultLines(p, noon()), "\n"); !strings.Contains(text, "best loss 0.5, size 8: trial 1 at step 3\n") {
		t.Errorf("the result does not name every objective:\n%s", text)
	}
}

// TestOnlyTheLastColumnIsCut checks that at any width numbers and states are complete, and only the configuration in
// the last column is shortened.
func TestOnlyTheLastColumnIsCut(t *testing.T) {
	t.Parallel()
	cells := []string{"12", "completed", "27/81", "0.98765", "node-7:0,1"}
	for width := 50; width < 200; width++ {
		tab := table{header: []string{"TRIAL", "STATE", "STEP", "ACCURACY", "WHERE", "CONFIG"}, width: width}
		tab.rows = [][]string{append(slices.Clone(cells), strings.Repeat("x=1 ", 60))}
		var b strings.Builder
		tab.write(&b)
		lines := strings.Split(strings.TrimSpace(b.String()), "\n")
		if n := textWidth(lines[1]); n > max(width, 60) {
			t.Errorf("%d characters at %d columns", n, width)
		}
		if diff := cmp.Diff(cells, strings.Fields(lines[1])[:5]); diff != "" {
			t.Errorf("at %d columns (-want +got):\n%s", width, diff)
		}
	}
}

func TestLiveWarningsAreShownOnce(t *testing.T) {
	t.Parallel()
	f := newFake()
	var out strings.Builder
	now := noon()
	lp := &livePresenter{w: &out, term: terminal{size: func() (int, int) { return 80, 24 }}, now: func() time.Time { return now }}
	p := newProgress()
	sweep := proto.CloneOf(f.list[0])
	sweep.Notes = append(sweep.Notes, &outbidv1.SweepNote{Time: ago(time.Second), Level: "warning", Text: "no report has had accuracy"},
		&outbidv1.SweepNote{Time: ago(0), Level: "info", Text: "all is well"})
	for range 5 {
		now = now.Add(time.Second)
		u := &outbidv1.WatchSweepResponse{Sweep: sweep, Trials: f.trials["digits-2"]}
		p.update(u, now)
		if err := lp.update(p, u); err != nil {
			t.Fatal(err)
		}
	}
	if err := lp.result(p); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]int{"warning: no report has had accuracy": 1, "all is well": 5} {
		if got := strings.Count(out.String(), text); got != want {
			t.Errorf("%q was written %d times, want %d", text, got, want)
		}
	}
}

// brokenWriter fails like a closed pipe.
type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

func TestRunEndsWhenItsReaderIsGone(t *testing.T) {
	t.Parallel()
	f, _ := holding()
	url, _ := serveFake(t, f, "127.0.0.1:0")
	app := newTestApp(strings.NewReader(sweepFile), nil)
	app.stdout = brokenWriter{}
	wantExit(t, app, app.start(t.Context(), "run", "-", "--server", url, "-o", "json"), exitFailed)
}
