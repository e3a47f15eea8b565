package state

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// printTransitions is a table of transitions as docs/architecture.md prints it.
func printTransitions[S comparable](what string, all []transition[S], word func(S) string) string {
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
		fmt.Fprintf(&out, "| %s | %s | %s |\n", t.Event, words(t.From), words(t.To))
	}
	return out.String()
}

func TestTheDocsPrintTheTransitions(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	trialWord := func(s trialState) string {
		if s == trialNone {
			return "-"
		}
		return TrialWord(s)
	}
	for _, want := range []string{
		printTransitions("trial", trialTransitions(), trialWord),
		printTransitions("sweep", sweepTransitions(), SweepWord),
	} {
		if !strings.Contains(string(text), "\n"+want+"\n") {
			t.Errorf("docs/architecture.md does not print this table as it is in transitions.go:\n%s", want)
		}
	}
}
