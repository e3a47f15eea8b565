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
	"github.com/outbid-dev/outbid/orchestrator/oidc"
	"github.com/outbid-dev/outbid/orchestrator/pods"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Workers adds workers to the cluster and removes them. Errors are bus.ErrJoinToken, bus.ErrStranger, pods.ErrRefused or
// pods.ErrTaken if the request is at fault.
type Workers interface {
	// NewToken creates a token that admits one worker as a node, once, before the token expires after life.
	NewToken(ctx context.Context, node string, life time.Duration) (token string, expires time.Time, err error)
	// Join admits the worker with a public key. The token is a join token or a pod's ServiceAccount token. An empty node
	// means the node of the token.
	Join(ctx context.Context, token, node, public string) (*outbidv1.JoinWorkerResponse, error)
	// Remove removes a worker.
	Remove(ctx context.Context, node string) error
}

// The default and the maximum life of a join token.
const (
	defaultTokenLife = time.Hour
	maxTokenLife     = 30 * 24 * time.Hour
)

func errNoWorkers() error {
	return status.Error(codes.Unimplemented, "this server does not admit or remove workers")
}

// workerService lets workers join and leave the cluster.
type workerService struct{ workers Workers }

// NewWorkerToken implements the service.
func (s *workerService) NewWorkerToken(ctx context.Context, req *outbidv1.NewWorkerTokenRequest) (
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
		return nil, fieldError("life", "must be more than 0 and at most %[2]s, got %[1]s", life, maxTokenLife)
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
func (s *workerService) JoinWorker(ctx context.Context, req *outbidv1.JoinWorkerRequest) (
	*outbidv1.JoinWorkerResponse, error,
) {
	if !identity.IsKey(req.GetPublicKey()) {
		return nil, fieldError("public_key", "%q is not the public key of a NATS user", req.GetPublicKey())
	}
	if s.workers == nil {
		return nil, errNoWorkers()
	}
	resp, err := s.workers.Join(ctx, req.GetToken(), req.GetNode(), req.GetPublicKey())
	switch {
	case errors.Is(err, bus.ErrJoinToken), errors.Is(err, pods.ErrRefused):
		return nil, status.Error(codes.PermissionDenied, err.Error())
	case errors.Is(err, pods.ErrTaken):
		return nil, status.Error(codes.AlreadyExists, err.Error())
	case errors.Is(err, oidc.ErrUnavailable):
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	return resp, err
}

// RemoveWorker implements the service.
func (s *workerService) RemoveWorker(ctx context.Context, req *outbidv1.RemoveWorkerRequest) (
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
