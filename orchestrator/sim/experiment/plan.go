package experiment

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/policy/registry"
	"github.com/outbid-dev/outbid/orchestrator/sim"
	"github.com/outbid-dev/outbid/orchestrator/sim/clusterspec"
	"github.com/outbid-dev/outbid/orchestrator/sim/measure"
	"github.com/outbid-dev/outbid/orchestrator/sim/workload"
	"github.com/outbid-dev/outbid/orchestrator/spec/terms"
	"github.com/outbid-dev/outbid/orchestrator/trace"
)

// Options are the options of an experiment.
type Options struct {
	// Registry has the policies that there are.
	Registry registry.Registry
	// Cluster is a file, a short form such as v100:12/4, or a name in Clusters.
	Cluster  string
	Clusters clusterspec.Named
	// Workload selects the trace. Its Throughputs are read from the file Throughputs.
	Workload    workload.Request
	Throughputs string
	// Policies are names; their options are [POLICY.]NAME=VALUE.
	Policies      []string
	PolicyOptions []string
	// Round is the length of a round for policies with rounds; 0 for their default.
	Round time.Duration
	// RestartDelay is the time until a job trains again after its devices changed.
	RestartDelay time.Duration
	// Slowdown is the slowdown of jobs by spread, four numbers, or nil for the workload's own.
	Slowdown []float64
	Mishaps  sim.Mishaps
	// Mixed allows the devices of a job to be of several types.
	Mixed bool
	// Forks is the number of processes that may train a job, under policies that fork jobs, unless the job sets it:
	// auto, or the least and the most, such as 2-5. ForkCosts are the additional costs of their rounds.
	Forks     string
	ForkCosts sim.ForkCosts
	// Parallel is the number of policies to run at once.
	Parallel int
	// Adjust changes the plan to the rules of its trace, or is nil. It is called when the trace has been read.
	Adjust func(*Plan) error
	// Compare returns a function that adds further figures to each result of a plan, or is nil.
	Compare func(*Plan, Engine) Comparison
	// Charts keeps the leases for Gantt charts.
	Charts bool
	// Timeless sets values that differ from run to run (decision times, memory) to 0.
	Timeless bool
}

// Comparison adds further figures to a result.
type Comparison func(context.Context, *measure.Result) error

// Plan is an experiment that was checked and can run.
type Plan struct {
	Options
	Nodes []cluster.Node
	Trace *trace.Trace
	// Table has measured throughputs, or is nil.
	Table     *trace.Throughputs
	Factories []PolicyFactory
	// Notes are lines about what was skipped or assumed.
	Notes []string
}

// NewPlan checks all options before anything runs. A problem with them is an InputError.
func NewPlan(o Options) (*Plan, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	p := &Plan{Options: o}
	var err error
	if p.Nodes, err = o.Clusters.Open(o.Cluster); err != nil {
		return nil, BadInput("--cluster: %w", err)
	}
	if p.Factories, err = p.Options.Factories(nil); err != nil {
		return nil, err
	}
	if o.Throughputs != "" {
		if p.Table, err = trace.OpenThroughputs(o.Throughputs); err != nil {
			return nil, BadInput("--throughputs: %w", err)
		}
		p.Workload.Throughputs = p.Table
	}
	if p.Trace, err = p.Workload.Trace(); errors.Is(err, workload.ErrNothing) {
		return nil, BadInput("%w", err)
	} else if err != nil {
		return nil, BadInput("the workload: %w", err)
	}
	p.noteReport()
	if p.Adjust != nil {
		if err := p.Adjust(p); err != nil {
			return nil, err
		}
	}
	return p, p.leaveOutMisfits()
}

// check checks the options that need no file.
func (o *Options) check() error {
	switch {
	case o.Cluster == "":
		return BadInput("--cluster is missing: want %s", o.Clusters.Choices())
	case o.Round < 0:
		return BadInput("--round %s: want more than 0", o.Round)
	case o.RestartDelay < 0:
		return BadInput("--restart-delay %s: want 0 or more", o.RestartDelay)
	case o.Mishaps.NodeFails < 0 || o.Mishaps.NodeBack <= 0 || o.Mishaps.JobFails < 0:
		return BadInput("--node-fails %s, --node-back %s, --job-fails %s: want 0 or more, and --node-back above 0",
			o.Mishaps.NodeFails, o.Mishaps.NodeBack, o.Mishaps.JobFails)
	case o.Slowdown != nil && (len(o.Slowdown) != 4 || slices.Min(o.Slowdown) < 1):
		return BadInput("--slowdown %s: want four numbers from 1 on, such as 1,1,1.1,1.3",
			strings.Trim(strings.ReplaceAll(fmt.Sprint(o.Slowdown), " ", ","), "[]"))
	case o.Parallel < 1:
		return BadInput("--parallel %d: want 1 or more", o.Parallel)
	case o.ForkCosts.Upload < 0 || o.ForkCosts.Average < 0 || o.ForkCosts.Each < 0:
		return BadInput("--fork-costs %s,%s,%s: want 0 or more", o.ForkCosts.Upload, o.ForkCosts.Average, o.ForkCosts.Each)
	case !(o.Workload.Load > 0 && o.Workload.Length > 0):
		return BadInput("--load %g, --length %g: want both above 0", o.Workload.Load, o.Workload.Length)
	}
	if _, _, err := terms.ParseForks(o.Forks); err != nil {
		return BadInput("--forks: %w", err)
	}
	return nil
}

// Factories checks the policies and their options. preset may add options, or is nil.
func (o *Options) Factories(preset Preset) ([]PolicyFactory, error) {
	return PolicyFactories(o.Registry, o.Policies, o.PolicyOptions, o.Round, o.Workload.Seed, preset)
}

// Note adds a line for the user.
func (p *Plan) Note(format string, args ...any) {
	p.Notes = append(p.Notes, fmt.Sprintf(format, args...))
}

// noteReport notes the skipped rows, and properties of the trace that the simulation does not reproduce.
func (p *Plan) noteReport() {
	if n := p.Trace.Report.Rescaled; n > 0 {
		p.Note("%d jobs of the trace change their batch size while they run; here their speed is constant", n)
	}
	if r := p.Trace.Report; r.Broken > 0 {
		p.Note("%s", r.String())
		p.Note("the first broken row: %s", r.Errors[0].Error())
	}
}

// leaveOutMisfits rejects jobs for which no device type has enough devices, or skips them if the workload is lenient.
func (p *Plan) leaveOutMisfits() error {
	types := map[string]int{}
	for _, n := range p.Nodes {
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
	kept := p.Trace.Filter(fits)
	left := len(p.Trace.Jobs) - len(kept.Jobs)
	if left == 0 {
		return nil
	}
	first := slices.IndexFunc(p.Trace.Jobs, func(j trace.Job) bool { return !fits(&j) })
	j := &p.Trace.Jobs[first]
	what := fmt.Sprintf("job %s wants %d devices", j.ID, j.MinGPUs)
	if len(j.GPUTypes) > 0 {
		what += " of type " + strings.Join(j.GPUTypes, " or ")
	}
	if !p.Workload.Lenient {
		return BadInput("%s; the cluster has %s: want a larger one, or --lenient, which leaves out %d jobs", what,
			clusterspec.Describe(p.Nodes), left)
	}
	if len(kept.Jobs) == 0 {
		return BadInput("none of the %d jobs fits the cluster: %s", left, what)
	}
	p.Note("%d jobs do not fit the cluster and are left out, the first: %s", left, what)
	p.Trace = kept
	return nil
}

// Devices returns the number of devices in the cluster.
func (p *Plan) Devices() int {
	n := 0
	for i := range p.Nodes {
		n += len(p.Nodes[i].Devices)
	}
	return n
}
