package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/outbid-dev/outbid/orchestrator/policy/registry"
	"github.com/outbid-dev/outbid/orchestrator/sim"
	"github.com/outbid-dev/outbid/orchestrator/sim/clusterspec"
	"github.com/outbid-dev/outbid/orchestrator/sim/experiment"
	"github.com/outbid-dev/outbid/orchestrator/sim/workload"
)

// simOptions has the flags of `outbid sim`.
type simOptions struct {
	experiment.Options
	out    format
	plots  string
	events string
	apps   string
	save   string
	sweep  string
}

func (a *app) simCommand() *cobra.Command {
	var o simOptions
	o.ForkCosts = sim.ForkCosts{Upload: 3 * time.Second, Average: 3 * time.Second, Each: time.Second}
	cmd := &cobra.Command{
		Use:   "sim",
		Short: "Run a trace on a simulated cluster under one policy or several, and compare",
		Long:  simLong(),
		Example: `  outbid sim --cluster gpu:16/4 --made themis-1 --made-option apps=10 --policy fifo,drf
  outbid sim --cluster v100:12/4,p100:12/4,k80:12/4 --trace jobs.trace --throughputs throughputs.json --policy fifo -o json
  outbid sim --cluster astraea-philly --trace philly.csv.gz --window busiest:14d --policy fifo --plots figures
  outbid sim --cluster themis --made themis-1 --policy drf,tiresias --sweep made.contention=1,2,4 --plots figures
  outbid sim --cluster hadare-aws --made hadare --made-option mix=M-5 --policy hadar,hadare --round 90s
  outbid sim --cluster cluster.yaml --trace jobs.jsonl --policy fifo --events events.jsonl --no-times -o json`,
		Args:              exactArgs(),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.RestartDelayGiven = cmd.Flags().Changed("restart-delay")
			o.Charts = o.plots != ""
			return a.sim(cmd.Context(), o)
		},
	}
	simFlags(cmd, &o)
	return cmd
}

func simLong() string {
	return `Sim runs the same control loop and policies that "outbid serve" runs, on a virtual clock with simulated workers. The
same trace, policy and seed give the same results.

--cluster is a file, TYPE:DEVICES/PER_NODE[/NODES_PER_RACK] separated by commas, or the cluster of a paper:
` + wrap(strings.Join(clusterspec.Names(), ", "), 110) + `.

--trace takes Outbid's JSON lines and CSV and the formats of Philly, Helios, Alibaba, Gavel, Shockwave, Muri and
Tiresias, recognised by their content, compressed with gzip or not. --made generates a workload from a paper's figures,
sometimes with --trace:

` + makerLines() + `
The policies are ` + wrap(strings.Join(registry.Names(), ", "), 100) + `.
--option NAME=VALUE sets an option of every policy that has it, --option POLICY.NAME=VALUE of only that one.

Jobs whose workload says so (hadare's), or all with --forks, may be trained by several forks at once under policies that
fork jobs: ` + strings.Join(registry.Forking(), ", ") + `. Other policies train each job with one process. --fork-costs sets what
forks take in addition to training.

-o json prints one object per line for each policy; docs/reference/cli.md lists its fields under JSON, and
docs/reference/figures.md has their definitions.`
}

func makerLines() string {
	var b strings.Builder
	for _, m := range workload.Makers() {
		fmt.Fprintf(&b, "- %s: %s\n", m.Name, m.Help)
	}
	return b.String()
}

// wrap breaks a list at spaces.
func wrap(text string, width int) string {
	var b strings.Builder
	line := 0
	for i, word := range strings.Split(text, " ") {
		switch {
		case i == 0:
		case line+1+len(word) > width:
			b.WriteByte('\n')
			line = 0
		default:
			b.WriteByte(' ')
			line++
		}
		b.WriteString(word)
		line += len(word)
	}
	return b.String()
}

func simFlags(cmd *cobra.Command, o *simOptions) {
	f := cmd.Flags()
	f.StringVar(&o.Cluster, "cluster", "", "`CLUSTER`: a file, a short form such as v100:12/4, or a paper's name")
	f.StringVar(&o.Workload.File, "trace", "", "`FILE` of jobs")
	f.StringVar(&o.Workload.Made, "made", "", "`NAME` of a workload to generate")
	f.StringArrayVar(&o.Workload.Options, "made-option", nil, "`NAME=VALUE` for --made; a wrong name lists all options")
	f.StringSliceVar(&o.Policies, "policy", []string{registry.Default}, "`NAMES` of policies, separated by commas")
	f.StringArrayVar(&o.PolicyOptions, "option", nil, "`[POLICY.]NAME=VALUE` of the policies; see docs/reference/policies.md")
	f.Uint64Var(&o.Workload.Seed, "seed", 0, "`SEED` of everything random")
	f.StringVar(&o.Throughputs, "throughputs", "", "`FILE` of measured steps per second, in the format of Gavel's tables")
	f.DurationVar(&o.Round, "round", 0, "length of a round for the policies that work in rounds (default: their own)")
	f.DurationVar(&o.RestartDelay, "restart-delay", 10*time.Second, "how long a job takes to continue after its devices change "+
		"(Gavel's traces with --throughputs: 0s, as in its simulator)")
	f.BoolVar(&o.Mixed, "mixed", false, "allow a job devices of several types; the slowest determines its speed")
	f.StringVar(&o.Forks, "forks", "", "number of processes that train a job at once under policies that fork jobs: auto, or `LEAST-MOST`, such as 2-5")
	f.Var(&forkCosts{&o.ForkCosts}, "fork-costs", "durations for a fork to save, for an average, and for each fork that it averages: `SAVE,AVERAGE,EACH`")
	f.Float64SliceVar(&o.Slowdown, "slowdown", nil, "slowdown of jobs by `SPREAD`: slot,machine,rack,cluster, such as "+
		"1,1,1.1,1.3 (default: the workload's; with --throughputs none)")
	f.DurationVar(&o.Mishaps.NodeFails, "node-fails", 0, "mean time until a node fails; 0 for never")
	f.DurationVar(&o.Mishaps.NodeBack, "node-back", 10*time.Minute, "mean time until a failed node is back")
	f.DurationVar(&o.Mishaps.JobFails, "job-fails", 0, "mean time until a running job fails; 0 for never")
	f.IntVar(&o.Workload.Jobs, "jobs", 0, "run only the first `N` jobs")
	f.StringVar(&o.Workload.Window, "window", "", "run the jobs of a period: `FROM:TO` or busiest:LENGTH, such as busiest:14d")
	f.StringSliceVar(&o.Workload.Tenants, "tenants", nil, "run the jobs of these `TENANTS`, separated by commas")
	f.Float64Var(&o.Workload.Load, "load", 1, "factor for the density of arrivals")
	f.Float64Var(&o.Workload.Length, "length", 1, "factor for the length of jobs")
	f.BoolVar(&o.Workload.Lenient, "lenient", false, "count and skip broken rows, and jobs that do not fit the cluster")
	f.StringVar(&o.Workload.JobTable, "job-table", "", "`FILE` of Alibaba's pai_job_table that belongs to a pai_task_table")
	f.IntVar(&o.Parallel, "parallel", 1, "how many policies run at once; decision times are best measured one by one")
	f.BoolVar(&o.Timeless, "no-times", false, "print 0 for results that vary between runs (times of decisions, memory)")
	f.StringVar(&o.plots, "plots", "", "draw figures into this `DIR`")
	f.StringVar(&o.events, "events", "", "write every event to this `FILE` as JSON lines; with several policies, one file for each")
	f.StringVar(&o.apps, "apps", "", "write each app's results under each policy to this `FILE` as JSON lines")
	f.BoolVar(&o.Alone, "alone", false, "also simulate every app alone on its share of the cluster, and compare")
	f.StringVar(&o.save, "save-trace", "", "write the trace of this run to this `FILE` as JSON lines")
	f.StringVar(&o.sweep, "sweep", "", "run everything for each of several values: `SETTING=VALUE,VALUE,…` of "+experiment.SweepSettings)
	outputFlag(cmd, &o.out)
	f.Lookup("output").Usage = "table, or json: one object per line for each policy"
	complete(cmd, "policy", registry.Names()...)
	complete(cmd, "made", workload.Names()...)
	for _, name := range []string{"trace", "throughputs", "events", "apps", "save-trace", "job-table"} {
		_ = cmd.MarkFlagFilename(name)
	}
	_ = cmd.MarkFlagDirname("plots")
}

// forkCosts parses the costs of a fork slot.
type forkCosts struct{ to *sim.ForkCosts }

// Set implements pflag.Value.
func (f *forkCosts) Set(text string) error {
	parts := strings.Split(text, ",")
	fields := []*time.Duration{&f.to.Upload, &f.to.Average, &f.to.Each}
	if len(parts) != len(fields) {
		return errors.New("want three durations, such as 3s,3s,1s")
	}
	for i, part := range parts {
		d, err := time.ParseDuration(part)
		if err != nil {
			return err
		}
		*fields[i] = d
	}
	return nil
}

// Type implements pflag.Value.
func (f *forkCosts) Type() string { return "durations" }

// String implements pflag.Value.
func (f *forkCosts) String() string {
	if f.to == nil {
		return ""
	}
	return fmt.Sprintf("%s,%s,%s", f.to.Upload, f.to.Average, f.to.Each)
}

// sim checks the options, runs the simulation, and prints and draws the results.
func (a *app) sim(ctx context.Context, o simOptions) error {
	plans, sweep, err := planSim(o)
	if err != nil {
		return err
	}
	for _, p := range plans {
		for _, note := range p.Notes {
			a.notef("%s", note)
		}
	}
	return a.runSims(ctx, o, sweep, plans)
}

// planSim checks the options: at every value of the sweep, or once without a sweep.
func planSim(o simOptions) ([]*experiment.Plan, *experiment.Sweep, error) {
	if o.sweep == "" {
		p, err := experiment.NewPlan(o.Options)
		return []*experiment.Plan{p}, nil, err
	}
	s, err := experiment.ParseSweep(o.sweep)
	if err != nil {
		return nil, nil, err
	}
	if o.events != "" || o.apps != "" || o.save != "" {
		return nil, nil, badInput("--sweep runs several workloads: give --events, --apps and --save-trace for one of them")
	}
	plans, err := s.Plans(o.Options)
	return plans, &s, err
}
