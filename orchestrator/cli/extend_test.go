package cli

import (
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// shortSweep has four trials of three steps. Only the best one keeps its checkpoint.
const shortSweep = `
name: short
space: {x: {float: {low: 0, high: 1}}}
metric: loss
mode: min
tuner: {random: {max_steps: 3}, seed: 1}
limits: {trials: 4}
program:
  shell: |
    step=$OUTBID_START_STEP
    while [ "$step" -lt "$OUTBID_UNTIL_STEP" ]; do
      step=$((step + 1))
      echo "{{\"step\": $step, \"loss\": {x}}}" >> "$OUTBID_REPORT"
    done
    echo "{x}" > "$OUTBID_CHECKPOINT_OUT"
`

// onTerminal runs a client command like a user at a terminal who answers its question.
func (u *upApp) onTerminal(t *testing.T, question, answer string, args ...string) string {
	t.Helper()
	stdin, keys := io.Pipe()
	defer keys.Close()
	app := newTestApp(stdin, nil)
	app.now = time.Now
	app.term.in, app.term.err = true, true
	done := app.start(t.Context(), append(args, "--server", u.file.API)...)
	app.err.waitFor(t, question)
	if _, err := io.WriteString(keys, answer); err != nil {
		t.Fatal(err)
	}
	wantExit(t, app, done, exitOK)
	return app.out.String() + app.err.String()
}

// TestExtendSaysWhatIsTrainedAgainAndAsks checks that extend lists the retrained trials before it starts, asks on a
// terminal, and elsewhere requires --yes. An export marks the reports that were superseded.
func TestExtendSaysWhatIsTrainedAgainAndAsks(t *testing.T) {
	t.Parallel()
	out := t.TempDir()
	u := startServer(t, "up", "--data", t.TempDir(), "--api", "127.0.0.1:0", "--devices", "cpu:2")
	u.command(t, exitOK, "run", writeFile(t, "short.yaml", shortSweep))
	const said = "3 trials repeat 9 steps"
	longer := []string{"extend", "short-1", "--max-steps", "5"}

	if got := u.command(t, exitOK, append(longer, "--preview")...); !strings.Contains(got, said) {
		t.Errorf("the preview says:\n%s", got)
	}
	got := u.command(t, exitUsage, longer...)
	for _, want := range []string{said, "short-1 was not extended", "give --yes"} {
		if !strings.Contains(got, want) {
			t.Errorf("where nobody can be asked it does not say %q:\n%s", want, got)
		}
	}
	for _, no := range []string{"\n", "n\n"} {
		if got := u.onTerminal(t, "Extend it?", no, longer...); !strings.Contains(got, "short-1 was not extended") {
			t.Errorf("answered %q it says:\n%s", no, got)
		}
	}
	if got := u.command(t, exitOK, "show", "short-1", "-o", "json"); !strings.Contains(got, `"done"`) {
		t.Errorf("it was extended all the same:\n%s", got)
	}
	if got := u.command(t, exitOK, "extend", "short-1", "--trials", "5", "--preview"); !strings.Contains(got, "no trial repeats any steps") {
		t.Errorf("the preview of more trials says:\n%s", got)
	}
	if got := u.onTerminal(t, "Extend it?", "y\n", longer...); !strings.Contains(got, said) {
		t.Errorf("answered yes it says:\n%s", got)
	}
	u.command(t, exitOK, "watch", "short-1")

	file := filepath.Join(out, "r.csv")
	u.command(t, exitOK, "export", "short-1", "--reports", file)
	counts := map[string]int{}
	for _, row := range readCSV(t, file) {
		counts[row["superseded"]]++
	}
	// Three trials restarted; each of the four has five reports that count.
	if counts["true"] != 9 || counts["false"] != 20 {
		t.Errorf("superseded: %v", counts)
	}
	u.command(t, exitOK, "extend", "short-1", "--max-steps", "6", "--yes")
	u.command(t, exitOK, "watch", "short-1")
}
