package state

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// printTransitions returns a table of transitions as docs/reference/events.md prints it.
func printTransitions[S ~int32](what string, all []transition[S], word func(S) string) string {
	words := func(states []S) string {
		named := make([]string, len(states))
		for i, s := range states {
			named[i] = word(s)
		}
		return strings.Join(named, ", ")
	}
	var out strings.Builder
	fmt.Fprintf(&out, "| %s: event | from | to |\n|---|---|---|\n", what)
	for _, t := range all {
		to := words(t.To)
		if t.To == nil {
			to = "as it was"
		}
		fmt.Fprintf(&out, "| %s | %s | %s |\n", t.Event, words(t.From), to)
	}
	return out.String()
}

func TestTheDocsPrintTheTransitions(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/reference/events.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		printTransitions("sweep", sweepTransitions(), orNone(SweepWord)),
		printTransitions("trial", trialTransitions(), orNone(TrialWord)),
		printTransitions("lease", leaseTransitions(), orNone(leaseWord)),
		printTransitions("node", nodeTransitions(), orNone(NodeWord)),
	} {
		if !strings.Contains(string(text), "\n"+want+"\n") {
			t.Errorf("docs/reference/events.md does not print this table as it is in transitions.go:\n%s", want)
		}
	}
}

// orNone prints the zero state as "-".
func orNone[S ~int32](word func(S) string) func(S) string {
	return func(s S) string {
		if s == 0 {
			return "-"
		}
		return word(s)
	}
}
