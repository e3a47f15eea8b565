package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// failingSweep has four trials of a program that fails like an R program: its last line alone is not informative.
const failingSweep = `
name: halt
space: {x: {float: {low: 0, high: 1}}}
metric: loss
mode: min
limits: {trials: 4, concurrency: 1}
program:
  shell: |
    printf '%s\n' one two "Error in fit(x, y) :" "  object 'y' not found" "Calls: main -> fit" "" "Execution halted" >&2
    exit 1
`

// missingSweep reports a metric other than its own.
const missingSweep = `
name: missing
space: {x: {float: {low: 0, high: 1}}}
metric: accuracy
mode: max
limits: {trials: 4, concurrency: 1}
program:
  shell: |
    echo '{{"step": 1, "acc": 0.5}}' >> "$OUTBID_REPORT"
`

func (u *upApp) runText(t *testing.T, want int, text string, terminal bool) string {
	t.Helper()
	app := newTestApp(strings.NewReader(text), nil)
	app.now, app.term.out = time.Now, terminal
	app.term.size = func() (int, int) { return 400, 24 }
	wantExit(t, app, app.start(t.Context(), "run", "-", "--server", u.file.API), want)
	return app.out.String() + app.err.String()
}

func TestOneMistakeIsToldOnceWithItsLastLines(t *testing.T) {
	t.Parallel()
	u := startServer(t, "up", "--data", t.TempDir(), "--api", "127.0.0.1:0", "--devices", "cpu:1")
	const five = "    two\n    Error in fit(x, y) :\n      object 'y' not found\n    Calls: main -> fit\n    Execution halted\n"
	for _, terminal := range []bool{false, true} {
		got := u.runText(t, exitFailed, failingSweep, terminal)
		for text, count := range map[string]int{
			": exited with code 1: Execution halted: it starts again": 1, ":\n" + five: 1, "failed for good": 0,
			"3 other trials alike: exited with code 1: Execution halted\n": 1, "no trial of": 0,
		} {
			if strings.Count(got, text) != count {
				t.Errorf("%q is not there %d times:\n%s", text, count, got)
			}
		}
		got = u.runText(t, exitFailed, missingSweep, terminal)
		for text, count := range map[string]int{
			`it reported no "accuracy", which the sweep is to optimise; it reported acc: it fails unless`:      1,
			`3 other trials alike: it reported no "accuracy", which the sweep is to optimise; it reported acc`: 1,
			"never reported": 0, "last output of": 0, "no trial of": 0,
		} {
			if strings.Count(got, text) != count {
				t.Errorf("%q is not there %d times:\n%s", text, count, got)
			}
		}
	}
	shown := u.command(t, exitOK, "show", "halt/0")
	if want := "last on stderr\n" + strings.ReplaceAll("\n"+five, "\n    ", "\n  ")[1:]; !strings.Contains(shown, want) {
		t.Errorf("show does not print %q:\n%s", want, shown)
	}
	logged := u.command(t, exitOK, "logs", "halt/0")
	if strings.Count(logged, "--- started on local at ") != 1 || strings.Count(logged, "Execution halted") != 2 {
		t.Errorf("the two attempts are not separated:\n%s", logged)
	}
	for _, args := range [][]string{{"best", "missing"}, {"show", "missing/best"}} {
		want := `outbid: no trial of missing-2 has reported "accuracy": every trial failed: it reported no "accuracy"`
		code := exitFailed
		if args[0] == "show" {
			code = exitUsage
		}
		if got := u.command(t, code, args...); !strings.HasPrefix(got, want) {
			t.Errorf("%v printed %q", args, got)
		}
	}
}

func TestAFailuresKindIsWithoutWhatBecomesOfTheTrial(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"KeyError: 'nope': it starts again from the beginning (restart 1 of 3)":                            "KeyError: 'nope'",
		"failed for good: KeyError: 'nope'; it failed twice in the same way at step 0, so it is not tried": "KeyError: 'nope'",
		`it reported no "a"; it reported b: it fails unless a later report has it`:                         `it reported no "a"; it reported b`,
		`failed for good: it reported no "a"; it reported b`:                                               `it reported no "a"; it reported b`,
		"the store is away": "the store is away",
	} {
		if got := failureKind(text); got != want {
			t.Errorf("%q is of the kind %q, want %q", text, got, want)
		}
	}
}

func TestLinesThatComeLateAreShownLate(t *testing.T) {
	t.Parallel()
	var lines []string
	f := failureLog{stderr: func(int32) []string { return lines }}
	note := func(trial int32, text string) *outbidv1.SweepNote {
		return &outbidv1.SweepNote{Trial: &trial, Level: "error", Text: "failed for good: " + text}
	}
	if !f.isNews(note(3, "exited with code 1: no")) || f.isNews(note(4, "exited with code 1: no")) || f.isNews(note(3, "exited with code 1: no")) {
		t.Error("a kind of failure is not told once")
	}
	if got := f.excerpts(); got != nil {
		t.Errorf("there is an excerpt of nothing: %q", got)
	}
	lines = []string{"why", "no"}
	if diff := cmp.Diff([]string{"last output of trial 3:", "    why", "    no"}, f.excerpts()); diff != "" {
		t.Error(diff)
	}
	if got := f.excerpts(); got != nil {
		t.Errorf("it is shown again: %q", got)
	}
	if diff := cmp.Diff([]string{"1 other trial alike: exited with code 1: no"}, f.summary()); diff != "" {
		t.Error(diff)
	}
}
