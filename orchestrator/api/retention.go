package api

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Retention knows the sweeps that ended longer ago than their tenant keeps them, and deletes them.
type Retention interface {
	// Plan returns the expired sweeps of the tenants that sees accepts, in the order of deletion, and those that are kept.
	Plan(sees func(tenant string) bool) (expired, kept []*outbidv1.Expired)
	// Delete deletes sweeps of Plan, and returns them with the errors.
	Delete(ctx context.Context, expired []*outbidv1.Expired, actor string) []*outbidv1.Expired
}

// retentionService has the call about retention. Its field is nil if the server does not have one.
type retentionService struct{ retention Retention }

// RunRetention implements the service.
func (s *retentionService) RunRetention(ctx context.Context, req *outbidv1.RunRetentionRequest) (*outbidv1.RunRetentionResponse, error) {
	who, tenant := caller(ctx), req.GetTenant()
	if tenant == "" && who.Role != RoleAdmin && who.Tenant != AnyTenant {
		tenant = who.Tenant
	}
	if err := permitTenant(who, manageTenant, tenant); err != nil {
		return nil, err
	}
	if s.retention == nil {
		return nil, status.Error(codes.Unimplemented, "this server does not have retention")
	}
	expired, kept := s.retention.Plan(func(of string) bool { return tenant == "" || tenant == of })
	if !req.GetDryRun() {
		expired = s.retention.Delete(ctx, expired, who.Name)
	}
	return &outbidv1.RunRetentionResponse{Expired: expired, Kept: kept}, nil
}
