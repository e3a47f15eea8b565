package api

import (
	"context"
	"errors"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// DeleteSweep implements the service.
func (s *sweepService) DeleteSweep(ctx context.Context, req *outbidv1.DeleteSweepRequest) (*outbidv1.DeleteSweepResponse, error) {
	if req.GetSweep() == "" {
		return nil, errNoSweep()
	}
	who, stopped := caller(ctx).Name, false
	for {
		// Changes fails for an unknown sweep; Delete then returns a better error.
		_, _, next, _ := s.control.Changes(req.GetSweep(), JustVersion)
		d, err := s.control.Delete(ctx, req.GetSweep(), who)
		if err == nil {
			return &outbidv1.DeleteSweepResponse{Deleted: timestamppb.New(d.At), Actor: d.Actor}, nil
		}
		_, ending := errors.AsType[*state.EndingError](err)
		switch {
		case ending, stopped && errors.Is(err, state.ErrConflict):
			select {
			case <-next:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		case req.GetForce() && errors.Is(err, state.ErrConflict):
			if err := s.control.Command(ctx, req.GetSweep(), outbidv1.SweepCommand_SWEEP_COMMAND_STOP, who); err != nil {
				return nil, err
			}
			stopped = true
		default:
			return nil, err
		}
	}
}
