package api

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/outbid-dev/outbid/orchestrator/explain"
	"github.com/outbid-dev/outbid/orchestrator/explain/evidence"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// explainTimeout limits waiting for other simulations and all simulations of one explanation.
const explainTimeout = 20 * time.Second

// maxExplainedBatches is the length up to which a ledger is simulated for an explanation.
const maxExplainedBatches = 20_000

// otherPolicies are simulated unless the caller names others.
var otherPolicies = []string{"las", "drf"} //nolint:gochecknoglobals // a constant list

// explainService explains sweeps and trials.
type explainService struct {
	lookup
	*simulator
	logger *slog.Logger
	// asCaller returns this server's API, which is called with the rights of the caller of a context.
	asCaller func() evidence.API
}

// ExplainSweep implements the service.
func (s *explainService) ExplainSweep(ctx context.Context, req *outbidv1.ExplainSweepRequest) (*outbidv1.ExplainSweepResponse, error) {
	sweep, err := s.sweep(req.GetSweep())
	if err != nil {
		return nil, err
	}
	var trial *outbidv1.Trial
	if req.Trial != nil {
		if trial, err = s.trial(req.GetSweep(), req.GetTrial()); err != nil {
			return nil, err
		}
	}
	policies, err := s.policies(req.GetPolicies(), otherPolicies)
	if err != nil {
		return nil, err
	}
	var simulate evidence.Simulate
	if req.GetSimulate() && s.whatIf != nil {
		simulate = func(ctx context.Context, sweep *outbidv1.Sweep) []explain.Outcome {
			return s.simulate(ctx, sweep, policies)
		}
	}
	got, outcomes, err := evidence.Explain(forwarded(ctx), s.asCaller(), sweep, trial, simulate, time.Now())
	if err != nil {
		return nil, err
	}
	resp := &outbidv1.ExplainSweepResponse{Cause: string(got.Cause), Why: got.State, Lost: got.Lost, Otherwise: got.Otherwise}
	for _, o := range outcomes {
		resp.Outcomes = append(resp.Outcomes, &outbidv1.SimulatedOutcome{
			Policy: o.Policy, Weight: o.Factor * explain.Weight(sweep), Seconds: o.Seconds,
		})
	}
	return resp, nil
}

// simulate waits for its turn and simulates the ledger with twice the sweep's weight and under other policies. It returns
// nil if that takes too long or is not possible.
func (s *explainService) simulate(ctx context.Context, sweep *outbidv1.Sweep, policies []string) []explain.Outcome {
	ctx, cancel := context.WithTimeout(ctx, explainTimeout)
	defer cancel()
	outcomes, err := s.outcomes(ctx, sweep, policies)
	if err != nil && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) && !errors.Is(err, state.ErrInvalid) {
		s.logger.Warn("the ledger was not simulated", "sweep", sweep.GetId(), "error", err)
	}
	return outcomes
}

// outcomes returns when a sweep ends in each simulation; those in which it does not end are left out.
func (s *explainService) outcomes(ctx context.Context, sweep *outbidv1.Sweep, policies []string) ([]explain.Outcome, error) {
	if n, err := s.whatIf.Batches(ctx); err != nil || n > maxExplainedBatches {
		return nil, err
	}
	const doubled = 2
	weight := explain.Weight(sweep)
	req := &outbidv1.SimulateLedgerRequest{Policies: policies, Sweep: sweep.GetId(), Weight: doubled * weight}
	var outcomes []explain.Outcome
	err := s.explaining.inTurn(ctx, func() error {
		return s.whatIf.Run(ctx, req, func(r *outbidv1.SimulateLedgerResponse) error {
			for _, row := range r.GetRun().GetSweeps() {
				if r.GetRun().GetPolicy() == "" || row.GetSweep() != sweep.GetId() || row.Seconds == nil || row.GetUnknownSpeed() {
					continue
				}
				factor := 1.0
				if r.GetRun().GetWeight() != 0 {
					factor = doubled
				}
				outcomes = append(outcomes, explain.Outcome{Policy: r.GetRun().GetPolicy(), Factor: factor, Seconds: row.GetSeconds()})
			}
			return nil
		})
	})
	return outcomes, err
}

// forwarded returns a context that passes the caller's credentials on to this server's API.
func forwarded(ctx context.Context) context.Context {
	md, _ := metadata.FromIncomingContext(ctx)
	return metadata.NewOutgoingContext(ctx, metadata.MD{"authorization": md.Get("authorization")})
}
