package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/policy/registry"
	"github.com/outbid-dev/outbid/orchestrator/sim"
	"github.com/outbid-dev/outbid/orchestrator/sim/shape"
	"github.com/outbid-dev/outbid/orchestrator/sim/workload"
	"github.com/outbid-dev/outbid/orchestrator/trace"
)

// simOptions are the flags of `outbid sim`.
type simOptions struct {
	cluster     string
	request     workload.Request
	throughputs string
	policies    []string
	options     []string
	round       time.Duration
	delay       time.Duration
	delayGiven  bool
	slowdown    []float64
	mishaps     sim.Mishaps
	parallel    int
	out         format
	timeless    bool
	plots       string
	events      string
	apps        string
	save        string
	sweep       string
}

func (a *app) simCommand() *cobra.Command {
	var o simOptions
	cmd := &cobra.Command{
		Use:   "sim",
		Short: "Run a trace on a simulated cluster under one policy or several, and compare",
		Long:  simLong(),
		Example: `  outbid sim --cluster gpu:16/4 --made themis-1 --made-option apps=10 --policy fifo,drf
  outbid sim --cluster v100:12/4,p100:12/4,k80:12/4 --trace jobs.trace --throughputs throughputs.json --policy fifo -o json
  outbid sim --cluster astraea-philly --trace philly.csv.gz --window busiest:14d --policy fifo --plots figures
  outbid sim --cluster themis --made themis-1 --policy drf,tiresias --sweep made.contention=1,2,4 --plots figures
  outbid sim --cluster cluster.yaml --trace jobs.jsonl --policy fifo --events events.jsonl --no-times -o json`,
		Args:              exactly(),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.delayGiven = cmd.Flags().Changed("restart-delay")
			sweep, plans, err := a.planSweep(o)
			if err != nil {
				return err
			}
			return a.runSweep(cmd.Context(), sweep, plans)
		},
	}
	simFlags(cmd, &o)
	return cmd
}

func simLong() string {
	return `Sim runs the same control loop and policies that "outbid serve" runs, on a virtual clock with simulated workers. The
same trace, policy and seed give the same results.

--cluster is a file, TYPE:DEVICES/PER_NODE[/NODES_PER_RACK] separated by commas, or the cluster of a paper:
` + wrap(strings.Join(shape.Names(), ", "), 110) + `.

--trace takes Outbid's JSON lines and CSV and the formats of Philly, Helios, Alibaba, Gavel, Shockwave, Muri and
Tiresias, known by their content, compressed with gzip or not. --made makes a workload with a paper's figures, some of
them from --trace:

` + makerLines() + `
The policies are ` + wrap(strings.Join(registry.Names(), ", "), 100) + `.
--option NAME=VALUE sets an option of every policy that has it, --option POLICY.NAME=VALUE of that one alone.

-o json prints one object a line for each policy; its fields are under JSON in docs/cli.md, and their definitions in
docs/scheduling.md.`
}

func makerLines() string {
	var b strings.Builder
	for _, m := range workload.Makers() {
		fmt.Fprintf(&b, "- %s: %s\n", m.Name, m.Help)
	}
	return b.String()
}

// wrap breaks a list at commas.
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
	f.StringVar(&o.cluster, "cluster", "", "`CLUSTER`: a file, a short form such as v100:12/4, or a paper's name")
	f.StringVar(&o.request.File, "trace", "", "`FILE` of jobs")
	f.StringVar(&o.request.Made, "made", "", "`NAME` of a workload to make")
	f.StringArrayVar(&o.request.Options, "made-option", nil, "`NAME=VALUE` of what --made makes; given wrongly it says which there are")
	f.StringSliceVar(&o.policies, "policy", []string{registry.Default}, "`NAMES` of policies, separated by commas")
	f.StringArrayVar(&o.options, "option", nil, "`[POLICY.]NAME=VALUE` of the policies; see docs/scheduling.md")
	f.Uint64Var(&o.request.Seed, "seed", 0, "`SEED` of everything random")
	f.StringVar(&o.throughputs, "throughputs", "", "`FILE` of measured steps per second, as Gavel's tables")
	f.DurationVar(&o.round, "round", 0, "length of a round for the policies that work in rounds (default: their own)")
	f.DurationVar(&o.delay, "restart-delay", 10*time.Second, "what it takes a job to go on after its devices changed "+
		"(traces of Gavel's with --throughputs: 0s, as in its simulator)")
	f.Float64SliceVar(&o.slowdown, "slowdown", nil, "slowdown of jobs by `SPREAD`: slot,machine,rack,cluster, such as "+
		"1,1,1.1,1.3 (default: the workload's; with --throughputs none)")
	f.DurationVar(&o.mishaps.NodeFails, "node-fails", 0, "mean time until a node fails; 0 for never")
	f.DurationVar(&o.mishaps.NodeBack, "node-back", 10*time.Minute, "mean time until it is back")
	f.DurationVar(&o.mishaps.JobFails, "job-fails", 0, "mean time until a running job fails; 0 for never")
	f.IntVar(&o.request.Jobs, "jobs", 0, "run only the first `N` jobs")
	f.StringVar(&o.request.Window, "window", "", "run the jobs of a time: `FROM:TO` or busiest:LENGTH, such as busiest:14d")
	f.StringSliceVar(&o.request.Tenants, "tenants", nil, "run the jobs of these `TENANTS`, separated by commas")
	f.Float64Var(&o.request.Load, "load", 1, "make arrivals so many times as dense")
	f.Float64Var(&o.request.Length, "length", 1, "make jobs so many times as long")
	f.BoolVar(&o.request.Lenient, "lenient", false, "count and skip broken rows, and jobs that do not fit the cluster")
	f.StringVar(&o.request.JobTable, "job-table", "", "`FILE` of Alibaba's pai_job_table that belongs to a pai_task_table")
	f.IntVar(&o.parallel, "parallel", 1, "how many policies run at once; decision times are best measured one by one")
	f.BoolVar(&o.timeless, "no-times", false, "leave what differs from run to run (times of decisions, memory) at 0")
	f.StringVar(&o.plots, "plots", "", "draw figures into this `DIR`")
	f.StringVar(&o.events, "events", "", "write every event to this `FILE` as JSON lines; with several policies one file each")
	f.StringVar(&o.apps, "apps", "", "write how each app fared under each policy to this `FILE` as JSON lines")
	f.StringVar(&o.save, "save-trace", "", "write the trace that is run to this `FILE` as JSON lines")
	f.StringVar(&o.sweep, "sweep", "", "run all at each of several values: `SETTING=VALUE,VALUE,…` of "+sweepSettings)
	outputFlag(cmd, &o.out)
	f.Lookup("output").Usage = "table, or json: one object a line for each policy"
	complete(cmd, "policy", registry.Names()...)
	complete(cmd, "made", workload.Names()...)
	for _, name := range []string{"trace", "throughputs", "events", "apps", "save-trace", "job-table"} {
		_ = cmd.MarkFlagFilename(name)
	}
	_ = cmd.MarkFlagDirname("plots")
}

// simPlan is what is to be run, checked.
type simPlan struct {
	simOptions
	nodes  []cluster.Node
	jobs   *trace.Trace
	table  *trace.Throughputs
	makers []policyMaker
}

// policyMaker makes a policy anew.
type policyMaker struct {
	name string
	// options are all that it has, for the ledger.
	options map[string]string
	make    func() (policy.Policy, error)
}

// planSim checks what was asked for, all of it before anything runs.
func (a *app) planSim(o simOptions) (*simPlan, error) {
	p := &simPlan{simOptions: o}
	switch {
	case o.cluster == "":
		return nil, badInput("--cluster is missing: want a file, a short form such as v100:12/4, or one of %s",
			strings.Join(shape.Names(), ", "))
	case o.round < 0:
		return nil, badInput("--round %s: want more than 0", o.round)
	case o.delay < 0:
		return nil, badInput("--restart-delay %s: want 0 or more", o.delay)
	case o.mishaps.NodeFails < 0 || o.mishaps.NodeBack <= 0 || o.mishaps.JobFails < 0:
		return nil, badInput("--node-fails %s, --node-back %s, --job-fails %s: want 0 or more, and --node-back above 0",
			o.mishaps.NodeFails, o.mishaps.NodeBack, o.mishaps.JobFails)
	case o.slowdown != nil && (len(o.slowdown) != 4 || slices.Min(o.slowdown) < 1):
		return nil, badInput("--slowdown %s: want four numbers from 1 on, such as 1,1,1.1,1.3",
			strings.Trim(strings.ReplaceAll(fmt.Sprint(o.slowdown), " ", ","), "[]"))
	case o.parallel < 1:
		return nil, badInput("--parallel %d: want 1 or more", o.parallel)
	case !(o.request.Load > 0 && o.request.Length > 0):
		return nil, badInput("--load %g, --length %g: want both above 0", o.request.Load, o.request.Length)
	}
	var err error
	if p.nodes, err = shape.Open(o.cluster); err != nil {
		return nil, badInput("--cluster: %w", err)
	}
	if p.makers, err = policyMakers(o.policies, o.options, o.round, o.request.Seed, false); err != nil {
		return nil, err
	}
	if o.throughputs != "" {
		if p.table, err = trace.OpenThroughputs(o.throughputs); err != nil {
			return nil, badInput("--throughputs: %w", err)
		}
		p.request.Throughputs = p.table
	}
	if p.jobs, err = p.request.Trace(); errors.Is(err, workload.ErrNothing) {
		return nil, badInput("%w", err)
	} else if err != nil {
		return nil, badInput("the workload: %w", err)
	}
	a.reportTrace(p.jobs)
	if err := a.gavelRules(p); err != nil {
		return nil, err
	}
	return p, a.leaveOutMisfits(p)
}

// gavelRules has a trace in Gavel's format with its throughputs run as Gavel's simulator runs it, unless the user says
// otherwise: a job whose devices change goes on at once, and Gavel's policies count whole steps in each round.
func (a *app) gavelRules(p *simPlan) error {
	if p.table == nil || p.jobs.Report.Format != "gavel trace" {
		return nil
	}
	if !p.delayGiven {
		p.delay = 0
	}
	makers, err := policyMakers(p.policies, p.options, p.round, p.request.Seed, true)
	if err != nil {
		return err
	}
	p.makers = makers
	a.notef("by the rules of Gavel's simulator, as the trace is one of Gavel's: a restart takes %s, its policies count whole steps, fifo is its own",
		p.delay)
	return nil
}

// reportTrace says what reading left out.
func (a *app) reportTrace(t *trace.Trace) {
	if r := t.Report; r.Broken > 0 {
		a.notef("%s", r.String())
		a.notef("the first broken row: %s", r.Errors[0].Error())
	}
}

// leaveOutMisfits refuses jobs that no device type has enough devices for, or leaves them out.
func (a *app) leaveOutMisfits(p *simPlan) error {
	types := map[string]int{}
	for _, n := range p.nodes {
		for _, d := range n.Devices {
			types[d.Type]++
		}
	}
	fits := func(j *trace.Job) bool {
		for kind, n := range types {
			if n >= j.MinGPUs && (len(j.GPUTypes) == 0 || slices.Contains(j.GPUTypes, kind)) {
				return true
			}
		}
		return false
	}
	kept := p.jobs.Filter(fits)
	left := len(p.jobs.Jobs) - len(kept.Jobs)
	if left == 0 {
		return nil
	}
	first := slices.IndexFunc(p.jobs.Jobs, func(j trace.Job) bool { return !fits(&j) })
	j := &p.jobs.Jobs[first]
	what := fmt.Sprintf("job %s wants %d devices", j.ID, j.MinGPUs)
	if len(j.GPUTypes) > 0 {
		what += " of type " + strings.Join(j.GPUTypes, " or ")
	}
	if !p.request.Lenient {
		return badInput("%s; the cluster has %s: want a larger one, or --lenient, which leaves out %d jobs", what,
			shape.Describe(p.nodes), left)
	}
	if len(kept.Jobs) == 0 {
		return badInput("none of the %d jobs fits the cluster: %s", left, what)
	}
	a.notef("%d jobs do not fit the cluster and are left out, the first: %s", left, what)
	p.jobs = kept
	return nil
}

// simulate is what runs one policy; the app's own field, so that tests can do without the engine.
type simulate func(ctx context.Context, r simRequest) (simResult, error)
