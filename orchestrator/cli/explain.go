package cli

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/outbid-dev/outbid/orchestrator/explain"
	"github.com/outbid-dev/outbid/orchestrator/explain/evidence"
	"github.com/outbid-dev/outbid/orchestrator/sim/experiment"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// explainCommand explains the state of a sweep or a trial.
type explainCommand struct {
	*client
	edition Edition
}

// explanationView is an explanation as JSON.
type explanationView struct {
	ID        string        `json:"id" doc:"SWEEP or SWEEP/TRIAL"`
	State     string        `json:"state" doc:"state of the sweep or the trial"`
	Cause     string        `json:"cause" doc:"training, devices, quota, unplaceable, nodes, suspected, tuner, pruned, failed, paused, stopped or done"`
	Why       string        `json:"why" doc:"why it waits, runs or has ended"`
	Lost      string        `json:"lost" doc:"why it lost devices, or that it did not"`
	Otherwise string        `json:"otherwise" doc:"what another policy or weight would have done"`
	Outcomes  []outcomeView `json:"outcomes" doc:"simulations of the ledger: policy, weight of the sweep, and seconds from its submission to its end; empty if the ledger was not simulated"`
}

type outcomeView struct {
	Policy  string `json:"policy"`
	Weight  number `json:"weight"`
	Seconds number `json:"seconds"`
}

// otherPolicies are tried unless --policy names others. The server's own policy is left out.
var otherPolicies = []string{"las", "drf"} //nolint:gochecknoglobals // a constant list

func (ex *explainCommand) command() *cobra.Command {
	var out format
	var asJSON bool
	var policies []string
	cmd := &cobra.Command{
		Use:   "explain SWEEP|SWEEP/TRIAL",
		Short: "Explain why a sweep or a trial waits, lost devices or ended",
		Long: `Explain prints three sentences: why the sweep or the trial waits, runs or has ended; why it lost devices, to which
trials; and what another policy or weight would have done.

For the third sentence it simulates the server's ledger, as "outbid replay --policy" does: with twice the sweep's
weight, and under the policies of --policy. That requires a token that may read the ledger (an admin's), and a ledger of
at most 20,000 batches. Otherwise the sentence gives the figures of the newest auction.`,
		Example: `  outbid explain digits-1
  outbid explain digits-1/17
  outbid explain digits --policy fifo,tiresias
  outbid explain digits-1 -o json | jq -r .why`,
		Args:              exactArgs("SWEEP or SWEEP/TRIAL"),
		ValidArgsFunction: ex.completeTrials,
		RunE: func(cmd *cobra.Command, args []string) error {
			if asJSON {
				out = formatJSON
			}
			return ex.run(cmd.Context(), args[0], policies, out)
		},
	}
	outputFlag(cmd, &out)
	cmd.Flags().BoolVar(&asJSON, "json", false, "the same as -o json")
	cmd.Flags().StringSliceVar(&policies, "policy", otherPolicies, "`NAMES` of other policies to simulate, separated by commas")
	complete(cmd, "policy", ex.edition.Policies.Names()...)
	return cmd
}

func (ex *explainCommand) run(ctx context.Context, arg string, policies []string, out format) error {
	r, err := parseRef(arg)
	if err != nil {
		return err
	}
	for _, name := range policies {
		if !slices.Contains(ex.edition.Policies.Names(), name) {
			return badInput("--policy %s: want names from %s", name, strings.Join(ex.edition.Policies.Names(), ", "))
		}
	}
	c, err := ex.connect()
	if err != nil {
		return err
	}
	defer c.close()
	var s *outbidv1.Sweep
	var t *outbidv1.Trial
	if r.trial == nil && !r.best {
		s, err = c.find(ctx, r.sweep)
	} else {
		t, s, err = c.trial(ctx, r)
	}
	if err != nil {
		return err
	}
	got, outcomes, err := evidence.Explain(ctx, c, s, t, simulator(c, ex.edition, policies), ex.now())
	if err != nil {
		return err
	}
	if out != formatTable {
		return ex.printObject(out, viewExplanation(s, t, got, outcomes))
	}
	for _, sentence := range got.Sentences() {
		ex.printText("%s", clean(sentence))
	}
	return nil
}

func viewExplanation(s *outbidv1.Sweep, t *outbidv1.Trial, e explain.Explanation, outcomes []explain.Outcome) explanationView {
	v := explanationView{
		ID: s.GetId(), State: sweepState(s.GetState()), Cause: string(e.Cause), Why: e.State, Lost: e.Lost, Otherwise: e.Otherwise,
		Outcomes: []outcomeView{},
	}
	if t != nil {
		v.ID, v.State = trialID(t), trialState(t.GetState())
	}
	for _, o := range outcomes {
		v.Outcomes = append(v.Outcomes, outcomeView{o.Policy, number(o.Factor * explain.Weight(s)), number(o.Seconds)})
	}
	return v
}

// simulationTimeout limits reading the ledger and all simulations.
const simulationTimeout = 20 * time.Second

// simulator returns a function that simulates a server's ledger under other policies. It returns nothing if the ledger
// may not be read, is too long, or takes too long.
func simulator(api ledgerReader, e Edition, policies []string) evidence.Simulate {
	return func(ctx context.Context, s *outbidv1.Sweep) []explain.Outcome {
		ctx, cancel := context.WithTimeout(ctx, simulationTimeout)
		defer cancel()
		l, err := readLedger(ctx, api)
		if err != nil {
			return nil
		}
		outcomes, err := experiment.Otherwise(ctx, e.Policies, l, s.GetId(), policies)
		if err != nil {
			return nil
		}
		return outcomes
	}
}
