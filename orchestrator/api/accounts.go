package api

import (
	"context"
	"encoding/hex"
	"errors"
	"regexp"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/outbid-dev/outbid/orchestrator/accounts"
	"github.com/outbid-dev/outbid/orchestrator/spec"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Accounts stores API tokens. Errors are accounts.ErrMissing, accounts.ErrExists or a *state.LimitError if the request is
// at fault.
type Accounts interface {
	// Create stores an account with a new token, which it returns.
	Create(ctx context.Context, wanted accounts.Account) (token string, created *accounts.Account, err error)
	// Rotate gives an account another token; the old one is valid for overlap.
	Rotate(ctx context.Context, tenant, name string, expires time.Time, overlap time.Duration) (string, *accounts.Account, error)
	// Revoke removes an account.
	Revoke(ctx context.Context, tenant, name string) error
	// List returns the accounts of a tenant, or of all if it is "".
	List(tenant string) []*accounts.Account
}

// Issue replaces the API tokens. Tokens that are no longer among them stop working, with their sessions.
func (t *Tokens) Issue(list []*accounts.Account) {
	var issued []tokenEntry
	for _, a := range list {
		scopes, err := parseScopes(a.Scopes)
		if err != nil || checkRole(Role(a.Role)) != nil { // of a newer version: a token must not be able to do more than it should
			continue
		}
		who := Principal{Name: a.Tenant + "/" + a.Name, Tenant: a.Tenant, Role: Role(a.Role), scopes: scopes}
		for _, k := range a.Keys {
			e := tokenEntry{who: who, until: k.Until, account: a}
			if n, err := hex.Decode(e.hash[:], []byte(k.Hash)); err == nil && n == len(e.hash) {
				issued = append(issued, e)
			}
		}
	}
	t.issued.Store(&issued)
	t.join()
}

// The default and the maximum life of an API token, and how long both tokens may be valid after a rotation.
const (
	defaultAccountLife = 90 * 24 * time.Hour
	maxAccountLife     = 366 * 24 * time.Hour
	maxOverlap         = 7 * 24 * time.Hour
)

// accountService has the calls about API tokens.
type accountService struct {
	accounts Accounts
	tokens   *Tokens
}

// CreateToken implements the service.
func (s *accountService) CreateToken(ctx context.Context, req *outbidv1.CreateTokenRequest) (*outbidv1.CreateTokenResponse, error) {
	tenant, err := s.tenantOf(ctx, req.GetTenant(), req.GetName())
	if err != nil {
		return nil, err
	}
	who, role := caller(ctx), Role(req.GetRole())
	if err := checkRole(role); err != nil {
		return nil, fieldError("role", "%s", err)
	}
	if tenant != AnyTenant {
		if err := spec.CheckTenant(tenant); err != nil {
			return nil, err
		}
	}
	if err := checkPrincipal(Principal{Name: req.GetName(), Tenant: tenant, Role: role}); err != nil {
		return nil, fieldError("tenant", "%s", err)
	}
	if !who.mayGive(tenant, role) {
		return nil, status.Errorf(codes.PermissionDenied, "role: %s is a %s of %s and may not give the role %s for the tenant %s", who.Name, who.Role,
			who.Tenant, role, tenant)
	}
	if _, err := parseScopes(req.GetScopes()); err != nil {
		return nil, fieldError("scopes", "%s", err)
	}
	expires, err := expiry(req.GetLife())
	if err != nil {
		return nil, err
	}
	token, a, err := s.accounts.Create(ctx, accounts.Account{
		Tenant: tenant, Name: req.GetName(), Role: string(role), Scopes: req.GetScopes(), CreatedBy: who.Name, Expires: expires,
	})
	if errors.Is(err, accounts.ErrExists) {
		return nil, status.Error(codes.AlreadyExists, err.Error())
	}
	if err != nil {
		return nil, err
	}
	return &outbidv1.CreateTokenResponse{Token: token, Info: accountMessage(a)}, nil
}

// ListTokens implements the service.
func (s *accountService) ListTokens(ctx context.Context, req *outbidv1.ListTokensRequest) (*outbidv1.ListTokensResponse, error) {
	who, tenant := caller(ctx), req.GetTenant()
	if tenant == "" && who.Role != RoleAdmin {
		tenant = who.Tenant
	}
	if err := permitTenant(who, manageTokens, tenant); err != nil {
		return nil, err
	}
	if err := s.check(); err != nil {
		return nil, err
	}
	resp := &outbidv1.ListTokensResponse{}
	for _, a := range s.accounts.List(tenant) {
		resp.Tokens = append(resp.Tokens, accountMessage(a))
	}
	return resp, nil
}

// RotateToken implements the service.
func (s *accountService) RotateToken(ctx context.Context, req *outbidv1.RotateTokenRequest) (*outbidv1.RotateTokenResponse, error) {
	tenant, err := s.existing(ctx, req.GetTenant(), req.GetName())
	if err != nil {
		return nil, err
	}
	expires, err := expiry(req.GetLife())
	if err != nil {
		return nil, err
	}
	overlap := req.GetOverlap().AsDuration()
	if overlap < 0 || overlap > maxOverlap {
		return nil, fieldError("overlap", "must be between 0 and %s, got %s", maxOverlap, overlap)
	}
	token, a, err := s.accounts.Rotate(ctx, tenant, req.GetName(), expires, overlap)
	if err != nil {
		return nil, accountError(err)
	}
	return &outbidv1.RotateTokenResponse{Token: token, Info: accountMessage(a)}, nil
}

// RevokeToken implements the service.
func (s *accountService) RevokeToken(ctx context.Context, req *outbidv1.RevokeTokenRequest) (*outbidv1.RevokeTokenResponse, error) {
	tenant, err := s.existing(ctx, req.GetTenant(), req.GetName())
	if err == nil {
		err = s.accounts.Revoke(ctx, tenant, req.GetName())
	}
	if err != nil {
		return nil, accountError(err)
	}
	return &outbidv1.RevokeTokenResponse{}, nil
}

func accountError(err error) error {
	if errors.Is(err, accounts.ErrMissing) {
		return status.Error(codes.NotFound, err.Error())
	}
	return err
}

// check returns an error if this server has no API tokens.
func (s *accountService) check() error {
	switch {
	case s.accounts == nil:
		return status.Error(codes.Unimplemented, "this server does not store API tokens")
	case s.tokens == nil:
		return status.Error(codes.FailedPrecondition, "this server asks for no tokens; start it with --tokens FILE")
	}
	return nil
}

// tenantOf returns the tenant of a request about an API token, after checking the name and that the caller administers
// the tenant.
func (s *accountService) tenantOf(ctx context.Context, tenant, name string) (string, error) {
	who := caller(ctx)
	if tenant == "" {
		tenant = who.Tenant
	}
	if err := permitTenant(who, manageTokens, tenant); err != nil {
		return "", err
	}
	if !regexp.MustCompile(`^[a-z]([a-z0-9-]{0,61}[a-z0-9])?$`).MatchString(name) {
		return "", fieldError("name", "%q: must be 1 to 63 lower-case letters, digits and dashes, a letter first", name)
	}
	return tenant, s.check()
}

// existing returns the tenant of a request about an API token that exists. A caller may change only tokens that it may
// create.
func (s *accountService) existing(ctx context.Context, tenant, name string) (string, error) {
	tenant, err := s.tenantOf(ctx, tenant, name)
	if err != nil {
		return "", err
	}
	for _, a := range s.accounts.List(tenant) {
		if who := caller(ctx); a.Name == name && !who.mayGive(tenant, Role(a.Role)) {
			return "", status.Errorf(codes.PermissionDenied, "name: %s has the role %s, which %s may not give", name, a.Role, who.Name)
		}
	}
	return tenant, nil
}

// expiry returns when a token with a life expires.
func expiry(life *durationpb.Duration) (time.Time, error) {
	d := defaultAccountLife
	if life != nil {
		d = life.AsDuration()
	}
	if d <= 0 || d > maxAccountLife {
		return time.Time{}, fieldError("life", "must be more than 0 and at most 366 days, got %s", d)
	}
	return time.Now().Add(d), nil
}

func accountMessage(a *accounts.Account) *outbidv1.APIToken {
	m := &outbidv1.APIToken{
		Tenant: a.Tenant, Name: a.Name, Role: a.Role, Scopes: a.Scopes, Created: timestamppb.New(a.Created), CreatedBy: a.CreatedBy,
		Expires: timestamppb.New(a.Expires),
	}
	if at := a.LastUsed(); !at.IsZero() {
		m.LastUsed = timestamppb.New(at)
	}
	return m
}
