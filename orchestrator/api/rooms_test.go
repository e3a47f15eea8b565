package api_test

import (
	"github.com/outbid-dev/outbid/orchestrator/api"
	"github.com/outbid-dev/outbid/orchestrator/bus"
	"github.com/outbid-dev/outbid/orchestrator/control"
)

// What stands behind the API in the binary fits.
var (
	_ api.Control = (*control.Loop)(nil)
	_ api.Logs    = (*bus.Logs)(nil)
)
