package cli

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/outbid-dev/outbid/orchestrator/limits"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// tenantFlags has the flags for a tenant's settings; "none" removes a limit.
type tenantFlags struct {
	weight               float64
	devices, deviceHours string
	types                map[string]string
	members              []string
	// limits is indexed by the names of package limits.
	limits map[string]*string
}

func (o *tenantFlags) add(f *pflag.FlagSet) {
	f.Float64Var(&o.weight, "weight", 1, "weight relative to other tenants")
	f.StringVar(&o.devices, "devices", "none", "most devices of all types that its trials may hold at once, or none")
	f.StringToStringVar(&o.types, "quota", nil, "`TYPE=COUNT`: most devices of a type that its trials may hold at once, or none; may be repeated")
	f.StringVar(&o.deviceHours, "device-hours", "none", "device-hours in a calendar month (UTC), or none")
	f.StringSliceVar(&o.members, "member", nil, "`NAME` of a token whose holder may also act for it; may be repeated")
	o.limits = map[string]*string{limits.MaxWeight: new("")}
	f.StringVar(o.limits[limits.MaxWeight], limitFlag(limits.MaxWeight), "", "the largest `WEIGHT` that its sweeps may have, or none (default: 1)")
	for _, l := range limits.Fields() {
		o.limits[l.Name] = new("")
		unit := map[limits.Unit]string{limits.Count: "COUNT", limits.Bytes: "BYTES", limits.Rate: "BYTES/S", limits.Age: "TIME"}[l.Unit]
		f.StringVar(o.limits[l.Name], limitFlag(l.Name), "", fmt.Sprintf("`%s`, or none: %s (default: %s)", unit, l.Help, l.Format(l.Default)))
	}
}

// limitFlag returns the flag of a limit.
func limitFlag(name string) string { return strings.ReplaceAll(name, "_", "-") }

// applyTo changes the settings of a tenant for which flags were given.
func (o *tenantFlags) applyTo(t *outbidv1.Tenant, f *pflag.FlagSet) error {
	given := func(names ...string) bool { return slices.ContainsFunc(names, f.Changed) }
	if given("weight") {
		t.Weight = o.weight
	}
	if given("member") {
		t.Members = slices.DeleteFunc(slices.Clone(o.members), func(m string) bool { return m == "" })
	}
	if given("devices", "quota") {
		if err := o.ontoQuota(t, given); err != nil {
			return err
		}
	}
	return o.ontoLimits(t, given)
}

func (o *tenantFlags) ontoLimits(t *outbidv1.Tenant, given func(...string) bool) error {
	if t.Limits == nil {
		t.Limits = &outbidv1.TenantLimits{}
	}
	if given("device-hours") {
		t.Limits.DeviceHours = nil
		if o.deviceHours != limits.None {
			hours, err := strconv.ParseFloat(o.deviceHours, 64)
			if err != nil || math.IsNaN(hours) {
				return badInput("--device-hours %q: want a number, or none", o.deviceHours)
			}
			t.Limits.DeviceHours = &hours
		}
	}
	for name, text := range o.limits {
		if flag := limitFlag(name); given(flag) {
			if err := limits.Set(t.GetLimits(), name, *text); err != nil {
				return badInput("--%s %w", flag, err)
			}
		}
	}
	return nil
}

func (o *tenantFlags) ontoQuota(t *outbidv1.Tenant, given func(...string) bool) error {
	if t.Quota == nil {
		t.Quota = &outbidv1.TenantQuota{}
	}
	if given("devices") {
		n, err := parseCount("devices", o.devices)
		if err != nil {
			return err
		}
		t.Quota.Devices = n
	}
	for kind, text := range o.types {
		n, err := parseCount("quota", text)
		if err != nil {
			return err
		}
		if n == nil {
			delete(t.GetQuota().GetTypes(), kind)
			continue
		}
		if t.Quota.Types == nil {
			t.Quota.Types = map[string]int32{}
		}
		t.Quota.Types[kind] = *n
	}
	return nil
}

// parseCount parses a flag's number; nil means none.
func parseCount(flag, text string) (*int32, error) {
	if text == limits.None {
		return nil, nil //nolint:nilnil // none is a valid value
	}
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || n < 0 {
		return nil, badInput("--%s %q: want a whole number of at least 0, or none", flag, text)
	}
	return new(int32(n)), nil
}
