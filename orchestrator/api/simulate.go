package api

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// WhatIf simulates the server's ledger under other policies and weights of a sweep.
type WhatIf interface {
	// Policies returns the names of the policies that can be simulated.
	Policies() []string
	// Batches returns the length of the ledger.
	Batches(ctx context.Context) (uint64, error)
	// Run calls tell with the actual results, then with those of each simulation, and with the progress in between. The
	// error wraps state.ErrInvalid if the request is at fault.
	Run(ctx context.Context, req *outbidv1.SimulateLedgerRequest, tell func(*outbidv1.SimulateLedgerResponse) error) error
}

const (
	// simulateTimeout limits all simulations of one call of SimulateLedger.
	simulateTimeout = time.Minute
	// maxPolicies is the number of policies that one call may simulate.
	maxPolicies = 4
)

// simulator lets callers simulate the ledger, one at a time.
type simulator struct {
	// whatIf may be nil: then nothing is simulated.
	whatIf WhatIf
	// Explanations, which are short, do not wait for simulations that users start, and vice versa.
	explaining, simulating turns
}

// turns are taken one at a time, in the order of their requests.
type turns chan struct{}

// inTurn waits for its turn and calls f.
func (t turns) inTurn(ctx context.Context, f func() error) error {
	select {
	case t <- struct{}{}:
		defer func() { <-t }()
		return f()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// newSimulator returns a simulator of a ledger.
func newSimulator(whatIf WhatIf) *simulator {
	return &simulator{whatIf: whatIf, explaining: make(turns, 1), simulating: make(turns, 1)}
}

// policiesOf returns the policies that can be simulated.
func policiesOf(whatIf WhatIf) []string {
	if whatIf == nil {
		return nil
	}
	return whatIf.Policies()
}

// policies checks the policies that a caller names.
func (s *simulator) policies(names, otherwise []string) ([]string, error) {
	if len(names) == 0 || s.whatIf == nil {
		return otherwise, nil
	}
	if len(names) > maxPolicies {
		return nil, fieldError("policies", "has %d names; at most %d", len(names), maxPolicies)
	}
	for i, name := range names {
		if all := s.whatIf.Policies(); !slices.Contains(all, name) {
			return nil, fieldError("policies", "%q: want names from %s", name, strings.Join(all, ", "))
		}
		if slices.Contains(names[:i], name) {
			return nil, fieldError("policies", "has %q twice", name)
		}
	}
	return names, nil
}

// simulateService simulates what other policies would have done.
type simulateService struct {
	lookup
	*simulator

	mu sync.Mutex
	// callers are the tenants, or callers for every tenant, that simulate or wait for it.
	callers map[string]bool
}

// SimulateLedger implements the service. Closing the stream ends the simulation.
func (s *simulateService) SimulateLedger(req *outbidv1.SimulateLedgerRequest, stream grpc.ServerStreamingServer[outbidv1.SimulateLedgerResponse]) error {
	ctx := stream.Context()
	if err := s.check(req); err != nil {
		return err
	}
	leave, err := s.enter(caller(ctx))
	if err != nil {
		return err
	}
	defer leave()
	if err := stream.Send(progress(&outbidv1.SimulationProgress{Waiting: true})); err != nil {
		return err
	}
	hidden := hiddenFrom(caller(ctx), s.control)
	return s.simulating.inTurn(ctx, func() error {
		ctx, cancel := context.WithTimeout(ctx, simulateTimeout)
		defer cancel()
		err := stream.Send(progress(&outbidv1.SimulationProgress{}))
		if err == nil {
			err = s.whatIf.Run(ctx, req, func(r *outbidv1.SimulateLedgerResponse) error {
				for _, row := range r.GetRun().GetSweeps() {
					if hidden(row.GetSweep()) {
						row.Sweep = ""
					}
				}
				return stream.Send(r)
			})
		}
		if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return status.Errorf(codes.DeadlineExceeded, "the simulation took more than %s: choose a shorter period or fewer policies, or simulate "+
				"elsewhere with 'outbid export --ledger' and 'outbid replay --policy'", simulateTimeout)
		}
		return err
	})
}

func progress(p *outbidv1.SimulationProgress) *outbidv1.SimulateLedgerResponse {
	return &outbidv1.SimulateLedgerResponse{Piece: &outbidv1.SimulateLedgerResponse_Progress{Progress: p}}
}

// check returns what is wrong with a request.
func (s *simulateService) check(req *outbidv1.SimulateLedgerRequest) error {
	if s.whatIf == nil {
		return status.Error(codes.Unimplemented, "this server simulates nothing; use 'outbid replay --policy' on an exported ledger")
	}
	if _, err := s.policies(req.GetPolicies(), nil); err != nil {
		return err
	}
	w := req.GetWeight()
	switch {
	case len(req.GetPolicies()) == 0 && req.GetSweep() == "":
		return fieldError("policies", "is missing; give names from %s, or a sweep and its weight", strings.Join(s.whatIf.Policies(), ", "))
	case req.GetSweep() == "" && w != 0:
		return fieldError("sweep", "is missing; give the sweep that would have the weight")
	case req.GetSweep() != "" && (!(w > 0) || math.IsInf(w, 0)):
		return fieldError("weight", "must be a number above 0, got %v; 1 is usual", w)
	}
	for name, at := range map[string]*timestamppb.Timestamp{"since": req.GetSince(), "until": req.GetUntil()} {
		if at != nil && at.CheckValid() != nil {
			return fieldError(name, "is not a valid time")
		}
	}
	if req.GetSince() != nil && req.GetUntil() != nil && !req.GetSince().AsTime().Before(req.GetUntil().AsTime()) {
		return fieldError("until", "must be after since")
	}
	if req.GetSweep() != "" {
		_, err := s.sweep(req.GetSweep())
		return err
	}
	return nil
}

// enter admits one simulation of each tenant, so that the others need not wait for several of it.
func (s *simulateService) enter(who Principal) (leave func(), err error) {
	name := who.payer()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.callers[name] {
		return nil, &state.LimitError{Limit: "simulations", Text: name + " has a simulation already, which runs or waits; cancel it or wait for its end"}
	}
	s.callers[name] = true
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.callers, name)
	}, nil
}
