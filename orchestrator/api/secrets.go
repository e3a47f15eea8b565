package api

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/outbid-dev/outbid/orchestrator/limits"
	"github.com/outbid-dev/outbid/orchestrator/secrets"
	"github.com/outbid-dev/outbid/orchestrator/spec"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Secrets stores the secrets of tenants. No method returns a value. Errors are secrets.ErrMissing or a
// *state.LimitError if the request is at fault.
type Secrets interface {
	// Set stores a secret or replaces its value. by is the name of the caller's token.
	Set(ctx context.Context, tenant, name, value, by string) (secrets.Info, error)
	// List returns the secrets of a tenant by name.
	List(tenant string) []secrets.Info
	// Has reports whether a tenant has a secret.
	Has(tenant, name string) bool
	// Delete removes a secret.
	Delete(ctx context.Context, tenant, name string) error
}

// secretService has the calls about the secrets of tenants. Its field is nil if the server does not store secrets.
type secretService struct{ secrets Secrets }

// SetSecret implements the service.
func (s *secretService) SetSecret(ctx context.Context, req *outbidv1.SetSecretRequest) (*outbidv1.SetSecretResponse, error) {
	tenant, err := s.secretsOf(ctx, req.GetTenant())
	if err != nil {
		return nil, err
	}
	if err := checkSecret(req.GetName(), req.GetValue()); err != nil {
		return nil, err
	}
	info, err := s.secrets.Set(ctx, tenant, req.GetName(), req.GetValue(), caller(ctx).Name)
	if err != nil {
		return nil, err
	}
	return &outbidv1.SetSecretResponse{Secret: secretMessage(info)}, nil
}

// checkSecret returns an error that names the invalid field of a secret and never shows the value.
func checkSecret(name, value string) error {
	if problem := spec.CheckSecretName(name); problem != "" {
		return fieldError("name", "%s", problem)
	}
	switch {
	case value == "":
		return fieldError("value", "is empty; 'outbid secret rm' removes a secret")
	case len(value) > limits.SecretValue:
		return fieldError("value", "has %d bytes; at most %d are allowed", len(value), limits.SecretValue)
	case strings.ContainsRune(value, 0):
		return fieldError("value", "has a zero byte, which no environment can hold")
	}
	return nil
}

// ListSecrets implements the service.
func (s *secretService) ListSecrets(ctx context.Context, req *outbidv1.ListSecretsRequest) (*outbidv1.ListSecretsResponse, error) {
	tenant, err := s.secretsOf(ctx, req.GetTenant())
	if err != nil {
		return nil, err
	}
	resp := &outbidv1.ListSecretsResponse{}
	for _, info := range s.secrets.List(tenant) {
		resp.Secrets = append(resp.Secrets, secretMessage(info))
	}
	return resp, nil
}

// DeleteSecret implements the service.
func (s *secretService) DeleteSecret(ctx context.Context, req *outbidv1.DeleteSecretRequest) (*outbidv1.DeleteSecretResponse, error) {
	tenant, err := s.secretsOf(ctx, req.GetTenant())
	if err != nil {
		return nil, err
	}
	if problem := spec.CheckSecretName(req.GetName()); problem != "" {
		return nil, fieldError("name", "%s", problem)
	}
	err = s.secrets.Delete(ctx, tenant, req.GetName())
	if errors.Is(err, secrets.ErrMissing) {
		return nil, status.Error(codes.NotFound, err.Error())
	}
	if err != nil {
		return nil, err
	}
	return &outbidv1.DeleteSecretResponse{}, nil
}

// secretsOf returns the tenant of a request about secrets. The caller must belong to it.
func (s *secretService) secretsOf(ctx context.Context, tenant string) (string, error) {
	who := caller(ctx)
	switch {
	case tenant == "" && who.Tenant != AnyTenant:
		tenant = who.Tenant
	case tenant == "":
		tenant = tenantOf(nil)
	}
	if err := spec.CheckTenant(tenant); err != nil {
		return "", err
	}
	if err := permitTenant(who, write, tenant); err != nil {
		return "", err
	}
	if s.secrets == nil {
		return "", status.Error(codes.Unimplemented, "this server does not store secrets")
	}
	return tenant, nil
}

func secretMessage(i secrets.Info) *outbidv1.Secret {
	return &outbidv1.Secret{Tenant: i.Tenant, Name: i.Name, SetAt: timestamppb.New(i.SetAt), SetBy: i.SetBy}
}

// checkSecrets returns an error that names the first secret of a spec that its tenant does not have.
func (s *secretService) checkSecrets(sp *outbidv1.SweepSpec) error {
	wanted, tenant := spec.Secrets(sp), tenantOf(sp)
	for _, variable := range slices.Sorted(maps.Keys(wanted)) {
		if name := wanted[variable]; s.secrets == nil || !s.secrets.Has(tenant, name) {
			field, _ := spec.Env(sp)
			return fieldError(field+"."+variable, "tenant %s has no secret %q; set it with 'outbid secret set %s'", tenant, name, name)
		}
	}
	return nil
}

// secretWarnings names the variables of a spec whose literal values look like secrets.
func secretWarnings(sp *outbidv1.SweepSpec) []string {
	field, env := spec.Env(sp)
	var found []string
	for _, variable := range slices.Sorted(maps.Keys(env)) {
		if env[variable] != "" && spec.LooksSecret(variable) {
			found = append(found, fmt.Sprintf("%s.%s is stored in the ledger, and the tenant's viewers can read it; if it is a secret, "+
				"use one: 'outbid secret set NAME', then %s: {secret: NAME}", field, variable, variable))
		}
	}
	return found
}
