package cli

import (
	"context"

	"github.com/spf13/cobra"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// explainCommand explains the state of a sweep or a trial.
type explainCommand struct {
	*client
	edition Edition
}

// explanationView is an explanation as JSON.
type explanationView struct {
	ID        string                               `json:"id" doc:"SWEEP or SWEEP/TRIAL"`
	State     string                               `json:"state" doc:"state of the sweep or the trial"`
	Cause     string                               `json:"cause" doc:"training, devices, quota, unplaceable, nodes, suspected, tuner, pruned, failed, paused, stopped or done"`
	Why       string                               `json:"why" doc:"why it waits, runs or has ended"`
	Lost      string                               `json:"lost" doc:"why it lost devices, or that it did not"`
	Otherwise string                               `json:"otherwise" doc:"how it would fare under another policy or weight"`
	Outcomes  messages[*outbidv1.SimulatedOutcome] `json:"outcomes" doc:"simulations of the ledger: policy, weight of the sweep, and seconds from its submission to its end; empty if the ledger was not simulated"`
}

func (ex *explainCommand) command() *cobra.Command {
	var out format
	var asJSON bool
	var policies []string
	cmd := &cobra.Command{
		Use:   "explain SWEEP|SWEEP/TRIAL",
		Short: "Explain why a sweep or a trial waits, lost devices or ended",
		Long: `Explain prints three sentences: why the sweep or the trial waits, runs or has ended; why it lost devices, to which
trials; and how it would fare under another policy or weight.

For the third sentence the server simulates its ledger, as "outbid replay --policy" does: with twice the sweep's weight,
and under the policies of --policy. It simulates for one caller at a time, for at most 20 s, and only ledgers of at most
20,000 batches. Otherwise the sentence has the figures of the newest auction.`,
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
	cmd.Flags().StringSliceVar(&policies, "policy", []string{"las", "drf"}, "`NAMES` of other policies to simulate, separated by commas")
	complete(cmd, "policy", ex.edition.Policies.Names()...)
	return cmd
}

func (ex *explainCommand) run(ctx context.Context, arg string, policies []string, out format) error {
	r, err := parseRef(arg)
	if err != nil {
		return err
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
	req := &outbidv1.ExplainSweepRequest{Sweep: s.GetId(), Simulate: true, Policies: policies}
	if t != nil {
		req.Trial = &t.Number
	}
	got, err := c.ExplainSweep(ctx, req)
	if err != nil {
		return err
	}
	if out != formatTable {
		return ex.printObject(out, viewExplanation(s, t, got))
	}
	for _, sentence := range []string{got.GetWhy(), got.GetLost(), got.GetOtherwise()} {
		ex.printText("%s", clean(sentence))
	}
	return nil
}

func viewExplanation(s *outbidv1.Sweep, t *outbidv1.Trial, e *outbidv1.ExplainSweepResponse) explanationView {
	v := explanationView{
		ID: s.GetId(), State: sweepState(s.GetState()), Cause: e.GetCause(), Why: e.GetWhy(), Lost: e.GetLost(), Otherwise: e.GetOtherwise(),
		Outcomes: e.GetOutcomes(),
	}
	if t != nil {
		v.ID, v.State = trialID(t), trialState(t.GetState())
	}
	return v
}
