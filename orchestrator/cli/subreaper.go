package cli

import (
	"github.com/outbid-dev/outbid/worker"
	"github.com/outbid-dev/outbid/worker/subreaper"
)

// Subreaper must be called first in the program, before Main. If a worker started this process as watchdog, as the
// subreaper of a trial, or to average checkpoints, it does that work and then returns true.
func Subreaper() bool { return worker.WatchdogMain() || subreaper.Main() || worker.AverageMain() }
