package api

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

func TestTenantsThatCannotBe(t *testing.T) {
	t.Parallel()
	for want, tenant := range map[string]*outbidv1.Tenant{
		`tenant.name: "" cannot be a tenant`:            {},
		`tenant.name: "A b" cannot be a tenant`:         {Name: "A b"},
		"tenant.weight: -1 is not":                      {Name: "a", Weight: -1},
		"tenant.quota.devices: -1 is negative":          {Name: "a", Quota: &outbidv1.TenantQuota{Devices: new(int32(-1))}},
		`tenant.quota.types: -2 devices of type "v100"`: {Name: "a", Quota: &outbidv1.TenantQuota{Types: map[string]int32{"v100": -2}}},
		"tenant.limits.sweeps: -2: want a whole":        {Name: "a", Limits: &outbidv1.TenantLimits{Sweeps: new(int32(-2))}},
		"tenant.limits.device_hours: -1 is not":         {Name: "a", Limits: &outbidv1.TenantLimits{DeviceHours: new(-1.0)}},
		"tenant.limits.log_bytes: \"much\" is":          {Name: "a", Limits: &outbidv1.TenantLimits{LogBytes: "much"}},
		"tenant.members: name \"a b\"":                  {Name: "a", Members: []string{"a b"}},
	} {
		if err := checkTenant(tenant); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", tenant, err, want)
		}
	}
}

// TestWhoMayActForATenant checks that only admins change tenants, and that others see and act for the tenants that list
// them as members.
func TestWhoMayActForATenant(t *testing.T) {
	t.Parallel()
	h := serve(t, func(c *Config) { c.Tokens = testTokens(t) })
	root, bob := h.dial(t, token("root")), h.dial(t, token("bob"))
	vision := &outbidv1.Tenant{Name: "vision", Limits: &outbidv1.TenantLimits{MaxWeight: new(3.0)}}
	if _, err := bob.SetTenant(t.Context(), &outbidv1.SetTenantRequest{Tenant: vision}); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a user added a tenant: %v", err)
	}
	if _, err := root.SetTenant(t.Context(), &outbidv1.SetTenantRequest{Tenant: vision, Add: true}); err != nil {
		t.Fatal(err)
	}
	theirs := func() *outbidv1.SweepSpec {
		s := okSpec()
		s.Tenant, s.Weight = "vision", 2
		return s
	}
	if _, err := bob.SubmitSweep(t.Context(), &outbidv1.SubmitSweepRequest{Spec: theirs()}); status.Code(err) != codes.PermissionDenied {
		t.Errorf("another user submitted a sweep of it: %v", err)
	}
	if _, err := bob.GetTenant(t.Context(), &outbidv1.GetTenantRequest{Tenant: "vision"}); status.Code(err) != codes.NotFound {
		t.Errorf("another user saw it: %v", err)
	}
	vision.Members = []string{"bob"}
	if _, err := root.SetTenant(t.Context(), &outbidv1.SetTenantRequest{Tenant: vision}); err != nil {
		t.Fatal(err)
	}
	if _, err := bob.SubmitSweep(t.Context(), &outbidv1.SubmitSweepRequest{Spec: theirs()}); err != nil {
		t.Errorf("a member could not submit a sweep with an allowed weight: %v", err)
	}
	list, err := bob.ListTenants(t.Context(), &outbidv1.ListTenantsRequest{})
	if err != nil || len(list.GetTenants()) != 1 {
		t.Errorf("a member sees %v: %v", list, err)
	}
	if _, err := root.RemoveTenant(t.Context(), &outbidv1.RemoveTenantRequest{Tenant: "vision"}); err != nil {
		t.Error(err)
	}
}

func (c *fakeControl) SetTenant(_ context.Context, t *outbidv1.Tenant, add bool, _ string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tenants == nil {
		c.tenants = map[string]*outbidv1.Tenant{}
	}
	if add && c.tenants[t.GetName()] != nil {
		return state.ErrConflict
	}
	c.tenants[t.GetName()] = t
	return nil
}

func (c *fakeControl) RemoveTenant(_ context.Context, tenant, _ string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tenants[tenant] == nil {
		return state.ErrNotFound
	}
	delete(c.tenants, tenant)
	return nil
}

func (c *fakeControl) TenantStates() []*outbidv1.TenantState {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []*outbidv1.TenantState
	for _, name := range slices.Sorted(maps.Keys(c.tenants)) {
		all = append(all, &outbidv1.TenantState{Tenant: c.tenants[name], Added: true, Use: &outbidv1.TenantUse{}})
	}
	return all
}

func (c *fakeControl) Tenant(name string) *outbidv1.Tenant {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.tenants[name]
}

func (c *fakeControl) MemberOf(member string) []string {
	var all []string
	for _, t := range c.TenantStates() {
		if slices.Contains(t.GetTenant().GetMembers(), member) {
			all = append(all, t.GetTenant().GetName())
		}
	}
	return all
}
