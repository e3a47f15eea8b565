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
	// stderrLines is how many of the last lines that a failed trial wrote to stderr are shown.
	stderrLines = 5
	// stderrTail is how many lines of a trial's log they are looked for in.
	stderrTail = 200
	// stderrTimeout bounds how long the server is asked for them.
	stderrTimeout = 2 * time.Second
)

// failureKind returns what a note says went wrong, without what becomes of the trial. The SDK's _failures.py does the same.
func failureKind(text string) string {
	around := regexp.MustCompile(`(?s)^(?:failed for good: )?(.*?)(?:: it starts again .*|; it failed twice .*|: it fails unless .*)?$`)
	return around.FindStringSubmatch(text)[1]
}

// isOfCode reports whether a kind of failure is one that the trial's own code explains on stderr: an exception or an exit.
func isOfCode(kind string) bool {
	return regexp.MustCompile(`^(exited with code|killed by|out of memory|[A-Za-z_][\w.]*(: |$))`).MatchString(kind)
}

// failureLog tells each kind of failure of a sweep once: with the last lines that its first trial wrote to stderr, and at the end
// with the number of other trials that failed alike.
type failureLog struct {
	// stderr returns the last lines that a trial wrote to stderr; none if they have not come yet.
	stderr func(trial int32) []string
	kinds  []string
	trials map[string][]int32
	// owed are the trials whose lines have not come yet, and how often they were asked for.
	owed []owedLines
}

// owedLines is a trial whose last lines are still to be shown.
type owedLines struct {
	trial int32
	tries int
}

// maxTries is after how many questions a trial counts as one that wrote nothing.
const maxTries = 20

// isNews reports whether a note is the first of its kind.
func (f *failureLog) isNews(n *outbidv1.SweepNote) bool {
	if n.Trial == nil || !warns(n) {
		return true
	}
	kind := failureKind(n.GetText())
	trials, known := f.trials[kind]
	if !known {
		if f.trials == nil {
			f.trials = map[string][]int32{}
		}
		f.kinds = append(f.kinds, kind)
		if isOfCode(kind) && f.stderr != nil {
			f.owed = append(f.owed, owedLines{trial: n.GetTrial()})
		}
	}
	if !slices.Contains(trials, n.GetTrial()) {
		f.trials[kind] = append(trials, n.GetTrial())
	}
	return !known
}

// excerpts returns the lines of trials on stderr that have come since the last call, each excerpt below a line that names the trial.
func (f *failureLog) excerpts() []string {
	var lines []string
	var still []owedLines
	for _, o := range f.owed {
		last := f.stderr(o.trial)
		if len(last) > 0 {
			lines = append(lines, fmt.Sprintf("trial %d wrote last:", o.trial))
		} else if o.tries++; o.tries < maxTries {
			still = append(still, o)
		}
		for _, line := range last {
			lines = append(lines, "    "+line)
		}
	}
	f.owed = still
	return lines
}

// alike returns a line for each kind of failure that several trials have in common.
func (f *failureLog) alike() []string {
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

// lastStderr returns the last lines that a trial's newest attempt wrote to stderr, without those that are empty; none if there are
// none or the server does not say.
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

// markStream is the stream of the lines that separate a trial's attempts in a log.
const markStream = "outbid"

// noMetric says that no trial of a sweep has reported its metric, and why the sweep failed if it did.
func noMetric(s *outbidv1.Sweep) string {
	text := fmt.Sprintf("no trial of %s has reported %q", s.GetId(), s.GetSpec().GetMetric())
	if s.GetState() == outbidv1.SweepState_SWEEP_STATE_FAILED && s.GetReason() != "" {
		text += ": " + clean(s.GetReason())
	}
	return text
}
