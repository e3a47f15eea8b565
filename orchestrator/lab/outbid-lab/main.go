// Outbid-lab is outbid with additions for comparisons of schedulers: more policies, options that switch off parts of
// them, generated workloads, studies and plots.
package main

import (
	"context"
	"os"

	"github.com/outbid-dev/outbid/orchestrator/cli"
	labcli "github.com/outbid-dev/outbid/orchestrator/lab/cli"
	"github.com/outbid-dev/outbid/orchestrator/sim/experiment"
)

// version is the release and the revision, set by the linker (see the Makefile).
var version = "0.0.0-unknown"

func main() {
	if cli.Subreaper() {
		return
	}
	edition := labcli.Edition(experiment.Simulate)
	os.Exit(cli.Main(context.Background(), edition, os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Getenv, version))
}
