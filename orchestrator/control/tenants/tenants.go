// Package tenants enforces the quotas, device-hours and limits of tenants.
package tenants

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/control/trials"
	"github.com/outbid-dev/outbid/orchestrator/limits"
	"github.com/outbid-dev/outbid/orchestrator/spec/terms"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Core is the part of the core that this package needs.
type Core interface {
	// Now returns the time of the current step.
	Now() time.Time
	// Emit decides an event.
	Emit(e *outbidv1.Event)
}

// Settings configure Tenants.
type Settings struct {
	// Limits returns the limits of a tenant. set holds its own settings, or nil if it has none. If Limits is nil,
	// nothing is limited.
	Limits func(tenant string, set *outbidv1.Tenant) limits.Tenant
	// Room returns why another sweep does not fit, or "" if it does. It is nil if that is not known.
	Room func() string
}

// Tenants decides what tenants may start, hold and report.
type Tenants struct {
	core   Core
	st     *state.State
	trials *trials.Trials
	set    Settings
	// spent names the tenants whose device-hours are used up. metered is when that may change next, or zero for
	// never.
	spent   map[string]bool
	metered time.Time
	// meters holds the report meters of tenants, by name.
	meters map[string]*reportMeter
}

// New returns the Tenants of a core that decides on a state.
func New(core Core, st *state.State, t *trials.Trials, set Settings) *Tenants {
	return &Tenants{core: core, st: st, trials: t, set: set, meters: map[string]*reportMeter{}}
}

// NextChange returns when the device-hours of a tenant may be used up or renewed next, or zero for never.
func (tn *Tenants) NextChange() time.Time { return tn.metered }

// Reckon computes NextChange.
func (tn *Tenants) Reckon() { _, tn.metered = tn.Spent() }

// Quotas are enforced in three places. A sweep that could never run within its tenant's quota is refused when it is
// submitted. The view's Free finds no place beyond a quota, whatever the policy is. And here, leases beyond a quota
// are revoked, newest first, when the quota is lowered or the tenant's device-hours are used up.

// Set adds or changes a tenant. With add, it must not exist yet.
func (tn *Tenants) Set(t *outbidv1.Tenant, add bool, actor string) error {
	old := tn.st.Tenant(t.GetName())
	if add && old != nil {
		return fmt.Errorf("%w: tenant %s already exists; change it with 'outbid tenant set'", state.ErrConflict, t.GetName())
	}
	if !proto.Equal(old, t) {
		tn.core.Emit(&outbidv1.Event{Kind: &outbidv1.Event_TenantChanged{TenantChanged: &outbidv1.TenantChanged{Tenant: t, Actor: actor}}})
	}
	return nil
}

// Remove removes the settings of a tenant whose sweeps have all ended.
func (tn *Tenants) Remove(name, actor string) error {
	if tn.st.Tenant(name) == nil {
		return fmt.Errorf("%w: there is no tenant %q", state.ErrNotFound, name)
	}
	if n := tn.st.TenantUse(name, tn.core.Now()).Sweeps; n > 0 {
		return fmt.Errorf("%w: tenant %s has %d sweeps that have not ended; stop them first", state.ErrConflict, name, n)
	}
	tn.core.Emit(&outbidv1.Event{Kind: &outbidv1.Event_TenantRemoved{TenantRemoved: &outbidv1.TenantRemoved{Tenant: name, Actor: actor}}})
	return nil
}

// MayBegin returns why a tenant may not start a sweep with this spec now, or nil if it may.
func (tn *Tenants) MayBegin(s *outbidv1.SweepSpec) error {
	name := state.TenantOf(s)
	if err := tn.checkLimits(name, s, tn.st.TenantUse(name, tn.core.Now())); err != nil {
		return err
	}
	t := tn.st.Tenant(name)
	if t == nil {
		return nil
	}
	if s.GetExternal() != nil {
		return nil
	}
	if spent := tn.st.SpentText(name, tn.core.Now()); spent != "" {
		return fmt.Errorf("%w: tenant: %s", state.ErrConflict, spent)
	}
	return tn.fitsQuota(name, t.GetQuota(), s)
}

// fitsQuota returns an error if no trial of a spec could ever run within a quota.
func (tn *Tenants) fitsQuota(name string, q *outbidv1.TenantQuota, s *outbidv1.SweepSpec) error {
	if q == nil {
		return nil
	}
	compiled, _ := terms.Of(s)
	d, most, kinds := compiled.Demand, 0, []string{}
	for _, kind := range tn.typesFor(d, q) {
		n := state.Allows(q, kind)
		if n < 0 || n >= d.Min {
			return nil
		}
		if most = max(most, n); n < d.Min {
			kinds = append(kinds, fmt.Sprintf("%d of type %s", n, kind))
		}
	}
	if len(kinds) == 0 && (q.Devices == nil || int(q.GetDevices()) >= d.Min) {
		return nil // the types that the trial would run on are not known
	}
	if d.Mixed && (q.Devices == nil || int(q.GetDevices()) >= d.Min) {
		return nil
	}
	if len(kinds) == 0 {
		kinds = []string{fmt.Sprintf("%d in all", q.GetDevices())}
	}
	return fmt.Errorf("%w: resources.devices.min: %d is more than tenant %s may hold at once by its quota: %s", state.ErrInvalid, d.Min, name,
		strings.Join(kinds, ", "))
}

// typesFor returns the types of device that a demand accepts: those that it names, or those of the cluster and of the
// quota.
func (tn *Tenants) typesFor(d cluster.Demand, q *outbidv1.TenantQuota) []string {
	var kinds []string
	add := func(kind string) {
		if d.Accepts(kind) && !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	}
	for _, kind := range d.Types {
		add(kind)
	}
	for _, name := range tn.st.NodeNames {
		for _, dev := range tn.st.Nodes[name].Shape.Devices {
			add(dev.Type)
		}
	}
	slices.Sort(kinds)
	return kinds
}
