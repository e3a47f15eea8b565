package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/outbid-dev/outbid/orchestrator/sim/clusterspec"
	"github.com/outbid-dev/outbid/orchestrator/sim/experiment"
	"github.com/outbid-dev/outbid/orchestrator/sim/measure"
)

// sweptResult is a line of several plans: the setting, its value, and the figures.
type sweptResult struct {
	Setting string `json:"setting"`
	Value   string `json:"value"`
	measure.Result
}

// runSims runs plans one after another, and prints the results.
func (sm *simCommands) runSims(ctx context.Context, o simOptions, runs *SimRuns) error {
	var rows [][]measure.Result
	var failed error
	for i, p := range runs.Plans {
		line := func(r measure.Result) any { return r }
		if runs.Setting != "" {
			value := runs.Values[i]
			sm.notef("%s=%s", runs.Setting, value)
			line = func(r measure.Result) any { return sweptResult{runs.Setting, value, r} }
		}
		if runs.Before != nil {
			if failed = runs.Before(p); failed != nil {
				break
			}
		}
		results, err := sm.runPlan(ctx, o, p, line)
		rows = append(rows, results)
		if failed = err; failed != nil {
			break
		}
	}
	if o.out == formatTable {
		sweepTable(runs, rows).write(sm.stdout)
	}
	if runs.After == nil || len(rows) == 0 || len(rows[0]) == 0 {
		return failed
	}
	notes, err := runs.After(rows)
	for _, note := range notes {
		sm.notef("%s", note)
	}
	return errors.Join(failed, err)
}

// runPlan runs every policy of a plan. It prints each result, converted by line, once the previous ones have been
// printed. It returns the results so far even after a failure.
func (sm *simCommands) runPlan(ctx context.Context, o simOptions, p *experiment.Plan, line func(measure.Result) any) ([]measure.Result, error) {
	sm.notef("%s", simHeading(p))
	show := newSimShow(sm.console)
	hooks := experiment.Hooks{Engine: sm.edition.Simulate, Progress: show.tell, Result: func(r measure.Result) error {
		show.clear()
		if o.out == formatTable {
			return nil
		}
		return sm.printLine(line(r))
	}}
	if o.events != "" {
		hooks.Events = func(policy string, write func(io.Writer) error) error {
			return writeWhole(eventsFile(o.events, policy, len(p.Factories)), func(w io.Writer) error {
				buffered := bufio.NewWriterSize(w, 1<<20)
				return errors.Join(write(buffered), buffered.Flush())
			})
		}
	}
	results, err := p.Run(ctx, hooks)
	show.clear()
	if err == nil && o.apps != "" {
		err = writeWhole(o.apps, func(w io.Writer) error { return writeFates(w, results) })
	}
	return results, err
}

// printLine prints a value as a line of JSON.
func (sm *simCommands) printLine(of any) error {
	line, err := encodeJSON(of, false)
	if err != nil {
		return err
	}
	sm.printf("%s\n", line)
	return nil
}

// writeFates writes a line for each app and policy.
func writeFates(w io.Writer, results []measure.Result) error {
	lines := json.NewEncoder(w)
	for _, r := range results {
		for _, f := range r.Series.Fates {
			if err := lines.Encode(f); err != nil {
				return fmt.Errorf("write how apps fared: %w", err)
			}
		}
	}
	return nil
}

// simHeading describes the workload and the cluster.
func simHeading(p *experiment.Plan) string {
	s := p.Trace.Summary()
	apps := ""
	if s.Apps > 0 {
		apps = fmt.Sprintf(" in %s apps", formatCount(int64(s.Apps)))
	}
	return fmt.Sprintf("%s: %s jobs%s over %s; %s", p.Trace.Name, formatCount(int64(s.Jobs)), apps, formatDuration(s.Span),
		clusterspec.Describe(p.Nodes))
}

// eventsFile returns the file for one of several policies: events.jsonl becomes events-fifo.jsonl.
func eventsFile(file, policy string, policies int) string {
	if policies == 1 {
		return file
	}
	end := filepath.Ext(file)
	return strings.TrimSuffix(file, end) + "-" + policy + end
}

// simTable compares results: one row per policy.
func simTable(results []measure.Result) *table {
	t := &table{header: []string{
		"POLICY", "JOBS", "MAKESPAN", "JCT", "P50", "P95", "P99", "QUEUE", "SLOWDOWN", "RHO", "MAX", "SI", "JAIN", "LOSS", "TENANTS", "UTIL", "PLACED",
		"PREEMPTED", "DECIDED", "WALL",
	}}
	short := func(v float64) string { return strconv.FormatFloat(v, 'f', 2, 64) }
	percent := func(v float64) string { return strconv.FormatFloat(100*v, 'f', 1, 64) + "%" }
	for i := range results {
		r := &results[i]
		jobs := strconv.Itoa(r.Jobs)
		if r.Failed+r.Unfinished > 0 {
			jobs += fmt.Sprintf("/%d", r.Jobs+r.Failed+r.Unfinished)
		}
		t.rows = append(t.rows, []string{
			r.Policy, jobs, formatDuration(r.Makespan), formatDuration(r.JCTMean), formatDuration(r.JCTP50),
			formatDuration(r.JCTP95), formatDuration(r.JCTP99), formatDuration(r.QueueMean), short(r.SlowdownMean),
			short(r.RhoMean), short(r.RhoMax), strconv.Itoa(r.SIViolations), short(r.JainRho),
			percent(r.JobSharingLoss), percent(r.TenantSharingLoss), short(r.Utilization),
			short(r.PlacementScoreMean), strconv.Itoa(r.Preemptions), short(r.DecisionMillisP95) + "ms", formatDuration(r.Wall),
		})
	}
	return t
}

// sweepTable is simTable with a first column for the setting's value, if there is a setting.
func sweepTable(runs *SimRuns, rows [][]measure.Result) *table {
	var all []measure.Result
	var values []string
	for i, results := range rows {
		all = append(all, results...)
		for range results {
			if runs.Setting != "" {
				values = append(values, runs.Values[i])
			}
		}
	}
	t := simTable(all)
	if runs.Setting == "" {
		return t
	}
	t.header = append([]string{strings.ToUpper(runs.Setting)}, t.header...)
	for i := range t.rows {
		t.rows[i] = append([]string{values[i]}, t.rows[i]...)
	}
	return t
}
