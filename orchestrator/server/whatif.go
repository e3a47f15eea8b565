package server

import (
	"context"

	"github.com/outbid-dev/outbid/orchestrator/api"
	"github.com/outbid-dev/outbid/orchestrator/ledger"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// WhatIf simulates a ledger under other policies and weights of a sweep.
type WhatIf interface {
	// Policies returns the names of the policies that can be simulated.
	Policies() []string
	// Run simulates a ledger; see api.WhatIf.
	Run(ctx context.Context, l ledger.Ledger, req *outbidv1.SimulateLedgerRequest, tell func(*outbidv1.SimulateLedgerResponse) error) error
}

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

// Batches implements api.WhatIf.
func (w whatIf) Batches(ctx context.Context) (uint64, error) { return w.ledger.Last(ctx) }

// Run implements api.WhatIf.
func (w whatIf) Run(ctx context.Context, req *outbidv1.SimulateLedgerRequest, tell func(*outbidv1.SimulateLedgerResponse) error) error {
	return w.WhatIf.Run(ctx, w.ledger, req, tell)
}
