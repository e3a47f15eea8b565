package cli

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

const (
	// stderrLines is how many of a failed trial's last stderr lines are shown.
	stderrLines = 5
	// stderrTail is the number of log lines that are searched for them.
	stderrTail = 200
	// stderrTimeout limits the call to the server.
	stderrTimeout = 2 * time.Second
)

// failureKind returns the failure in a note, without what happens to the trial next. The SDK's _failures.py does the
// same.
func failureKind(text string) string {
	around := regexp.MustCompile(`(?s)^(?:failed for good: )?(.*?)(?:: it starts again .*|; it failed twice .*|: it fails unless .*)?$`)
	return around.FindStringSubmatch(text)[1]
}

// isCodeFailure reports whether the trial's code probably explains the failure on stderr: an exception or an exit.
func isCodeFailure(kind string) bool {
	return regexp.MustCompile(`^(exited with code|killed by|out of memory|[A-Za-z_][\w.]*(: |$))`).MatchString(kind)
}

// failureLog shows each kind of failure of a sweep once, with the last stderr lines of the first trial that failed so.
// At the end it shows how many other trials failed alike.
type failureLog struct {
	// stderr returns the last lines that a trial wrote to stderr, or nil if they have not arrived yet.
	stderr func(trial int32) []string
	kinds  []string
	trials map[string][]int32
	// pending lists the trials whose lines have not arrived yet, with the number of attempts to read them.
	pending []pendingLines
}

// pendingLines is a trial whose last lines have not been shown yet.
type pendingLines struct {
	trial int32
	tries int
}

// maxTries is the number of attempts before a trial is assumed to have written nothing.
const maxTries = 20

// isNews reports whether a note is the first of its kind.
func (f *failureLog) isNews(n *outbidv1.SweepNote) bool {
	if n.Trial == nil || !isWarning(n) {
		return true
	}
	kind := failureKind(n.GetText())
	trials, known := f.trials[kind]
	if !known {
		if f.trials == nil {
			f.trials = map[string][]int32{}
		}
		f.kinds = append(f.kinds, kind)
		if isCodeFailure(kind) && f.stderr != nil {
			f.pending = append(f.pending, pendingLines{trial: n.GetTrial()})
		}
	}
	if !slices.Contains(trials, n.GetTrial()) {
		f.trials[kind] = append(trials, n.GetTrial())
	}
	return !known
}

// excerpts returns the stderr lines that arrived since the last call, each excerpt below a line that names the trial.
func (f *failureLog) excerpts() []string {
	var lines []string
	var still []pendingLines
	for _, o := range f.pending {
		last := f.stderr(o.trial)
		if len(last) > 0 {
			lines = append(lines, fmt.Sprintf("last output of trial %d:", o.trial))
		} else if o.tries++; o.tries < maxTries {
			still = append(still, o)
		}
		for _, line := range last {
			lines = append(lines, "    "+line)
		}
	}
	f.pending = still
	return lines
}

// summary returns a line for each kind of failure that several trials share.
func (f *failureLog) summary() []string {
	var lines []string
	for _, kind := range f.kinds {
		switch others := len(f.trials[kind]) - 1; {
		case others == 1:
			lines = append(lines, "1 other trial alike: "+clean(kind))
		case others > 1:
			lines = append(lines, fmt.Sprintf("%d other trials alike: %s", others, clean(kind)))
		}
	}
	return lines
}

// lastStderr returns the last non-empty lines that a trial's newest attempt wrote to stderr, or nil if they are missing
// or the server does not answer.
func (c *connection) lastStderr(ctx context.Context, sweep string, trial int32) []string {
	ctx, cancel := context.WithTimeout(ctx, stderrTimeout)
	defer cancel()
	stream, err := c.StreamLogs(ctx, &outbidv1.StreamLogsRequest{Sweep: sweep, Trial: &trial, Tail: stderrTail})
	if err != nil {
		return nil
	}
	var lines []string
	for {
		line, err := stream.Recv()
		if err != nil {
			return lines[max(0, len(lines)-stderrLines):]
		}
		switch text := strings.TrimRight(newPlainer().plain(line.GetLine()), " "); {
		case line.GetStream() == markStream:
			lines = nil
		case line.GetStream() == "stderr" && text != "":
			lines = append(lines, text)
		}
	}
}

// markStream is the stream name of the lines that separate a trial's attempts in a log.
const markStream = "outbid"

// noMetric returns a message that no trial of a sweep has reported its metric, with the reason if the sweep failed.
func noMetric(s *outbidv1.Sweep) string {
	text := fmt.Sprintf("no trial of %s has reported %q", s.GetId(), s.GetSpec().GetMetric())
	if s.GetState() == outbidv1.SweepState_SWEEP_STATE_FAILED && s.GetReason() != "" {
		text += ": " + clean(s.GetReason())
	}
	return text
}
