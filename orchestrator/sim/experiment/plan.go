package experiment

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/sim"
	"github.com/outbid-dev/outbid/orchestrator/sim/clusterspec"
	"github.com/outbid-dev/outbid/orchestrator/sim/workload"
	"github.com/outbid-dev/outbid/orchestrator/spec/terms"
	"github.com/outbid-dev/outbid/orchestrator/trace"
)

// Options are what is asked for.
type Options struct {
	// Cluster is a file, a short form such as v100:12/4, or a paper's name.
	Cluster string
	// Workload is the trace. Its Throughputs are read from the file Throughputs.
	Workload    workload.Request
	Throughputs string
	// Policies by name, and their options as [POLICY.]NAME=VALUE.
	Policies      []string
	PolicyOptions []string
	// Round is the length of a round for the policies that work in rounds; 0 for their own.
	Round time.Duration
	// RestartDelay is what it takes a job to go on after its devices changed. RestartDelayGiven says that the user chose
	// it: Gavel's traces run without one otherwise.
	RestartDelay      time.Duration
	RestartDelayGiven bool
	// Slowdown of jobs by spread, four numbers; nil for the workload's own.
	Slowdown []float64
	Mishaps  sim.Mishaps
	// Mixed lets the devices of a job be of several types.
	Mixed bool
	// Forks is how many processes may train a job at once that does not say itself, under policies that fork jobs: auto, or the
	// least and the most, such as 2-5. ForkCosts is what their rounds take beside training.
	Forks     string
	ForkCosts sim.ForkCosts
	// Parallel is how many policies run at once.
	Parallel int
	// Alone simulates every app once more, alone on its share of the cluster.
	Alone bool
	// Charts keeps the leases that Gantt charts are drawn from.
	Charts bool
	// Timeless leaves what differs from run to run (times of decisions, memory) at 0.
	Timeless bool
}

// Plan is an experiment that was checked and can run.
type Plan struct {
	Options
	Nodes []cluster.Node
	Trace *trace.Trace
	// Table of measured throughputs; nil if there is none.
	Table     *trace.Throughputs
	Factories []PolicyFactory
	// Notes say what was left out or assumed, a line each.
	Notes []string
}

// NewPlan checks what was asked for, all of it before anything runs. What is wrong with it is an InputError.
func NewPlan(o Options) (*Plan, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	p := &Plan{Options: o}
	var err error
	if p.Nodes, err = clusterspec.Open(o.Cluster); err != nil {
		return nil, badInput("--cluster: %w", err)
	}
	if p.Factories, err = PolicyFactories(o.Policies, o.PolicyOptions, o.Round, o.Workload.Seed, false); err != nil {
		return nil, err
	}
	if o.Throughputs != "" {
		if p.Table, err = trace.OpenThroughputs(o.Throughputs); err != nil {
			return nil, badInput("--throughputs: %w", err)
		}
		p.Workload.Throughputs = p.Table
	}
	if p.Trace, err = p.Workload.Trace(); errors.Is(err, workload.ErrNothing) {
		return nil, badInput("%w", err)
	} else if err != nil {
		return nil, badInput("the workload: %w", err)
	}
	p.noteBroken()
	if err := p.gavelRules(); err != nil {
		return nil, err
	}
	return p, p.leaveOutMisfits()
}

// check looks at the options that need no file.
func (o *Options) check() error {
	switch {
	case o.Cluster == "":
		return badInput("--cluster is missing: want a file, a short form such as v100:12/4, or one of %s",
			strings.Join(clusterspec.Names(), ", "))
	case o.Round < 0:
		return badInput("--round %s: want more than 0", o.Round)
	case o.RestartDelay < 0:
		return badInput("--restart-delay %s: want 0 or more", o.RestartDelay)
	case o.Mishaps.NodeFails < 0 || o.Mishaps.NodeBack <= 0 || o.Mishaps.JobFails < 0:
		return badInput("--node-fails %s, --node-back %s, --job-fails %s: want 0 or more, and --node-back above 0",
			o.Mishaps.NodeFails, o.Mishaps.NodeBack, o.Mishaps.JobFails)
	case o.Slowdown != nil && (len(o.Slowdown) != 4 || slices.Min(o.Slowdown) < 1):
		return badInput("--slowdown %s: want four numbers from 1 on, such as 1,1,1.1,1.3",
			strings.Trim(strings.ReplaceAll(fmt.Sprint(o.Slowdown), " ", ","), "[]"))
	case o.Parallel < 1:
		return badInput("--parallel %d: want 1 or more", o.Parallel)
	case o.ForkCosts.Upload < 0 || o.ForkCosts.Average < 0 || o.ForkCosts.Each < 0:
		return badInput("--fork-costs %s,%s,%s: want 0 or more", o.ForkCosts.Upload, o.ForkCosts.Average, o.ForkCosts.Each)
	case !(o.Workload.Load > 0 && o.Workload.Length > 0):
		return badInput("--load %g, --length %g: want both above 0", o.Workload.Load, o.Workload.Length)
	}
	if _, _, err := terms.ParseForks(o.Forks); err != nil {
		return badInput("--forks: %w", err)
	}
	return nil
}

// note adds a line for the user.
func (p *Plan) note(format string, args ...any) {
	p.Notes = append(p.Notes, fmt.Sprintf(format, args...))
}

// gavelRules has a trace in Gavel's format with its throughputs run as Gavel's simulator runs it, unless the user says
// otherwise: a job whose devices change goes on at once, and Gavel's policies count whole steps in each round.
func (p *Plan) gavelRules() error {
	if p.Table == nil || p.Trace.Report.Format != "gavel trace" {
		return nil
	}
	if !p.RestartDelayGiven {
		p.RestartDelay = 0
	}
	factories, err := PolicyFactories(p.Policies, p.PolicyOptions, p.Round, p.Workload.Seed, true)
	if err != nil {
		return err
	}
	p.Factories = factories
	p.note("by the rules of Gavel's simulator, as the trace is one of Gavel's: a restart takes %s, its policies count whole steps, fifo is its own",
		p.RestartDelay)
	return nil
}

// noteBroken says what reading left out.
func (p *Plan) noteBroken() {
	if r := p.Trace.Report; r.Broken > 0 {
		p.note("%s", r.String())
		p.note("the first broken row: %s", r.Errors[0].Error())
	}
}

// leaveOutMisfits refuses jobs that no device type has enough devices for, or leaves them out.
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
		return badInput("%s; the cluster has %s: want a larger one, or --lenient, which leaves out %d jobs", what,
			clusterspec.Describe(p.Nodes), left)
	}
	if len(kept.Jobs) == 0 {
		return badInput("none of the %d jobs fits the cluster: %s", left, what)
	}
	p.note("%d jobs do not fit the cluster and are left out, the first: %s", left, what)
	p.Trace = kept
	return nil
}

// Devices counts the cluster's devices.
func (p *Plan) Devices() int {
	n := 0
	for i := range p.Nodes {
		n += len(p.Nodes[i].Devices)
	}
	return n
}
