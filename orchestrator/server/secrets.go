package server

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/outbid-dev/outbid/orchestrator/identity"
	"github.com/outbid-dev/outbid/orchestrator/secrets"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// openVault opens the secrets of tenants.
func (s *Server) openVault(ctx context.Context) error {
	key, err := s.keys.SecretsKey()
	if err != nil {
		return err
	}
	s.vault, err = secrets.Open(ctx, s.nc, secrets.Config{Key: key, Replicas: s.cfg.NATS.Replicas, Now: s.cfg.Now})
	return err
}

// seal encrypts the environment of a trial's secrets for the worker of a node. Its errors are shown to the tenant.
func (s *Server) seal(node *outbidv1.NodeInfo, tenant string, wanted map[string]string) ([]byte, error) {
	env, err := s.vault.Resolve(tenant, wanted)
	if err != nil {
		return nil, err
	}
	data, err := proto.Marshal(&outbidv1.SecretEnvironment{Env: env})
	if err != nil { // the error may quote the value
		return nil, errors.New("a secret is not valid text: set it again")
	}
	sealed, err := identity.Seal(node.GetSealKey(), node.GetName(), data)
	if err != nil {
		return nil, fmt.Errorf("secrets: %w", err)
	}
	return sealed, nil
}
