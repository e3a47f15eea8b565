package cli

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/outbid-dev/outbid/orchestrator/limits"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// tenantView is a tenant as commands print it.
type tenantView struct {
	Name        string               `json:"name"`
	Added       bool                 `json:"added"`
	Weight      float64              `json:"weight"`
	Devices     *int32               `json:"quota_devices,omitempty"`
	Types       map[string]int32     `json:"quota_types,omitempty"`
	MaxHours    *float64             `json:"max_device_hours,omitempty"`
	Members     []string             `json:"members,omitempty"`
	Held        map[string]int32     `json:"held"`
	Sweeps      int32                `json:"sweeps"`
	DeviceHours float64              `json:"device_hours"`
	Limits      map[string]limitView `json:"limits"`
}

// limitView is a limit in force; null means no limit. Used is absent for limits without a count.
type limitView struct {
	Limit *float64 `json:"limit"`
	Used  *float64 `json:"used,omitempty"`
	Unit  string   `json:"unit,omitempty"`
}

func viewTenant(s *outbidv1.TenantState) tenantView {
	t, u := s.GetTenant(), s.GetUse()
	v := tenantView{
		Name: t.GetName(), Added: s.GetAdded(), Weight: t.GetWeight(), Types: t.GetQuota().GetTypes(), Members: t.GetMembers(), Held: u.GetHeld(),
		Sweeps: u.GetSweeps(), DeviceHours: u.GetDeviceHours(), Limits: map[string]limitView{},
	}
	if v.Weight == 0 {
		v.Weight = 1
	}
	if q := t.GetQuota(); q != nil {
		v.Devices = q.Devices
	}
	if l := t.GetLimits(); l != nil {
		v.MaxHours = l.DeviceHours
	}
	for _, l := range s.GetLimits() {
		view := limitView{Used: l.Used, Unit: l.GetUnit()}
		if !noBound(l) {
			view.Limit = new(l.GetLimit())
		}
		v.Limits[l.GetName()] = view
	}
	return v
}

func noBound(l *outbidv1.TenantLimit) bool {
	return l.GetLimit() == limits.Unlimited || math.IsInf(l.GetLimit(), 1)
}

func (tn *tenantCommands) printTenants(out format, tenants ...*outbidv1.TenantState) error {
	l := newLister(tn.stdout, out, []string{"TENANT", "WEIGHT", "SWEEPS", "HELD", "QUOTA", "HOURS", "MEMBERS"}, func(v tenantView) []string {
		sweeps, hours := fmt.Sprint(v.Sweeps), fmt.Sprintf("%.1f", v.DeviceHours)
		if most := v.Limits["sweeps"].Limit; most != nil {
			sweeps += fmt.Sprintf("/%.0f", *most)
		}
		if v.MaxHours != nil {
			hours += fmt.Sprintf("/%g", *v.MaxHours)
		}
		quota := byType(v.Types)
		if v.Devices != nil {
			quota = strings.TrimSpace(fmt.Sprintf("%d %s", *v.Devices, quota))
		}
		return []string{clean(v.Name), formatMetric(v.Weight), sweeps, orDash(byType(v.Held)), orDash(quota), hours, orDash(strings.Join(v.Members, " "))}
	})
	l.table.width = tn.columns()
	for _, t := range tenants {
		if err := l.add(viewTenant(t)); err != nil {
			return err
		}
	}
	return l.close("no tenants; add one with 'outbid tenant add NAME'")
}

// showTenant prints a tenant, and below it a table of its limits.
func (tn *tenantCommands) showTenant(out format, s *outbidv1.TenantState) error {
	if out != formatTable {
		return tn.printTenants(out, s)
	}
	if err := tn.printTenants(out, s); err != nil {
		return err
	}
	tn.printf("\n")
	t := table{header: []string{"LIMIT", "MOST", "NOW", "OF WHAT", "WHEN REACHED"}, width: tn.columns(), fold: true, spare: []string{"OF WHAT"}}
	for _, l := range s.GetLimits() {
		t.rows = append(t.rows, []string{clean(l.GetName()), limitText(l, l.GetLimit()), limitUsed(l), clean(l.GetHelp()), clean(l.GetReached())})
	}
	t.write(tn.stdout)
	return nil
}

// limitText formats a limit's value as flags accept it.
func limitText(l *outbidv1.TenantLimit, value float64) string {
	switch {
	case noBound(l):
		return limits.None
	case l.GetName() == limits.MaxWeight:
		return formatMetric(value)
	default:
		return limits.Field{Unit: limits.Unit(l.GetUnit())}.Format(int64(value)) + rateUnit(l)
	}
}

func limitUsed(l *outbidv1.TenantLimit) string {
	switch {
	case l.Used == nil:
		return "-"
	case l.GetUnit() == string(limits.Count):
		return fmt.Sprintf("%.0f", l.GetUsed())
	default:
		return formatBytes(int64(l.GetUsed())) + rateUnit(l)
	}
}

func rateUnit(l *outbidv1.TenantLimit) string {
	if l.GetUnit() == string(limits.Rate) && !noBound(l) {
		return "/s"
	}
	return ""
}

// byType lists numbers of devices by type, such as "k80:2 v100:1".
func byType(counts map[string]int32) string {
	var parts []string
	for _, kind := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%s:%d", clean(kind), counts[kind]))
	}
	return strings.Join(parts, " ")
}
