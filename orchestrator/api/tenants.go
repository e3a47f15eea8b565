package api

import (
	"context"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/outbid-dev/outbid/orchestrator/limits"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// memberships lists the tenants for which a caller may act in addition to the tenant of its token.
type memberships struct{ tenants []string }

// withMemberships adds the tenants that list the caller as a member.
func withMemberships(control Control, who Principal) Principal {
	if all := control.MemberOf(who.Name); len(all) > 0 {
		if who.also != nil {
			all = slices.Concat(who.also.tenants, all)
		}
		who.also = &memberships{all}
	}
	return who
}

// tenantService has the calls about tenants. It knows their limits and how much of them is used.
type tenantService struct {
	control  Control
	limits   *Limits
	blobs    *blobBook
	throttle *throttle
}

// SetTenant implements the service.
func (s *tenantService) SetTenant(ctx context.Context, req *outbidv1.SetTenantRequest) (*outbidv1.SetTenantResponse, error) {
	if err := checkTenant(req.GetTenant()); err != nil {
		return nil, err
	}
	if err := s.mayManage(ctx, req); err != nil {
		return nil, err
	}
	if err := s.control.SetTenant(ctx, req.GetTenant(), req.GetAdd(), caller(ctx).Name); err != nil {
		return nil, err
	}
	t, err := s.tenant(ctx, req.GetTenant().GetName())
	return &outbidv1.SetTenantResponse{Tenant: t}, err
}

// administers reports whether the caller may change a tenant. Membership in a tenant does not suffice.
func (p Principal) administers(tenant string) bool {
	return p.Role == RoleAdmin || p.Role == RoleTenantAdmin && (p.Tenant == tenant || p.Tenant == AnyTenant)
}

// mayManage returns an error unless the caller may make a change of a tenant. A tenant-admin may change only the members,
// because weight, quota and limits divide the cluster among tenants.
func (s *tenantService) mayManage(ctx context.Context, req *outbidv1.SetTenantRequest) error {
	who, wanted := caller(ctx), req.GetTenant()
	if who.Role == RoleAdmin {
		return nil
	}
	if err := permitTenant(who, manageTenant, wanted.GetName()); err != nil {
		return err
	}
	now, err := s.tenant(ctx, wanted.GetName())
	if err != nil {
		return err
	}
	if req.GetAdd() || !proto.Equal(withoutMembers(now.GetTenant()), withoutMembers(wanted)) {
		return status.Errorf(codes.PermissionDenied, "tenant: %s is a %s and may change only the members; weight, quota and limits need an admin",
			who.Name, who.Role)
	}
	return nil
}

// withoutMembers returns a tenant's weight, quota and limits. Unset fields have their effective values.
func withoutMembers(t *outbidv1.Tenant) *outbidv1.Tenant {
	own := proto.CloneOf(t)
	own.Members = nil
	if own.GetWeight() == 0 {
		own.Weight = 1
	}
	if proto.Size(own.GetQuota()) == 0 {
		own.Quota = nil
	}
	if proto.Size(own.GetLimits()) == 0 {
		own.Limits = nil
	}
	return own
}

// GetTenant implements the service.
func (s *tenantService) GetTenant(ctx context.Context, req *outbidv1.GetTenantRequest) (*outbidv1.GetTenantResponse, error) {
	if req.GetTenant() == "" {
		return nil, fieldError("tenant", "is empty; give a tenant's name")
	}
	if err := permitTenant(caller(ctx), read, req.GetTenant()); err != nil {
		return nil, err
	}
	t, err := s.tenant(ctx, req.GetTenant())
	return &outbidv1.GetTenantResponse{Tenant: t}, err
}

// ListTenants implements the service.
func (s *tenantService) ListTenants(ctx context.Context, _ *outbidv1.ListTenantsRequest) (*outbidv1.ListTenantsResponse, error) {
	who := caller(ctx)
	all := slices.DeleteFunc(s.control.TenantStates(), func(t *outbidv1.TenantState) bool { return !who.owns(t.GetTenant().GetName()) })
	for _, t := range all {
		if err := s.showLimits(ctx, t); err != nil {
			return nil, err
		}
	}
	return &outbidv1.ListTenantsResponse{Tenants: all}, nil
}

// RemoveTenant implements the service.
func (s *tenantService) RemoveTenant(ctx context.Context, req *outbidv1.RemoveTenantRequest) (*outbidv1.RemoveTenantResponse, error) {
	if req.GetTenant() == "" {
		return nil, fieldError("tenant", "is empty; give a tenant's name")
	}
	if err := s.control.RemoveTenant(ctx, req.GetTenant(), caller(ctx).Name); err != nil {
		return nil, err
	}
	return &outbidv1.RemoveTenantResponse{}, nil
}

func noTenant(name string) error {
	return fmt.Errorf("%w: there is no tenant %q", state.ErrNotFound, name)
}

func (s *tenantService) tenant(ctx context.Context, name string) (*outbidv1.TenantState, error) {
	for _, t := range s.control.TenantStates() {
		if t.GetTenant().GetName() == name {
			return t, s.showLimits(ctx, t)
		}
	}
	if who := caller(ctx); name == who.Tenant || name == state.DefaultTenant { // these may not have sweeps yet
		t := &outbidv1.TenantState{Tenant: &outbidv1.Tenant{Name: name, Weight: 1}, Use: &outbidv1.TenantUse{}}
		return t, s.showLimits(ctx, t)
	}
	return nil, noTenant(name)
}

// checkTenant returns an error that names the first invalid field of a tenant.
func checkTenant(t *outbidv1.Tenant) error {
	if !regexp.MustCompile(`^[a-z]([a-z0-9-]{0,40}[a-z0-9])?$`).MatchString(t.GetName()) {
		return fieldError("tenant.name", "%q cannot be a tenant; use lower-case letters, digits and dashes, a letter first", t.GetName())
	}
	if w := t.GetWeight(); !(w >= 0) || math.IsInf(w, 0) {
		return fieldError("tenant.weight", "%v is not a finite number above 0; leave it out for 1", w)
	}
	if q := t.GetQuota(); q.GetDevices() < 0 {
		return fieldError("tenant.quota.devices", "%d is negative; leave it out for any number", q.GetDevices())
	}
	for kind, n := range t.GetQuota().GetTypes() {
		if n < 0 || kind == "" {
			return fieldError("tenant.quota.types", "%d devices of type %q: want a type, and a number of at least 0", n, kind)
		}
	}
	for _, name := range t.GetMembers() {
		if err := checkPrincipal(Principal{Name: name, Tenant: AnyTenant, Role: RoleUser}); err != nil {
			return fieldError("tenant.members", "%s", err)
		}
	}
	return checkTenantLimits(t.GetLimits())
}

func checkTenantLimits(l *outbidv1.TenantLimits) error {
	if h := l.GetDeviceHours(); !(h >= 0) || math.IsInf(h, 0) {
		return fieldError("tenant.limits.device_hours", "%v is not a finite number of at least 0", h)
	}
	if _, err := limits.Over(limits.Default(), l); err != nil {
		field, problem, _ := strings.Cut(err.Error(), ": ")
		return fieldError("tenant.limits."+field, "%s", problem)
	}
	return nil
}

// limitOf calls LimitOf with the service's limits file.
func (s *tenantService) limitOf(tenant string) limits.Tenant {
	return LimitOf(s.control, s.limits, tenant)
}

// LimitOf returns a tenant's limits: its own settings, and the limits file for the others.
func LimitOf(control interface {
	Tenant(name string) *outbidv1.Tenant
}, file *Limits, tenant string,
) limits.Tenant {
	// The settings were checked when they were set, but another version may have allowed more than this one.
	limit, err := limits.Over(file.Of(tenant), control.Tenant(tenant).GetLimits())
	if err != nil {
		return file.Of(tenant)
	}
	return limit
}
