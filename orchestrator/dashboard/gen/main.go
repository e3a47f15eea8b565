// Command gen writes the TypeScript types of the REST API; with -sum it writes which sources dist was built from.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/outbid-dev/outbid/orchestrator/dashboard/tsgen"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

func main() {
	sum := flag.Bool("sum", false, "write dist/sources.sha256 instead of the types")
	flag.Parse()
	if err := run(*sum); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1) //nolint:forbidigo // it is main
	}
}

func run(sum bool) error {
	if sum {
		text, err := tsgen.Sources("web")
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join("dist", tsgen.SourcesFile), []byte(text), 0o644) //nolint:gosec // it is committed
	}
	service := outbidv1.File_outbid_v1_service_proto.Services().ByName("OutbidService")
	return os.WriteFile(filepath.Join("web", tsgen.TypesFile), []byte(tsgen.Types(service)), 0o644) //nolint:gosec // a source file
}
