package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/outbid-dev/outbid/orchestrator/ledger"
	"github.com/outbid-dev/outbid/orchestrator/sim/experiment"
	"github.com/outbid-dev/outbid/orchestrator/sim/measure"
)

// replayOptions has the flags of `outbid replay`.
type replayOptions struct {
	policies []string
	options  []string
	out      format
	timeless bool
}

func (sm *simCommands) replayCommand() *cobra.Command {
	var o replayOptions
	cmd := &cobra.Command{
		Use:   "replay LEDGER",
		Short: "Repeat the decisions of a ledger, or simulate its sweeps under other policies",
		Long: `Replay reads a whole ledger: a server's data directory, or a file that "outbid export --ledger" or "outbid sim
--events" wrote.

Without --policy each round's policy repeats its decision from the state at that time. All decisions must be the same;
otherwise it prints the first differences and exits with code 1. The ledger records the policy's options, including
changes when the server was restarted; --policy-option overrides them for all rounds. Ledgers of simulated runs do not
record them: if such a run had policy options, give them here.

With --policy it shows the results under other policies. The simulator runs the sweeps with their tuners, arrival times,
nodes, trial speeds and reports. It also runs the ledger's own policy, with its last options, for a fair comparison, and
prints its assumptions.`,
		Annotations: map[string]string{globalFlags: "ca " + globalLog},
		Example: `  outbid replay .outbid
  outbid replay ledger.jsonl --policy-option interval=30s
  outbid replay ledger.jsonl --policy themis,drf
  outbid replay ledger.jsonl --policy fifo -o json`,
		Args: exactArgs("LEDGER"),
		RunE: func(cmd *cobra.Command, args []string) error {
			l, done, err := sm.openLedger(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if len(o.policies) == 0 {
				err = sm.replayOwn(cmd.Context(), l, o)
			} else {
				err = sm.replayOthers(cmd.Context(), l, o)
			}
			return errors.Join(err, done())
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&o.policies, "policy", nil, "`NAMES` of other policies to simulate, separated by commas")
	f.StringArrayVar(&o.options, "policy-option", nil, "`[POLICY.]NAME=VALUE` of the policies; see docs/reference/policies.md")
	f.BoolVar(&o.timeless, "no-times", false, "print 0 for results that vary between runs (times of decisions, memory)")
	outputFlag(cmd, &o.out)
	complete(cmd, "policy", sm.edition.Policies.Names()...)
	return cmd
}

// replayOwn lets each policy of the ledger repeat its own decisions.
func (sm *simCommands) replayOwn(ctx context.Context, l ledger.Ledger, o replayOptions) error {
	found, err := experiment.DecideAgain(ctx, sm.edition.Policies, l, o.options)
	if err != nil {
		return err
	}
	return sm.printDecided(found, o)
}

// differencesShown limits the differences in a table.
const differencesShown = 10

func (sm *simCommands) printDecided(r *experiment.Decided, o replayOptions) error {
	if o.out != formatTable {
		line, err := encodeJSON(r, o.out == formatJSON)
		if err != nil {
			return err
		}
		sm.printf("%s\n", line)
	} else {
		var by []string
		for _, name := range slices.Sorted(maps.Keys(r.Policies)) {
			by = append(by, fmt.Sprintf("%s %s", name, formatCount(int64(r.Policies[name]))))
		}
		sm.printf("%s batches, %s events; %s rounds (%s), %s decisions, %s differ\n", formatCount(int64(r.Batches)),
			formatCount(int64(r.Events)), formatCount(int64(r.Rounds)), strings.Join(by, ", "),
			formatCount(int64(r.Decisions)), formatCount(int64(r.Differing)))
		for _, s := range r.History {
			sm.printf("%s\n", s)
		}
		for _, d := range r.Differences[:min(len(r.Differences), differencesShown)] {
			sm.printf("\nround %d of %s, batch %d, %s\n  then: %s\n  now:  %s\n", d.Round, d.Policy, d.Batch, d.Time,
				orNothing(d.Then), orNothing(d.Now))
		}
	}
	if r.Differing > 0 {
		return fmt.Errorf("%s of %s decisions differ%s", formatCount(int64(r.Differing)),
			formatCount(int64(r.Decisions)), differHint(r, len(o.options) > 0))
	}
	return nil
}

// differHint suggests a reason for different decisions.
func differHint(r *experiment.Decided, overridden bool) string {
	unknown := slices.ContainsFunc(r.History, func(p experiment.PolicyPeriod) bool { return !p.Recorded })
	switch {
	case overridden:
		return " with the options given here"
	case unknown:
		return "; if the server was given policy options, give them here too"
	}
	return ""
}

func orNothing(decision string) string {
	if decision == "" {
		return "nothing"
	}
	return decision
}

// replayOthers reruns the ledger's sweeps under its own policy and others.
func (sm *simCommands) replayOthers(ctx context.Context, l ledger.Ledger, o replayOptions) error {
	again, err := experiment.NewRerun(ctx, sm.edition.Policies, l, o.policies, o.options)
	if err != nil {
		return err
	}
	for _, line := range again.Assumptions {
		sm.notef("assumed: %s", line)
	}
	var results []measure.Result
	err = again.Run(ctx, sm.now, func(r measure.Result) error {
		if o.timeless {
			r = r.Timeless()
		}
		results = append(results, r)
		if o.out == formatTable {
			return nil
		}
		return sm.printLine(r)
	})
	if err == nil && o.out == formatTable {
		simTable(results).write(sm.stdout)
	}
	return err
}
