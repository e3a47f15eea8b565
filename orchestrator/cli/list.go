package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

func (q *queryCommands) lsCommand() *cobra.Command {
	var out format
	var tenant, state, order string
	var limit int
	cmd := &cobra.Command{
		Use:     "ls [SWEEP]",
		Aliases: []string{"list"},
		Short:   "List sweeps, or the trials of one",
		Long: `Ls lists sweeps, newest first; with a sweep it lists that sweep's trials.

SWEEP is an id such as digits-1, or a name such as digits, which means its newest sweep.`,
		Example: `  outbid ls
  outbid ls --state running
  outbid ls digits-1 --order best --limit 10
  outbid ls digits-1 -o json | jq '.[].metric'`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return fmt.Errorf("unexpected argument %q", args[1])
			}
			return nil
		},
		ValidArgsFunction: q.completeSweeps(),
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit < 0 {
				return badInput("--limit %d: want a number from 1, or 0 for all", limit)
			}
			c, err := q.connect()
			if err != nil {
				return err
			}
			defer c.close()
			if len(args) == 1 {
				return q.listTrials(cmd, c, args[0], out, trialFilter{state: state, order: order, limit: limit})
			}
			return q.listSweeps(cmd, c, out, tenant, state, limit)
		},
	}
	outputFlag(cmd, &out)
	cmd.Flags().StringVar(&tenant, "tenant", "", "only this tenant's sweeps")
	cmd.Flags().StringVar(&state, "state", "", "only sweeps or trials in this state, such as running")
	cmd.Flags().StringVar(&order, "order", "number", "order of trials: number, or best (by the metric)")
	cmd.Flags().IntVar(&limit, "limit", 0, "at most this many; 0 for all")
	complete(cmd, "order", "number", "best")
	complete(cmd, "state", "queued", "running", "paused", "stopping", "done", "completed", "pruned", "stopped", "failed")
	return cmd
}

func (q *queryCommands) listSweeps(cmd *cobra.Command, c *connection, out format, tenant, state string, limit int) error {
	if err := checkState(state, outbidv1.SweepState_name, sweepState); err != nil {
		return err
	}
	l := newLister(q.stdout, out, []string{"SWEEP", "STATE", "TRIALS", "RUNNING", "STEPS", "METRIC", "BEST", "ELAPSED", "ADMISSION"},
		func(v sweepView) []string {
			best := "-"
			if v.Best != nil {
				best = formatMetric(float64(v.Best.Metric))
			}
			trials := formatCount(int64(v.Counts.Total))
			if v.PlannedTrials != nil {
				trials += "/" + formatCount(int64(*v.PlannedTrials))
			}
			return []string{
				v.ID, v.State, trials, formatCount(int64(v.Counts.Running)), formatCount(v.Steps),
				v.Mode + " " + clean(v.Metric), best, formatDuration(float64(v.Seconds)), admissionWord(v.Admission),
			}
		})
	l.table.width, l.table.spare = q.columns(), []string{"METRIC", "RUNNING", "STEPS", "ELAPSED"}
	answered := false
	for s, err := range c.sweeps(cmd.Context(), tenant) {
		if err != nil {
			return err
		}
		if state != "" && sweepState(s.GetState()) != state {
			continue
		}
		answered = answered || s.GetAdmission() != nil
		if err := l.add(viewSweep(s, q.now())); err != nil {
			return err
		}
		if l.count == limit {
			break
		}
	}
	if !answered { // the policy does not use admission
		l.table.dropLast()
	}
	return l.close("no sweeps; start one with 'outbid run FILE.yaml' ('outbid init' writes an example)")
}

// trialFilter selects and orders the listed trials.
type trialFilter struct {
	state, order string
	limit        int
}

func (q *queryCommands) listTrials(cmd *cobra.Command, c *connection, name string, out format, want trialFilter) error {
	r, err := sweepOnly(name)
	if err != nil {
		return err
	}
	if want.order != "number" && want.order != "best" {
		return badInput("--order %q: want number or best", want.order)
	}
	if err := checkState(want.state, outbidv1.TrialState_name, trialState); err != nil {
		return err
	}
	sweep, err := c.find(cmd.Context(), r.sweep)
	if err != nil {
		return err
	}
	l := trialLister(q.console, out, sweep)
	limit := want.limit
	if want.state != "" {
		limit = 0 // counted below, after the filter
	}
	for t, err := range c.trials(cmd.Context(), sweep.GetId(), want.order, limit) {
		if err != nil {
			return err
		}
		if want.state != "" && trialState(t.GetState()) != want.state {
			continue
		}
		if err := l.add(viewTrial(t)); err != nil {
			return err
		}
		if l.count == want.limit {
			break
		}
	}
	return l.close("no trials")
}

// trialLister prints trials.
func trialLister(c *console, out format, sweep *outbidv1.Sweep) *lister[trialView] {
	metric := strings.ToUpper(clean(sweep.GetSpec().GetMetric()))
	l := newLister(c.stdout, out, []string{"TRIAL", "STATE", "STEP", metric, "AT STEP", "WHERE", "CONFIG"},
		func(v trialView) []string {
			step, best, at := formatCount(v.Step), "-", "-"
			if v.UntilStep > 0 {
				step += "/" + formatCount(v.UntilStep)
			}
			if v.Metric != nil {
				best, at = formatMetric(float64(*v.Metric)), formatCount(v.MetricStep)
			}
			where := "-"
			if v.Node != "" {
				where = place(v)
			}
			return []string{fmt.Sprint(v.Trial), v.State, step, best, at, where, configLine(v.Config)}
		})
	l.table.width, l.table.spare = c.columns(), []string{"AT STEP"}
	return l
}

// checkState rejects an unknown state; "" means any.
func checkState[T ~int32](state string, names map[int32]string, word func(T) string) error {
	if state == "" {
		return nil
	}
	var known []string
	for i := int32(1); names[i] != ""; i++ {
		if word(T(i)) == state {
			return nil
		}
		known = append(known, word(T(i)))
	}
	return badInput("--state %q: want one of %s", state, strings.Join(known, ", "))
}
