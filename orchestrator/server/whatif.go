package server

import (
	"context"
	"fmt"

	"github.com/outbid-dev/outbid/orchestrator/api"
	"github.com/outbid-dev/outbid/orchestrator/explain"
	"github.com/outbid-dev/outbid/orchestrator/ledger"
)

// WhatIf simulates a ledger under other policies and weights of a sweep.
type WhatIf interface {
	// Policies returns the names of the policies that can be simulated.
	Policies() []string
	// Run returns when the sweep ends in each simulation.
	Run(ctx context.Context, l ledger.Ledger, sweep string, policies []string) ([]explain.Outcome, error)
}

// maxSimulatedBatches is the length up to which a ledger is simulated for an explanation.
const maxSimulatedBatches = 20_000

// whatIf simulates this server's ledger.
type whatIf struct {
	WhatIf
	ledger ledger.Ledger
}

// newWhatIf returns nil if nothing is simulated.
func newWhatIf(simulator WhatIf, l ledger.Ledger) api.WhatIf {
	if simulator == nil {
		return nil
	}
	return whatIf{simulator, l}
}

// Run implements api.WhatIf.
func (w whatIf) Run(ctx context.Context, sweep string, policies []string) ([]explain.Outcome, error) {
	last, err := w.ledger.Last(ctx)
	if err != nil {
		return nil, err
	}
	if last > maxSimulatedBatches {
		return nil, fmt.Errorf("the ledger has %d batches; at most %d are simulated", last, maxSimulatedBatches)
	}
	return w.WhatIf.Run(ctx, w.ledger, sweep, policies)
}
