package api_test

import (
	"github.com/outbid-dev/outbid/orchestrator/api"
	"github.com/outbid-dev/outbid/orchestrator/bus"
	"github.com/outbid-dev/outbid/orchestrator/control"
)

// The types that the binary passes to the API implement its interfaces.
var (
	_ api.Control = (*control.Loop)(nil)
	_ api.Logs    = (*bus.Logs)(nil)
)
