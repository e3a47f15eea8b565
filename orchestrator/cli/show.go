package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

const (
	// showTrials and showNotes are how many trials and notes show prints.
	showTrials = 10
	showNotes  = 8
)

// queryCommands show sweeps, their trials and their logs.
type queryCommands struct{ *client }

func (q *queryCommands) showCommand() *cobra.Command {
	var out format
	var checkpoint string
	var step int64
	cmd := &cobra.Command{
		Use:   "show SWEEP|SWEEP/TRIAL",
		Short: "Show a sweep or a trial",
		Long: `Show prints a sweep with its best trials, or one trial with its checkpoints.

A trial is named SWEEP/NUMBER, or SWEEP/best for the best one. With --checkpoint it also writes a checkpoint of the
trial to a file: the newest, or that of --step.`,
		Example: `  outbid show digits-1
  outbid show digits-1/17
  outbid show digits/best --checkpoint best.safetensors
  outbid show digits-1/17 -o json | jq .config`,
		Args:              exactArgs("SWEEP or SWEEP/TRIAL"),
		ValidArgsFunction: q.completeTrials,
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := parseRef(args[0])
			if err != nil {
				return err
			}
			whole := r.trial == nil && !r.best
			if whole && (checkpoint != "" || cmd.Flags().Changed("step")) {
				return badInput("--checkpoint and --step want a trial, such as %s/best", r.sweep)
			}
			if cmd.Flags().Changed("step") && checkpoint == "" {
				return badInput("--step chooses a checkpoint: give --checkpoint FILE too")
			}
			c, err := q.connect()
			if err != nil {
				return err
			}
			defer c.close()
			if whole {
				return q.showSweep(cmd, c, r, out)
			}
			trial, sweep, err := c.trial(cmd.Context(), r)
			if err != nil {
				return err
			}
			if checkpoint != "" {
				want := &outbidv1.GetCheckpointRequest{Sweep: sweep.GetId(), Trial: trial.GetNumber()}
				if cmd.Flags().Changed("step") {
					want.Step = &step
				}
				if _, err := q.fetchCheckpoint(cmd.Context(), c, want, checkpoint); err != nil {
					return err
				}
			}
			if out != formatTable {
				return q.printObject(out, viewTrial(trial))
			}
			q.showTrial(sweep, trial)
			if trial.GetState() == outbidv1.TrialState_TRIAL_STATE_FAILED {
				q.showStderr(c.lastStderr(cmd.Context(), sweep.GetId(), trial.GetNumber()))
			}
			return nil
		},
	}
	outputFlag(cmd, &out)
	cmd.Flags().StringVar(&checkpoint, "checkpoint", "", "write the trial's checkpoint to this `FILE`")
	cmd.Flags().Int64Var(&step, "step", 0, "step of that checkpoint (default: the newest)")
	return cmd
}

func (q *queryCommands) showSweep(cmd *cobra.Command, c *connection, r ref, out format) error {
	s, err := c.find(cmd.Context(), r.sweep)
	if err != nil {
		return err
	}
	v := viewSweep(s, q.now())
	if out != formatTable {
		return q.printObject(out, v)
	}
	t := table{width: q.columns(), fold: true}
	add := func(name, value string) {
		if value != "" {
			t.rows = append(t.rows, []string{name, value})
		}
	}
	add("sweep", v.ID)
	add("state", withReason(v.State, v.Reason))
	add("waiting", clean(v.Waiting))
	add("tuner", fmt.Sprintf("%s, seed %d", v.Tuner, s.GetSpec().GetTuner().GetSeed()))
	add("metric", v.Mode+" "+clean(v.Metric))
	add("memory", memoryLine(s.GetMemory()))
	add("submitted", q.when(v.Submitted)+by(v.Actor))
	add("ended", q.when(v.Ended))
	add("elapsed", formatDuration(float64(v.Seconds)))
	add("trials", trialsLine(s))
	add("steps", planned(v.Steps, v.PlannedSteps))
	add("device time", formatDuration(float64(v.DeviceSeconds))+ofHours(s.GetSpec().GetLimits().GetDeviceHours()))
	add("cost", costLine(v, s.GetSpec().GetLimits().GetCost()))
	if f := v.Fairness; f != nil && isShared(float64(f.MeanSweeps)) {
		add("fairness", fairnessLine(f))
		if last := f.Auction; last != nil && isRhoMeaningful(last.AloneSeconds) {
			add("auction", fmt.Sprintf("rho %s at %s, after round %d", formatRho(float64(last.Rho)), q.when(last.Time), last.Round))
		}
	}
	add("admission", q.admissionLine(s.GetAdmission()))
	add("best", bestLine(s))
	for _, soup := range v.Soups {
		add("soup", q.soupLine(v.Metric, soup))
	}
	for _, k := range sortedKeys(v.Labels) {
		add("label", clean(k+"="+v.Labels[k]))
	}
	add("tags", clean(strings.Join(v.Tags, ", ")))
	add("description", clean(strings.ReplaceAll(v.Description, "\n", " ")))
	t.write(q.stdout)
	q.printSchedule(s.GetAdmission())
	q.printNotes(s)
	q.printf("\n")
	l := trialLister(q.console, formatTable, s)
	for t, err := range c.trials(cmd.Context(), s.GetId(), "best", showTrials) {
		if err != nil {
			return err
		}
		if err := l.add(viewTrial(t)); err != nil {
			return err
		}
	}
	if err := l.close("no trials yet"); err != nil {
		return err
	}
	if rest := int(s.GetCounts().GetTotal()) - showTrials; rest > 0 {
		q.printf("and %d more: outbid ls %s\n", rest, s.GetId())
	}
	return nil
}

// memoryLine names the earlier sweeps that a sweep started from.
func memoryLine(m []*outbidv1.RememberedSweep) string {
	var parts []string
	for _, one := range m {
		parts = append(parts, fmt.Sprintf("%s (%d trials)", clean(one.GetSweep()), one.GetTrials()))
	}
	if len(parts) == 0 {
		return ""
	}
	return "learned from " + strings.Join(parts, ", ")
}

// ofHours adds a limit of device-hours to the device time.
func ofHours(limit float64) string {
	if limit == 0 {
		return ""
	}
	return " of " + formatDuration(limit*3600)
}

// costLine describes the cost of a sweep and its limit, or is empty without prices.
func costLine(v sweepView, limit float64) string {
	line := costText(v.Cost, "")
	if v.Cost != nil && *v.Cost > 0 && *v.Cost < 0.1 {
		line = fmt.Sprintf("%.2g", float64(*v.Cost))
	}
	if limit > 0 && line != "" {
		line += fmt.Sprintf(" of %g", limit)
	}
	return strings.TrimSpace(line + " " + clean(v.Currency))
}

// isRhoMeaningful reports whether rho is meaningful. A sweep that would take seconds alone mostly waits for processes to
// start, regardless of sharing.
func isRhoMeaningful(alone number) bool { return alone >= 60 }

// isShared reports whether other sweeps used the cluster too, given the average number over a sweep's life. On a laptop
// they usually do not.
func isShared(mean float64) bool { return formatMetric(mean) != "1" }

func fairnessLine(f *fairnessView) string {
	line := fmt.Sprintf("forecast to end %s after its submission; alone on its share after %s (%s)", formatDuration(float64(f.ForecastSeconds)),
		formatDuration(float64(f.AloneSeconds)), sharing(float64(f.MeanSweeps)))
	if isRhoMeaningful(f.AloneSeconds) {
		line = fmt.Sprintf("rho %s: %s", formatRho(float64(f.Rho)), line)
	}
	return line
}

// sharing describes how many sweeps share the cluster on average.
func sharing(mean float64) string {
	return formatMetric(mean) + " sweeps share the cluster"
}

// printNotes prints a sweep's newest notes.
func (q *queryCommands) printNotes(s *outbidv1.Sweep) {
	notes := s.GetNotes()
	older := max(0, len(notes)-showNotes)
	for i, n := range notes[older:] {
		if i == 0 {
			q.printf("\nnotes\n")
		}
		if i == 0 && older > 0 {
			q.printf("  %d older ones: outbid show %s -o json\n", older, s.GetId())
		}
		t := table{indent: "  ", rows: [][]string{{q.when(viewTime(n.GetTime())), noteLine(n)}}, width: q.columns(), fold: true}
		t.write(q.stdout)
	}
}

func (q *queryCommands) showTrial(s *outbidv1.Sweep, tr *outbidv1.Trial) {
	v := viewTrial(tr)
	t := table{width: q.columns(), fold: true}
	add := func(name, value string) {
		if value != "" {
			t.rows = append(t.rows, []string{name, value})
		}
	}
	add("trial", v.ID)
	add("state", withReason(v.State, v.Reason))
	if v.UntilStep > 0 {
		add("step", planned(v.Step, &v.UntilStep))
	} else {
		add("step", formatCount(v.Step))
	}
	if v.Metric != nil {
		add("best "+clean(s.GetSpec().GetMetric()), fmt.Sprintf("%s at step %s", formatMetric(float64(*v.Metric)),
			formatCount(v.MetricStep)))
	}
	if v.Last != nil {
		var parts []string
		for _, name := range sortedKeys(v.Last.Metrics) {
			parts = append(parts, clean(name)+"="+formatMetric(float64(v.Last.Metrics[name])))
		}
		add("last report", fmt.Sprintf("step %s: %s", formatCount(v.Last.Step), strings.Join(parts, " ")))
	}
	for _, name := range sortedKeys(v.Attributes) {
		add("noted "+clean(name), clean(string(v.Attributes[name])))
	}
	add("where", place(v))
	if v.StepsPerSecond > 0 {
		add("speed", formatMetric(float64(v.StepsPerSecond))+" steps/s")
	}
	add("created", q.when(v.Created))
	add("ended", q.when(v.Ended))
	add("device time", formatDuration(float64(v.DeviceSeconds)))
	add("bracket", fmt.Sprint(v.Bracket))
	add("resumes", fmt.Sprintf("%d, restarts %d", v.Resumes, v.Restarts))
	if v.Retries > 0 {
		add("retries", fmt.Sprint(v.Retries))
	}
	if v.NodeLosses > 0 {
		add("nodes lost", fmt.Sprintf("%d since its last progress", v.NodeLosses))
	}
	t.write(q.stdout)
	if v.Round == nil {
		q.showLeases(v)
	}
	q.showForkSlot(v)
	q.showMerges(v)
	q.printf("\nconfiguration\n")
	config := table{indent: "  "}
	for _, c := range flatten(v.Config) {
		config.rows = append(config.rows, []string{clean(c.path), clean(c.exact())})
	}
	config.write(q.stdout)
	if len(v.Checkpoints) == 0 {
		return
	}
	q.printf("\ncheckpoints\n")
	cps := table{indent: "  ", header: []string{"STEP", "SIZE", "METRIC", "KEY"}}
	for _, c := range v.Checkpoints {
		metric := "-"
		if c.Metric != nil {
			metric = formatMetric(float64(*c.Metric))
		}
		cps.rows = append(cps.rows, []string{formatCount(c.Step), formatBytes(c.Bytes), metric, c.Key})
	}
	cps.write(q.stdout)
}

// showStderr prints the last lines that a trial wrote to stderr.
func (q *queryCommands) showStderr(lines []string) {
	if len(lines) > 0 {
		q.printf("\nlast on stderr\n  %s\n", strings.Join(lines, "\n  "))
	}
}

// showLeases lists a trial's leases, unless it has only one on one node.
func (q *queryCommands) showLeases(v trialView) {
	if len(v.Leases) == 0 || len(v.Leases) == 1 && len(v.Leases[0].Places) < 2 {
		return
	}
	q.printf("\nleases\n")
	t := table{indent: "  ", header: []string{"LEASE", "STATE", "STEP", "SINCE", "WHERE"}}
	for _, l := range v.Leases {
		where := wherePlaces(l.Places)
		if l.Client != "" {
			where = strings.TrimPrefix(where+", client "+clean(l.Client), ", ")
		}
		t.rows = append(t.rows, []string{fmt.Sprint(l.LeaseID), l.State, formatCount(l.Step), q.when(l.Since), where})
	}
	t.write(q.stdout)
}

func withReason(state, reason string) string {
	if reason == "" {
		return state
	}
	return state + ": " + clean(reason)
}

func by(actor string) string {
	if actor == "" {
		return ""
	}
	return " by " + clean(actor)
}

func planned(done int64, all *int64) string {
	if all == nil {
		return formatCount(done)
	}
	return formatCount(done) + " of " + formatCount(*all)
}
