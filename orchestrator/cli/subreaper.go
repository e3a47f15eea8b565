package cli

import (
	"github.com/outbid-dev/outbid/worker"
	"github.com/outbid-dev/outbid/worker/subreaper"
)

// Subreaper is called first thing in the program, before Main. It returns true where a worker had started the
// program to be the subreaper of a trial, or to average checkpoints, at the end of that.
func Subreaper() bool { return subreaper.Main() || worker.AverageMain() }
