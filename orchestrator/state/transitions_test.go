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

// An error about an illegal transition names the problem and the states that would be right.
func TestIllegalTransitionsAreExplained(t *testing.T) {
	t.Parallel()
	sweep, trial, lease := sweepLifecycle, trialLifecycle, leaseLifecycle
	for want, err := range map[string]error{
		"lease granted: the trial is completed, and must be queued or running":                       trial("lease granted").allowsFrom(int32(trialCompleted)),
		"created: the trial exists already, and is queued":                                           trial("created").allowsFrom(int32(trialQueued)),
		"revoked: the lease does not exist":                                                          lease(Revoked).allowsFrom(0),
		"targeted: the trial remains completed, and must become queued or running":                   trial(Targeted).allows(int32(trialCompleted), int32(trialCompleted)),
		"lease granted: the trial becomes failed, and must remain running":                           trial("lease granted").allows(int32(trialRunning), int32(trialFailed)),
		"pause or deleted: the sweep ends, and must become paused":                                   sweep("pause", "deleted").allows(int32(sweepRunning), 0),
		"deleted: the sweep remains done, and must end":                                              sweep("deleted").allows(int32(sweepDone), int32(sweepDone)),
		"lease ended: the trial becomes failed, and must remain running, or become queued or paused": trial("lease ended").allows(int32(trialRunning), int32(trialFailed)),
	} {
		if got := fmt.Sprint(err); !strings.HasSuffix(got, ": "+want) {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
