package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/outbid-dev/outbid/orchestrator/control"
	"github.com/outbid-dev/outbid/orchestrator/ledger"
	"github.com/outbid-dev/outbid/orchestrator/policy/registry"
	"github.com/outbid-dev/outbid/orchestrator/sim"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// replayOptions are the flags of `outbid replay`.
type replayOptions struct {
	policies []string
	options  []string
	out      format
	timeless bool
}

func (a *app) replayCommand() *cobra.Command {
	var o replayOptions
	cmd := &cobra.Command{
		Use:   "replay LEDGER",
		Short: "Decide a ledger's rounds again, or see what another policy would have made of them",
		Long: `Replay reads a whole ledger: a server's data directory, or a file that "outbid export --ledger" or "outbid sim
--events" wrote.

Without --policy it lets the policy that decided each round decide it again, on what was known then, and compares: every
decision must come out as it did. If one does not it prints the first that differ, and ends with exit code 1. The ledger
says which options the policy had, also where the server was started again with others in between; --policy-option
overrides them throughout. Ledgers of simulated runs and of older servers do not say it: where those were given policy
options, give them here too.

With --policy it answers what would have happened under another policy. The sweeps are run again on the simulator: with
their own tuners, arriving as they did on the nodes that were there, trials as fast and reporting as they did. The
ledger's own policy is run so too, with the options that it had last, beside the others, so that like is compared with
like; what is assumed is printed.`,
		Example: `  outbid replay .outbid
  outbid replay ledger.jsonl --policy-option interval=30s
  outbid replay ledger.jsonl --policy themis,drf
  outbid replay ledger.jsonl --policy fifo -o json`,
		Args: exactly("LEDGER"),
		RunE: func(cmd *cobra.Command, args []string) error {
			l, done, err := a.openLedger(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if len(o.policies) == 0 {
				err = a.replayOwn(cmd.Context(), l, o)
			} else {
				err = a.replayOthers(cmd.Context(), l, o)
			}
			return errors.Join(err, done())
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&o.policies, "policy", nil, "`NAMES` of other policies, separated by commas: what would have happened?")
	f.StringArrayVar(&o.options, "policy-option", nil, "`[POLICY.]NAME=VALUE` of the policies; see docs/scheduling.md")
	f.BoolVar(&o.timeless, "no-times", false, "leave what differs from run to run (times of decisions, memory) at 0")
	outputFlag(cmd, &o.out)
	complete(cmd, "policy", registry.Names()...)
	return cmd
}

// serverSeed is the seed of a server's policies unless an option says another.
const serverSeed = 1

// replayed is what replay found, as JSON.
type replayed struct {
	Batches     int               `json:"batches"`
	Events      int               `json:"events"`
	Rounds      int               `json:"rounds"`
	Decisions   int               `json:"decisions"`
	Differing   int               `json:"differing"`
	Policies    map[string]int    `json:"policies"`
	Stretches   []replayStretch   `json:"stretches"`
	Differences []replayDifferent `json:"differences"`
}

// replayDifferent is one decision that came out otherwise.
type replayDifferent struct {
	Policy string `json:"policy"`
	Batch  uint64 `json:"batch"`
	Time   string `json:"time"`
	Round  uint64 `json:"round"`
	Then   string `json:"then"`
	Now    string `json:"now"`
}

func replaySettings() control.Settings {
	return control.Settings{Lease: defaultLease, NewTuner: builtInTuner}
}

// replayOwn lets each policy of the ledger decide its own rounds again.
func (a *app) replayOwn(ctx context.Context, l ledger.Ledger, o replayOptions) error {
	seen, err := control.Survey(ctx, l)
	if err != nil {
		return err
	}
	found := replayed{Batches: seen.Batches, Events: seen.Events, Policies: seen.Rounds, Differences: []replayDifferent{}}
	names := slices.Sorted(maps.Keys(seen.Rounds))
	if len(names) == 0 {
		names = []string{registry.Default}
	}
	cast, err := newCast(names, o.options)
	if err != nil {
		return err
	}
	if found.Stretches, err = cast.stretches(seen.Stretches); err != nil {
		return err
	}
	set := replaySettings()
	set.NewPolicy = cast.make
	for _, name := range names {
		p, err := cast.make(&outbidv1.PolicySettings{Name: name})
		if err != nil {
			return err
		}
		audit, _, err := control.Replay(ctx, set, p, l)
		if err != nil {
			return err
		}
		found.take(name, audit)
	}
	return a.printReplayed(&found, o)
}

func (r *replayed) take(policy string, a *control.Audit) {
	r.Rounds += a.Rounds
	r.Decisions += a.Decisions
	r.Differing += a.Differing
	for _, d := range a.Differences {
		r.Differences = append(r.Differences, replayDifferent{
			Policy: policy, Batch: d.Seq, Time: d.At.UTC().Format(time.RFC3339Nano), Round: d.Round, Then: d.Then, Now: d.Now,
		})
	}
}

// differencesShown bounds what a table shows.
const differencesShown = 10

func (a *app) printReplayed(r *replayed, o replayOptions) error {
	if o.out != formatTable {
		line, err := encodeJSON(r, o.out == formatJSON)
		if err != nil {
			return err
		}
		a.printf("%s\n", line)
	} else {
		var by []string
		for _, name := range slices.Sorted(maps.Keys(r.Policies)) {
			by = append(by, fmt.Sprintf("%s %s", name, formatCount(int64(r.Policies[name]))))
		}
		a.printf("%s batches, %s events; %s rounds (%s), %s decisions, %s differ\n", formatCount(int64(r.Batches)),
			formatCount(int64(r.Events)), formatCount(int64(r.Rounds)), strings.Join(by, ", "),
			formatCount(int64(r.Decisions)), formatCount(int64(r.Differing)))
		for _, s := range r.Stretches {
			a.printf("%s\n", s)
		}
		for _, d := range r.Differences[:min(len(r.Differences), differencesShown)] {
			a.printf("\nround %d of %s, batch %d, %s\n  then: %s\n  now:  %s\n", d.Round, d.Policy, d.Batch, d.Time,
				orNothing(d.Then), orNothing(d.Now))
		}
	}
	if r.Differing > 0 {
		return fmt.Errorf("%s of %s decisions come out otherwise%s", formatCount(int64(r.Differing)),
			formatCount(int64(r.Decisions)), r.hint(len(o.options) > 0))
	}
	return nil
}

// hint says what may be the reason that decisions differ.
func (r *replayed) hint(overridden bool) string {
	unknown := slices.ContainsFunc(r.Stretches, func(s replayStretch) bool { return !s.Recorded })
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

// replayOthers runs the past again under its own policy and others.
func (a *app) replayOthers(ctx context.Context, l ledger.Ledger, o replayOptions) error {
	past, err := sim.ReadPast(ctx, l)
	if errors.Is(err, sim.ErrNothingRan) {
		return badInput("%w", err)
	}
	if err != nil {
		return err
	}
	names := slices.Clone(o.policies)
	if past.Policy != "" && !slices.Contains(names, past.Policy) {
		names = slices.Insert(names, 0, past.Policy)
	}
	own, err := ownOptions(ctx, l, past.Policy, o.options)
	if err != nil {
		return err
	}
	makers, err := policyMakers(names, withOwn(past, own, o.options), 0, serverSeed, false)
	if err != nil {
		return err
	}
	withoutAgents(past)
	for _, line := range past.Assumptions {
		a.notef("assumed: %s", line)
	}
	var results []simResult
	for _, m := range makers {
		r, err := a.rerun(ctx, past, m)
		if err != nil {
			return err
		}
		if o.timeless {
			r = r.Timeless()
		}
		results = append(results, r)
		if o.out != formatTable {
			line, err := encodeJSON(r, false)
			if err != nil {
				return err
			}
			a.printf("%s\n", line)
		}
	}
	if o.out == formatTable {
		simTable(results).write(a.stdout)
	}
	return nil
}

// rerun runs the past again under one policy.
func (a *app) rerun(ctx context.Context, past *sim.Past, m policyMaker) (simResult, error) {
	p, err := m.make()
	if err != nil {
		return simResult{}, err
	}
	set := past.Setup()
	set.Policy, set.Control, set.Clock = p, replaySettings(), a.now
	r, err := sim.Run(ctx, set)
	if err != nil {
		return simResult{}, fmt.Errorf("policy %s: %w", m.name, err)
	}
	return r.Result, nil
}
