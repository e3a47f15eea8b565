package labcli

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/outbid-dev/outbid/orchestrator/cli"
	"github.com/outbid-dev/outbid/orchestrator/lab/compare"
	"github.com/outbid-dev/outbid/orchestrator/lab/papers"
	"github.com/outbid-dev/outbid/orchestrator/sim/experiment"
	"github.com/outbid-dev/outbid/orchestrator/sim/measure"
)

// simFlags has the flags that the lab adds to `sim`.
type simFlags struct {
	cmd                *cobra.Command
	made               papers.Workload
	alone              bool
	plots, save, sweep string
}

const simExamples = `  outbid-lab sim --cluster gpu:16/4 --made themis-1 --made-option apps=10 --policy fifo,drf
  outbid-lab sim --cluster v100:12/4,p100:12/4,k80:12/4 --trace jobs.trace --throughputs throughputs.json --policy fifo -o json
  outbid-lab sim --cluster astraea-philly --trace philly.csv.gz --window busiest:14d --policy fifo --plots figures
  outbid-lab sim --cluster themis --made themis-1 --policy drf,tiresias --sweep made.contention=1,2,4 --plots figures
  outbid-lab sim --cluster hadare-aws --made hadare --made-option mix=M-5 --policy hadar,hadare --round 90s`

// simExtension returns the lab's extension of `sim`.
func simExtension() cli.SimExtension {
	var f simFlags
	return cli.SimExtension{Help: simHelp(), Examples: simExamples, Flags: f.add, Runs: f.runs}
}

func simHelp() string {
	var b strings.Builder
	fmt.Fprintf(&b, `

--cluster may also be the cluster of a paper:
%s.

--made generates a workload from a paper's figures, sometimes with --trace:

`, strings.Join(slices.Sorted(maps.Keys(papers.Clusters())), ", "))
	for _, m := range papers.Makers() {
		fmt.Fprintf(&b, "- %s: %s\n", m.Name, m.Help)
	}
	b.WriteString(`
Jobs whose workload says so (hadare's) may be forked without --forks. --fork-costs sets what forks take in addition to
training.`)
	return b.String()
}

// add adds the flags to the command.
func (s *simFlags) add(cmd *cobra.Command, o *experiment.Options) {
	s.cmd = cmd
	f := cmd.Flags()
	f.StringVar(&s.made.Name, "made", "", "`NAME` of a workload to generate")
	f.StringArrayVar(&s.made.Options, "made-option", nil, "`NAME=VALUE` for --made; a wrong name lists all options")
	f.StringVar(&o.Throughputs, "throughputs", "", "`FILE` of measured steps per second, in the format of Gavel's tables; Gavel's traces then "+
		"run by the rules of its simulator")
	f.Var(&forkCosts{&o.ForkCosts}, "fork-costs", "durations for a fork to save, for an average, and for each fork that it averages: `SAVE,AVERAGE,EACH`")
	f.Float64SliceVar(&o.Slowdown, "slowdown", nil, "slowdown of jobs by `SPREAD`: slot,machine,rack,cluster, such as "+
		"1,1,1.1,1.3 (default: that of the workload; with --throughputs none)")
	f.StringVar(&o.Workload.JobTable, "job-table", "", "`FILE` of Alibaba's pai_job_table that belongs to a pai_task_table")
	f.StringVar(&s.plots, "plots", "", "draw figures into this `DIR`")
	f.BoolVar(&s.alone, "alone", false, "also simulate every app alone on its share of the cluster, and compare")
	f.StringVar(&s.save, "save-trace", "", "write the trace of this run to this `FILE` as JSON lines")
	f.StringVar(&s.sweep, "sweep", "", "run everything for each of several values: `SETTING=VALUE,VALUE,…` of "+compare.SweepSettings)
	_ = cmd.RegisterFlagCompletionFunc("made", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return papers.Names(), cobra.ShellCompDirectiveNoFileComp
	})
	for _, name := range []string{"throughputs", "save-trace", "job-table"} {
		_ = cmd.MarkFlagFilename(name)
	}
	_ = cmd.MarkFlagDirname("plots")
}

// runs checks the options: at every value of the sweep, or once without a sweep.
func (s *simFlags) runs(o experiment.Options) (*cli.SimRuns, error) {
	o.Charts = s.plots != ""
	all := compare.Options{
		Options: o, Made: s.made, Alone: s.alone, RestartDelayGiven: s.cmd.Flags().Changed("restart-delay"),
	}
	if s.sweep != "" {
		return s.sweeps(all)
	}
	p, err := compare.NewPlan(all)
	if err != nil {
		return nil, err
	}
	runs := &cli.SimRuns{Plans: []*experiment.Plan{p}}
	if s.save != "" {
		runs.Before = s.saveTrace
	}
	if s.plots != "" {
		runs.After = func(rows [][]measure.Result) ([]string, error) { return compare.Draw(p, s.plots, rows[0]) }
	}
	return runs, nil
}

// sweeps returns a plan for each value of the sweep.
func (s *simFlags) sweeps(o compare.Options) (*cli.SimRuns, error) {
	if s.save != "" {
		return nil, experiment.BadInput("--sweep runs several workloads: give --save-trace for one of them")
	}
	sweep, err := compare.ParseSweep(s.sweep)
	if err != nil {
		return nil, err
	}
	plans, err := sweep.Plans(o)
	if err != nil {
		return nil, err
	}
	runs := &cli.SimRuns{Setting: sweep.Setting, Values: sweep.Values, Plans: plans}
	if s.plots != "" {
		runs.After = func(rows [][]measure.Result) ([]string, error) { return sweep.Draw(plans[0], s.plots, rows) }
	}
	return runs, nil
}

// saveTrace writes the trace of a plan.
func (s *simFlags) saveTrace(p *experiment.Plan) (err error) {
	f, err := os.Create(s.save)
	if err != nil {
		return experiment.BadInput("cannot write %s: %w", s.save, err)
	}
	defer func() {
		if closed := f.Close(); err == nil {
			err = closed
		}
	}()
	return p.Trace.WriteJSON(f)
}
