package api

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/outbid-dev/outbid/orchestrator/explain"
	"github.com/outbid-dev/outbid/orchestrator/explain/evidence"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// WhatIf simulates the server's ledger under other policies and weights of a sweep.
type WhatIf interface {
	// Policies returns the names of the policies that can be simulated.
	Policies() []string
	// Run returns when the sweep ends in each simulation. An error means that the ledger cannot be simulated now.
	Run(ctx context.Context, sweep string, policies []string) ([]explain.Outcome, error)
}

const (
	// whatIfTimeout limits waiting for other simulations and all simulations of one call.
	whatIfTimeout = 20 * time.Second
	// maxPolicies is the number of policies that one call may simulate.
	maxPolicies = 4
)

// otherPolicies are simulated unless the caller names others.
var otherPolicies = []string{"las", "drf"} //nolint:gochecknoglobals // a constant list

// explainService explains sweeps and trials.
type explainService struct {
	lookup
	whatIf WhatIf
	// simulating is full while a simulation runs. All callers share it, so one runs at a time.
	simulating chan struct{}
	logger     *slog.Logger
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
	policies, err := s.policies(req.GetPolicies())
	if err != nil {
		return nil, err
	}
	var simulate evidence.Simulate
	if req.GetSimulate() && s.whatIf != nil {
		simulate = func(ctx context.Context, sweep *outbidv1.Sweep) []explain.Outcome {
			return s.simulate(ctx, sweep.GetId(), policies)
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

// policies checks the policies that a caller names.
func (s *explainService) policies(names []string) ([]string, error) {
	if len(names) == 0 || s.whatIf == nil {
		return otherPolicies, nil
	}
	if len(names) > maxPolicies {
		return nil, fieldError("policies", "has %d names; at most %d", len(names), maxPolicies)
	}
	for _, name := range names {
		if all := s.whatIf.Policies(); !slices.Contains(all, name) {
			return nil, fieldError("policies", "%q: want names from %s", name, strings.Join(all, ", "))
		}
	}
	return names, nil
}

// simulate waits for its turn and simulates the ledger. It returns nil if that takes too long or is not possible.
func (s *explainService) simulate(ctx context.Context, sweep string, policies []string) []explain.Outcome {
	ctx, cancel := context.WithTimeout(ctx, whatIfTimeout)
	defer cancel()
	select {
	case s.simulating <- struct{}{}:
		defer func() { <-s.simulating }()
	case <-ctx.Done():
		return nil
	}
	outcomes, err := s.whatIf.Run(ctx, sweep, policies)
	if err != nil && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
		s.logger.Warn("the ledger was not simulated", "sweep", sweep, "error", err)
	}
	return outcomes
}

// forwarded returns a context that passes the caller's credentials on to this server's API.
func forwarded(ctx context.Context) context.Context {
	md, _ := metadata.FromIncomingContext(ctx)
	return metadata.NewOutgoingContext(ctx, metadata.MD{"authorization": md.Get("authorization")})
}
