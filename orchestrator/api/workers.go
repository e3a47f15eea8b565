package api

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/outbid-dev/outbid/orchestrator/bus"
	"github.com/outbid-dev/outbid/orchestrator/identity"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Workers takes workers into the cluster and out of it. Errors are bus.ErrJoinToken and bus.ErrStranger where they are
// the caller's.
type Workers interface {
	// NewToken makes a token with which one worker may join as a node, once, within its life.
	NewToken(ctx context.Context, node string, life time.Duration) (token string, expires time.Time, err error)
	// Join takes in the worker with a public key; an empty node stands for the one that the token is for.
	Join(ctx context.Context, token, node, public string) (*outbidv1.JoinWorkerResponse, error)
	// Remove takes a worker out.
	Remove(ctx context.Context, node string) error
}

// How long a join token is good for.
const (
	defaultTokenLife = time.Hour
	maxTokenLife     = 30 * 24 * time.Hour
)

func errNoWorkers() error {
	return status.Error(codes.Unimplemented, "this server takes no workers in or out")
}

// NewWorkerToken implements the service.
func (s *service) NewWorkerToken(ctx context.Context, req *outbidv1.NewWorkerTokenRequest) (
	*outbidv1.NewWorkerTokenResponse, error,
) {
	if err := bus.CheckToken("node", req.GetNode()); err != nil {
		return nil, fieldError("node", "%s", err)
	}
	life := defaultTokenLife
	if req.GetLife() != nil {
		life = req.GetLife().AsDuration()
	}
	if life <= 0 || life > maxTokenLife {
		return nil, fieldError("life", "%s: want more than 0 and at most %s", life, maxTokenLife)
	}
	if s.workers == nil {
		return nil, errNoWorkers()
	}
	token, expires, err := s.workers.NewToken(ctx, req.GetNode(), life)
	if err != nil {
		return nil, err
	}
	return &outbidv1.NewWorkerTokenResponse{Token: token, Expires: timestamppb.New(expires)}, nil
}

// JoinWorker implements the service.
func (s *service) JoinWorker(ctx context.Context, req *outbidv1.JoinWorkerRequest) (
	*outbidv1.JoinWorkerResponse, error,
) {
	if !identity.IsKey(req.GetPublicKey()) {
		return nil, fieldError("public_key", "%q is not the public key of a NATS user", req.GetPublicKey())
	}
	if s.workers == nil {
		return nil, errNoWorkers()
	}
	resp, err := s.workers.Join(ctx, req.GetToken(), req.GetNode(), req.GetPublicKey())
	if errors.Is(err, bus.ErrJoinToken) {
		return nil, status.Error(codes.PermissionDenied, err.Error())
	}
	return resp, err
}

// RemoveWorker implements the service.
func (s *service) RemoveWorker(ctx context.Context, req *outbidv1.RemoveWorkerRequest) (
	*outbidv1.RemoveWorkerResponse, error,
) {
	if err := bus.CheckToken("node", req.GetNode()); err != nil {
		return nil, fieldError("node", "%s", err)
	}
	if s.workers == nil {
		return nil, errNoWorkers()
	}
	err := s.workers.Remove(ctx, req.GetNode())
	if errors.Is(err, bus.ErrStranger) {
		return nil, status.Error(codes.NotFound, err.Error())
	}
	if err != nil {
		return nil, err
	}
	return &outbidv1.RemoveWorkerResponse{}, nil
}
