// Outbid tunes hyperparameters on shared GPU clusters: orchestrator, worker and command line in one binary.
package main

import (
	"context"
	_ "embed"
	"os"
	"strings"

	"github.com/outbid-dev/outbid/orchestrator/cli"
)

// release is the version of the next or current release, as semver.org writes it.
//
//go:embed VERSION
var release string

// revision is the commit that the binary was built from, set by the linker; "" if unknown.
var revision string

// version returns the release, with the revision as build metadata.
func version() string {
	v := strings.TrimSpace(release)
	if revision != "" {
		v += "+" + revision
	}
	return v
}

func main() {
	if cli.Subreaper() {
		return
	}
	os.Exit(cli.Main(context.Background(), cli.Product(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Getenv, version()))
}
