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

// workerStore returns the store for a worker's checkpoints, and its name. Access is through the server's signed URLs
// unless direct names a store.
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
	_, check, err := ordersVerifier(who, log)
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

// storeAccess is the store of a server, and how workers access its objects.
type storeAccess struct {
	log   *slog.Logger
	store objects.Store
	// signer gives workers access to single objects. objects does it for a store that cannot sign, or is nil.
	signer  objects.Signer
	objects *objects.Handler
}

// openAccess sets up signed access to objects: by the store itself, or through the API for a store that cannot sign.
func (a *storeAccess) openAccess(base string) {
	if signer, ok := a.store.(objects.Signer); ok {
		a.signer = signer
		return
	}
	a.objects = objects.NewHandler(a.store, base)
	a.signer = a.objects
}

// ownStore returns the checkpoint store of a worker in this process: the store itself, within the tenant's limits.
func (s *Server) ownStore(fork *outbidv1.ForkRef) objects.Access {
	return &bounded{Access: s.store, may: func(bytes int64) error { return s.loop.MayKeep(fork.GetSweep(), bytes) }}
}

// bounded is a store that enforces a limit. A rejected write is retried, because sweeps may be deleted and limits
// raised.
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

// signPatience is how long the store may take to start an upload.
const signPatience = 8 * time.Second

// answerAccess gives a worker access to an object if it is allowed. A server that no longer leads does not answer,
// because it does not know newer leases; the leader answers.
func (s *Server) answerAccess(req *outbidv1.AccessRequest) *outbidv1.AccessAnswer {
	if !s.leads() {
		return nil
	}
	answer := &outbidv1.AccessAnswer{Store: s.store.String()}
	err := s.loop.MayReach(req)
	if errors.Is(err, state.ErrLimit) { // the limit may change, so the worker retries
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
