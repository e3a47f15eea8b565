package cli

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"os"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/outbid-dev/outbid/orchestrator/identity"
	"github.com/outbid-dev/outbid/orchestrator/objects"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
	"github.com/outbid-dev/outbid/worker"
)

// workerStore is where a worker's trials keep their checkpoints, and its name: what the server signs for, unless the
// worker was told to reach a store by itself.
func (a *app) workerStore(ctx context.Context, nc *nats.Conn, who *identity.Credentials, direct string,
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
	trust, err := trustWith(a.opts.ca)
	if err != nil {
		return nil, "", err
	}
	return worker.Asking(worker.Link{NC: nc, Who: who, Check: check}, trust), "the server's", nil
}

// trustWith trusts the authorities of this machine and the one of a file; nil if there is no such file to trust.
func trustWith(caFile string) (*tls.Config, error) {
	if caFile == "" {
		return nil, nil //nolint:nilnil // nil is the usual trust
	}
	pem, err := os.ReadFile(caFile)
	if err != nil {
		return nil, badInput("--ca: %w", trimOp(err))
	}
	roots, err := x509.SystemCertPool()
	if err != nil {
		roots = x509.NewCertPool()
	}
	if !roots.AppendCertsFromPEM(pem) {
		return nil, badInput("--ca %s holds no PEM certificate", caFile)
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}, nil
}

// openAccess makes what signs for objects: the store itself, or the API in front of a store that cannot.
func (s *server) openAccess(base string) {
	if signer, ok := s.store.(objects.Signer); ok {
		s.signer = signer
		return
	}
	s.objects = objects.NewHandler(s.store, base)
	s.signer = s.objects
}

// signPatience is how long the store may take to begin an upload.
const signPatience = 8 * time.Second

// answerAccess gives a worker access to an object, if it may have it.
func (s *server) answerAccess(req *outbidv1.AccessRequest) *outbidv1.AccessAnswer {
	answer := &outbidv1.AccessAnswer{Store: s.store.String()}
	if err := s.loop.MayReach(req); err != nil {
		s.log.Warn("a worker was refused an object", "node", req.GetNode(), "key", req.GetKey(), "write", req.GetWrite(), "reason", err)
		answer.Refused = err.Error()
		return answer
	}
	ctx, cancel := context.WithTimeout(context.Background(), signPatience)
	defer cancel()
	var signed objects.Signed
	var err error
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
