package tenants

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Spent returns the tenants whose device-hours are used up, and when that changes next at the current use.
func (tn *Tenants) Spent() (spent map[string]bool, next time.Time) {
	var metered []*outbidv1.Tenant
	for _, t := range tn.st.Tenants() {
		if most := t.GetLimits(); most != nil && most.DeviceHours != nil {
			metered = append(metered, t)
		}
	}
	if len(metered) == 0 {
		return nil, next
	}
	uses := tn.st.TenantUses(tn.core.Now(), metered...)
	for i, t := range metered {
		over, changes := tn.meterOne(t, uses[i])
		if over && spent == nil {
			spent = map[string]bool{}
		}
		if over {
			spent[t.GetName()] = true
		}
		if !changes.IsZero() && (next.IsZero() || changes.Before(next)) {
			next = changes
		}
	}
	return spent, next
}

// meterOne reports whether a tenant's device-hours are used up, and when that changes at the current use, or zero for
// never.
func (tn *Tenants) meterOne(t *outbidv1.Tenant, use state.TenantUse) (over bool, changes time.Time) {
	left := t.GetLimits().GetDeviceHours()*3600 - use.DeviceSeconds
	if left <= 0 {
		return true, state.MonthEnds(tn.core.Now())
	}
	devices := 0
	for _, n := range use.Held {
		devices += n
	}
	if seconds := left / float64(max(1, devices)); devices > 0 && seconds < (31*24*time.Hour).Seconds() {
		return false, tn.core.Now().Add(time.Duration(seconds*float64(time.Second)) + time.Millisecond)
	}
	return false, changes
}

// TakeBack revokes leases of tenants beyond their quotas and device-hours.
func (tn *Tenants) TakeBack() {
	tn.spent, tn.metered = tn.Spent()
	tn.revokeBeyond()
}

// holding is what a tenant with a quota holds, without leases that are already being revoked.
type holding struct {
	policy.Tenant
	held   map[string]int
	all    int
	leases []*state.Lease
}

// revokeBeyond revokes leases of tenants beyond their quotas, newest first.
func (tn *Tenants) revokeBeyond() {
	var bounded []*holding
	byName := map[string]*holding{}
	for _, t := range InView(tn.st.Tenants(), tn.spent) {
		if t.Quota.All >= 0 || len(t.Quota.Of) > 0 {
			h := &holding{Tenant: t, held: map[string]int{}}
			bounded, byName[t.Name] = append(bounded, h), h
		}
	}
	if len(bounded) == 0 {
		return
	}
	for _, s := range tn.st.Live {
		if h := byName[state.TenantOf(s.Spec)]; h != nil {
			tn.count(h, s)
		}
	}
	for _, h := range bounded {
		tn.revokeBeyondOf(h)
	}
}

// count adds the leases of a sweep's trials.
func (tn *Tenants) count(h *holding, s *state.Sweep) {
	for _, n := range s.Running {
		for _, l := range s.Trials[n].Leases {
			if l.Holder == state.Client || l.Revoking != outbidv1.RevokeKind_REVOKE_KIND_UNSPECIFIED {
				continue
			}
			h.leases = append(h.leases, l)
			for _, kind := range tn.typesOf(l) {
				h.held[kind]++
				h.all++
			}
		}
	}
}

// revokeBeyondOf revokes a tenant's leases beyond its quota.
func (tn *Tenants) revokeBeyondOf(h *holding) {
	slices.SortFunc(h.leases, func(a, b *state.Lease) int { return cmp.Compare(b.ID, a.ID) })
	for _, l := range h.leases {
		if within(h.Quota, h.held, h.all) {
			return
		}
		if !tn.helps(h.Quota, h.held, h.all, l) {
			continue
		}
		for _, kind := range tn.typesOf(l) {
			h.held[kind]--
			h.all--
		}
		s := tn.st.Sweeps[l.Sweep]
		tn.trials.RevokeLease(s, s.Trials[l.Trial], l, outbidv1.RevokeKind_REVOKE_KIND_PAUSE, tn.whyBack(h.Tenant))
	}
}

func (tn *Tenants) whyBack(t policy.Tenant) string {
	if tn.spent[t.Name] {
		return tn.st.SpentText(t.Name, tn.core.Now())
	}
	return fmt.Sprintf("tenant %s holds more than its quota allows", t.Name)
}

func (tn *Tenants) typesOf(l *state.Lease) []string {
	var kinds []string
	for _, p := range l.Places {
		kinds = append(kinds, tn.st.TypesAt(p)...)
	}
	return kinds
}
