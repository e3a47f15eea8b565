package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/outbid-dev/outbid/orchestrator/identity"
	"github.com/outbid-dev/outbid/orchestrator/objects"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
	"github.com/outbid-dev/outbid/worker"
)

// workerStore is where a worker's trials keep their checkpoints, and its name: what the server signs for, unless the
// worker was told to reach a store by itself.
func workerStore(ctx context.Context, nc *nats.Conn, who *identity.Credentials, direct, ca string,
	log *slog.Logger,
) (worker.Store, string, error) {
	if direct != "" {
		store, err := objects.Open(ctx, direct)
		if err != nil {
			return nil, "", err
		}
		return worker.Direct(store), store.String(), nil
	}
	_, check, err := ordersOf(who, log)
	if err != nil {
		return nil, "", err
	}
	var authority []byte
	if ca != "" {
		if authority, err = readAuthority(ca); err != nil {
			return nil, "", err
		}
	}
	store, err := worker.Asking(worker.Link{NC: nc, Who: who, Check: check}, authority)
	return store, "the server's", err
}

// openAccess makes what signs for objects: the store itself, or the API in front of a store that cannot.
func (s *Server) openAccess(base string) {
	if signer, ok := s.store.(objects.Signer); ok {
		s.signer = signer
		return
	}
	s.objects = objects.NewHandler(s.store, base)
	s.signer = s.objects
}

// ownStore returns what a worker in this process keeps checkpoints in: the store itself, within the limits of tenants.
func (s *Server) ownStore(fork *outbidv1.ForkRef) objects.Access {
	return &bounded{Access: s.store, may: func(bytes int64) error { return s.loop.MayKeep(fork.GetSweep(), bytes) }}
}

// bounded is a store that takes what may be kept. The rest is tried again: sweeps may be deleted, and limits raised.
type bounded struct {
	objects.Access
	may func(bytes int64) error
}

// Put implements objects.Access.
func (b *bounded) Put(ctx context.Context, key string, r io.Reader, size int64) error {
	if err := b.may(size); err != nil {
		return fmt.Errorf("%w: %w", objects.ErrUnavailable, err)
	}
	return b.Access.Put(ctx, key, r, size)
}

// signPatience is how long the store may take to begin an upload.
const signPatience = 8 * time.Second

// answerAccess gives a worker access to an object, if it may have it. A server that does not lead any more says nothing: it knows of no
// lease that was granted since, and the one that leads answers.
func (s *Server) answerAccess(req *outbidv1.AccessRequest) *outbidv1.AccessAnswer {
	if !s.leads() {
		return nil
	}
	answer := &outbidv1.AccessAnswer{Store: s.store.String()}
	err := s.loop.MayReach(req)
	if errors.Is(err, state.ErrLimit) { // which somebody may change, so that it is tried again
		answer.Unavailable = err.Error()
		return answer
	}
	if err != nil {
		s.log.Warn("a worker was refused an object", "node", req.GetNode(), "key", req.GetKey(), "write", req.GetWrite(), "reason", err)
		answer.Refused = err.Error()
		return answer
	}
	ctx, cancel := context.WithTimeout(context.Background(), signPatience)
	defer cancel()
	var signed objects.Signed
	if req.GetWrite() {
		signed, err = s.signer.SignPut(ctx, req.GetKey(), req.GetBytes())
	} else {
		signed, err = s.signer.SignGet(ctx, req.GetKey())
	}
	if err != nil {
		answer.Unavailable = err.Error()
		return answer
	}
	answer.Object = &outbidv1.SignedObject{
		Url: signed.URL, Parts: signed.Parts, PartBytes: signed.PartBytes, Complete: signed.Complete, Abort: signed.Abort,
	}
	return answer
}
