package cli

import (
	"github.com/spf13/cobra"

	"github.com/outbid-dev/outbid/orchestrator/policy/registry"
	"github.com/outbid-dev/outbid/orchestrator/sim/experiment"
	"github.com/outbid-dev/outbid/orchestrator/sim/measure"
)

// Edition is a program with this command line: its policies, and its additions to the product.
type Edition struct {
	// Name is the name of the program.
	Name string
	// Policies are the policies of servers, simulations and replays.
	Policies registry.Registry
	// Simulate runs a policy on a trace.
	Simulate experiment.Engine
	// Sim returns an extension of the command sim, or is nil.
	Sim func() SimExtension
	// Commands returns further commands for simulations, or is nil.
	Commands func() []*cobra.Command
}

// Product returns the edition of the program outbid.
func Product() Edition {
	return Edition{Name: "outbid", Policies: registry.Product(), Simulate: experiment.Simulate}
}

// SimExtension extends the command sim. Any field may be empty.
type SimExtension struct {
	// Help is appended to the command's description, and Examples replace its examples.
	Help, Examples string
	// Flags adds flags to the command, which may also set its options.
	Flags func(cmd *cobra.Command, o *experiment.Options)
	// Runs returns what to run.
	Runs func(o experiment.Options) (*SimRuns, error)
}

// SimRuns are the simulations of one command.
type SimRuns struct {
	// Setting is the setting whose Values differ between the plans, or "" for a single plan.
	Setting string
	Values  []string
	Plans   []*experiment.Plan
	// Before is called before a plan runs, or is nil.
	Before func(*experiment.Plan) error
	// After is called with the results of each plan once all have run or one has failed, and returns notes. It may be nil.
	After func(rows [][]measure.Result) (notes []string, err error)
}

// runs returns what to run.
func (e *SimExtension) runs(o experiment.Options) (*SimRuns, error) {
	if e.Runs != nil {
		return e.Runs(o)
	}
	p, err := experiment.NewPlan(o)
	if err != nil {
		return nil, err
	}
	return &SimRuns{Plans: []*experiment.Plan{p}}, nil
}
