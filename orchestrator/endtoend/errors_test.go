package endtoend

import (
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// trouble matches panics of Go programs, and errors in any of our log formats.
var trouble = regexp.MustCompile(`^panic: |^fatal error: |^WARNING: DATA RACE|\blevel=ERROR\b|"level":"ERROR"|^\S+ ERR `)

// expected has the patterns of expectErrors, by the test's name.
var expected sync.Map //nolint:gochecknoglobals // the tests of a package share one harness

// expectErrors allows errors, given as regular expressions, in the logs of this test's processes. Any other error, or a
// panic, fails the test.
func expectErrors(t testing.TB, patterns ...string) {
	t.Helper()
	var list []*regexp.Regexp
	for _, p := range patterns {
		list = append(list, regexp.MustCompile(p))
	}
	expected.Store(t.Name(), list)
}

// troubles returns the lines of a log with unexpected panics and errors.
func troubles(test, log string) []string {
	var patterns []*regexp.Regexp
	if list, ok := expected.Load(test); ok {
		patterns, _ = list.([]*regexp.Regexp)
	}
	var found []string
	for line := range strings.Lines(log) {
		if trouble.MatchString(line) && !slices.ContainsFunc(patterns, func(p *regexp.Regexp) bool { return p.MatchString(line) }) {
			found = append(found, strings.TrimSpace(line))
		}
	}
	return found
}

func TestErrorsInLogsAreFound(t *testing.T) {
	t.Parallel()
	expectErrors(t, "the disk is full")
	for line, want := range map[string]bool{
		`time=2026-01-02T03:04:05Z level=ERROR msg="api call panicked" method=ListSweeps`: true,
		`{"time":"2026-01-02T03:04:05Z","level":"ERROR","msg":"api call failed"}`:         true,
		`03:04:05 ERR api call failed`:                                  true,
		`panic: assignment to entry in nil map`:                         true,
		`fatal error: concurrent map writes`:                            true,
		`time=2026-01-02T03:04:05Z level=ERROR msg="the disk is full"`:  false,
		`time=2026-01-02T03:04:05Z level=WARN msg="ERROR is only said"`: false,
		`trial 3 says panic: not ours`:                                  false,
	} {
		if got := troubles(t.Name(), "before\n"+line+"\nafter\n"); (len(got) == 1) != want {
			t.Errorf("%q: found %q", line, got)
		}
	}
}
