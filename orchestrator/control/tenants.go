package control

import (
	"context"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// SetTenant adds or changes a tenant.
func (l *Loop) SetTenant(ctx context.Context, t *outbidv1.Tenant, add bool, actor string) error {
	_, err := do(ctx, l, func(done func(struct{}, error)) Input {
		return SetTenant{Tenant: proto.CloneOf(t), Add: add, Actor: actor, Done: func(err error) { done(struct{}{}, err) }}
	})
	return err
}

// RemoveTenant removes the settings of a tenant.
func (l *Loop) RemoveTenant(ctx context.Context, tenant, actor string) error {
	_, err := do(ctx, l, func(done func(struct{}, error)) Input {
		return RemoveTenant{Tenant: tenant, Actor: actor, Done: func(err error) { done(struct{}{}, err) }}
	})
	return err
}

// TenantStates returns the tenants that were added or have sweeps, by name.
func (l *Loop) TenantStates() []*outbidv1.TenantState {
	all := l.view.Load().TenantViews(l.clock.now())
	rates := l.rates.Load()
	for _, t := range all {
		name, use := t.GetTenant().GetName(), t.GetUse()
		use.Samplers = int32(l.samplers.held(name))
		if rates != nil {
			use.ReportRate = (*rates)[name]
		}
	}
	return all
}

// Tenant returns the settings of a tenant, or nil if it was not added.
func (l *Loop) Tenant(name string) *outbidv1.Tenant { return l.view.Load().Tenant(name) }

// MemberOf returns the tenants that name a member.
func (l *Loop) MemberOf(member string) []string {
	var all []string
	for _, t := range l.view.Load().Tenants() {
		if slices.Contains(t.GetMembers(), member) {
			all = append(all, t.GetName())
		}
	}
	return all
}

// Totals returns the cumulative counts of every tenant that ever had a sweep, by name.
func (l *Loop) Totals() []*state.Totals { return l.view.Load().Totals() }
