package cli

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/outbid-dev/outbid/orchestrator/policy/registry"
	"github.com/outbid-dev/outbid/orchestrator/sim"
	"github.com/outbid-dev/outbid/orchestrator/sim/experiment"
)

// simOptions has the flags of `outbid sim`.
type simOptions struct {
	experiment.Options
	out    format
	events string
	apps   string
}

// simCommands simulate traces and replay ledgers.
type simCommands struct {
	*client
	edition Edition
}

func (sm *simCommands) simCommand() *cobra.Command {
	var o simOptions
	o.Registry = sm.edition.Policies
	o.ForkCosts = sim.ForkCosts{Upload: 3 * time.Second, Average: 3 * time.Second, Each: time.Second}
	var extension SimExtension
	if sm.edition.Sim != nil {
		extension = sm.edition.Sim()
	}
	cmd := &cobra.Command{
		Use:         "sim",
		Short:       "Run a trace on a simulated cluster under one policy or several, and compare",
		Long:        sm.simLong(extension.Help),
		Annotations: map[string]string{globalFlags: ""},
		Example: cmp.Or(extension.Examples, `  outbid sim --cluster v100:12/4,a100:8/8 --trace jobs.csv --policy themis,fifo
  outbid sim --cluster cluster.yaml --trace jobs.jsonl --tenants vision,speech --load 1.5 -o json
  outbid sim --cluster cluster.yaml --trace jobs.jsonl --policy fifo --events events.jsonl --no-times -o json`),
		Args:              exactArgs(),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			runs, err := extension.runs(o.Options)
			if err != nil {
				return err
			}
			return sm.sim(cmd.Context(), o, runs)
		},
	}
	sm.simFlags(cmd, &o)
	if extension.Flags != nil {
		extension.Flags(cmd, &o.Options)
	}
	return cmd
}

func (sm *simCommands) simLong(more string) string {
	return `Sim runs the same control loop and policies that "outbid serve" runs, on a virtual clock with simulated workers. The
same trace, policy and seed give the same results.

--cluster is a file, or TYPE:DEVICES/PER_NODE[/NODES_PER_RACK] separated by commas.

--trace takes Outbid's JSON lines and CSV and the formats of Philly, Helios, Alibaba, Gavel, Shockwave, Muri and
Tiresias, recognised by their content, compressed with gzip or not.

The policies are ` + wrap(strings.Join(sm.edition.Policies.Names(), ", "), 100) + `.
--option NAME=VALUE sets an option of every policy that has it, --option POLICY.NAME=VALUE of only that one.

--forks lets several forks train a job at once under policies that fork jobs: ` + strings.Join(sm.edition.Policies.Forking(), ", ") + `. Other
policies train each job with one process.

-o json prints one object per line for each policy; docs/reference/figures.md defines its fields.` + more
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

func (sm *simCommands) simFlags(cmd *cobra.Command, o *simOptions) {
	f := cmd.Flags()
	f.StringVar(&o.Cluster, "cluster", "", "`CLUSTER`: a file, or a short form such as v100:12/4")
	f.StringVar(&o.Workload.File, "trace", "", "`FILE` of jobs")
	f.StringSliceVar(&o.Policies, "policy", []string{registry.Default}, "`NAMES` of policies, separated by commas")
	f.StringArrayVar(&o.PolicyOptions, "option", nil, "`[POLICY.]NAME=VALUE` of the policies; see docs/reference/policies.md")
	f.Uint64Var(&o.Workload.Seed, "seed", 0, "`SEED` of everything random")
	f.DurationVar(&o.Round, "round", 0, "length of a round for the policies that work in rounds (default: their own)")
	f.DurationVar(&o.RestartDelay, "restart-delay", 10*time.Second, "how long a job takes to continue after its devices change")
	f.BoolVar(&o.Mixed, "mixed", false, "allow a job devices of several types; the slowest determines its speed")
	f.StringVar(&o.Forks, "forks", "", "number of processes that train a job at once under policies that fork jobs: auto, or `LEAST-MOST`, such as 2-5")
	f.DurationVar(&o.Mishaps.NodeFails, "node-fails", 0, "mean time until a node fails; 0 for never")
	f.DurationVar(&o.Mishaps.NodeBack, "node-back", 10*time.Minute, "mean time until a failed node is back")
	f.DurationVar(&o.Mishaps.JobFails, "job-fails", 0, "mean time until a running job fails; 0 for never")
	f.IntVar(&o.Workload.Jobs, "jobs", 0, "run only the first `N` jobs")
	f.StringVar(&o.Workload.Window, "window", "", "run the jobs of a period: `FROM:TO` or busiest:LENGTH, such as busiest:14d")
	f.StringSliceVar(&o.Workload.Tenants, "tenants", nil, "run the jobs of these `TENANTS`, separated by commas")
	f.Float64Var(&o.Workload.Load, "load", 1, "factor for the density of arrivals")
	f.Float64Var(&o.Workload.Length, "length", 1, "factor for the length of jobs")
	f.BoolVar(&o.Workload.Lenient, "lenient", false, "count and skip broken rows, and jobs that do not fit the cluster")
	f.IntVar(&o.Parallel, "parallel", 1, "how many policies run at once; decision times are best measured one by one")
	f.BoolVar(&o.Timeless, "no-times", false, "print 0 for results that vary between runs (times of decisions, memory)")
	f.StringVar(&o.events, "events", "", "write every event to this `FILE` as JSON lines; with several policies, one file for each")
	f.StringVar(&o.apps, "apps", "", "write each app's results under each policy to this `FILE` as JSON lines")
	outputFlag(cmd, &o.out)
	f.Lookup("output").Usage = "table, or json: one object per line for each policy"
	complete(cmd, "policy", sm.edition.Policies.Names()...)
	for _, name := range []string{"trace", "events", "apps"} {
		_ = cmd.MarkFlagFilename(name)
	}
}

// sim runs simulations, and prints the results.
func (sm *simCommands) sim(ctx context.Context, o simOptions, runs *SimRuns) error {
	if runs.Setting != "" && (o.events != "" || o.apps != "") {
		return badInput("several workloads run: give --events and --apps for one of them")
	}
	for _, p := range runs.Plans {
		for _, note := range p.Notes {
			sm.notef("%s", note)
		}
	}
	return sm.runSims(ctx, o, runs)
}
