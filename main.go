// Outbid tunes hyperparameters on shared GPU clusters: orchestrator, worker and command line in one binary.
package main

import (
	"context"
	"os"

	"github.com/outbid-dev/outbid/orchestrator/cli"
)

// version is set by the linker.
var version = "devel"

func main() {
	if cli.Subreaper() {
		return
	}
	os.Exit(cli.Main(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Getenv, version))
}
