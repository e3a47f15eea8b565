package cli

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

func (a *app) tenantCommand() *cobra.Command {
	return groupCommand(&cobra.Command{
		Use:   "tenant",
		Short: "Add, change and list tenants: weights, quotas, limits, who acts for them",
		Long: `Tenants own sweeps. One that nobody added has weight 1, no quota and the server's usual limits (serve --limits).
What is set here holds at once: a sweep that could never run within its tenant's quota is refused, no policy gives a
tenant's trials more than its quota, and what they hold beyond a quota that was lowered is taken back after they saved.
Changing tenants takes an admin's token.`,
		Example: "  outbid tenant add vision --weight 2 --devices 16 --quota v100=8",
	}, a.tenantAddCommand(), a.tenantSetCommand(), a.tenantListCommand(), a.tenantShowCommand(), a.tenantRemoveCommand())
}

// tenantFlags are what flags say of a tenant; none takes a bound away.
type tenantFlags struct {
	weight, maxWeight            float64
	devices, sweeps, deviceHours string
	types                        map[string]string
	logBytes, blobBytes          string
	members                      []string
}

func (o *tenantFlags) add(f *pflag.FlagSet) {
	f.Float64Var(&o.weight, "weight", 1, "weight relative to other tenants")
	f.StringVar(&o.devices, "devices", "none", "the most devices of all types that its trials hold at once, or none")
	f.StringToStringVar(&o.types, "quota", nil, "`TYPE=COUNT`: the most devices of a type that its trials hold at once, or none; may be given several times")
	f.StringVar(&o.sweeps, "sweeps", "none", "the most sweeps that have not ended, or none")
	f.StringVar(&o.deviceHours, "device-hours", "none", "device-hours in a calendar month (UTC), or none")
	f.StringVar(&o.logBytes, "log-bytes", "", "how much of what its trials print is kept, such as 1GiB (default: the server's limits)")
	f.StringVar(&o.blobBytes, "blob-bytes", "", "how much the functions of its sweeps may take, such as 4GiB (default: the server's limits)")
	f.Float64Var(&o.maxWeight, "max-weight", 1, "the largest weight that its sweeps may have (default: the server's limits)")
	f.StringSliceVar(&o.members, "member", nil, "`NAME` of a token whose holder may act for it too; may be given several times")
}

// onto changes of a tenant what flags were given for.
func (o *tenantFlags) onto(t *outbidv1.Tenant, f *pflag.FlagSet) error {
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
	if !given("sweeps", "device-hours", "log-bytes", "blob-bytes", "max-weight") {
		return nil
	}
	if t.Limits == nil {
		t.Limits = &outbidv1.TenantLimits{}
	}
	l := t.GetLimits()
	if given("sweeps") {
		n, err := count("sweeps", o.sweeps)
		if err != nil {
			return err
		}
		l.Sweeps = n
	}
	if given("device-hours") {
		l.DeviceHours = nil
		if o.deviceHours != "none" {
			hours, err := strconv.ParseFloat(o.deviceHours, 64)
			if err != nil {
				return badInput("--device-hours %q: want a number, or none", o.deviceHours)
			}
			l.DeviceHours = &hours
		}
	}
	if given("log-bytes") {
		l.LogBytes = o.logBytes
	}
	if given("blob-bytes") {
		l.BlobBytes = o.blobBytes
	}
	if given("max-weight") {
		l.MaxWeight = &o.maxWeight
	}
	return nil
}

func (o *tenantFlags) ontoQuota(t *outbidv1.Tenant, given func(...string) bool) error {
	if t.Quota == nil {
		t.Quota = &outbidv1.TenantQuota{}
	}
	if given("devices") {
		n, err := count("devices", o.devices)
		if err != nil {
			return err
		}
		t.Quota.Devices = n
	}
	for kind, text := range o.types {
		n, err := count("quota", text)
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

// count reads a number of a flag; nil for none.
func count(flag, text string) (*int32, error) {
	if text == "none" {
		return nil, nil //nolint:nilnil // none is an answer
	}
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || n < 0 {
		return nil, badInput("--%s %q: want a whole number from 0 on, or none", flag, text)
	}
	return new(int32(n)), nil
}

func (a *app) tenantAddCommand() *cobra.Command {
	var o tenantFlags
	cmd := &cobra.Command{
		Use:     "add NAME",
		Short:   "Add a tenant",
		Long:    `Add sets what a tenant may have; what no flag names has no bound, or the server's. It takes an admin's token.`,
		Example: "  outbid tenant add vision --weight 2 --devices 16 --quota v100=8 --sweeps 20 --device-hours 2000",
		Args:    exactly("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			t := &outbidv1.Tenant{Name: args[0], Weight: 1}
			if err := o.onto(t, cmd.Flags()); err != nil {
				return err
			}
			return a.setTenant(cmd, t, true)
		},
	}
	o.add(cmd.Flags())
	return cmd
}

func (a *app) tenantSetCommand() *cobra.Command {
	var o tenantFlags
	cmd := &cobra.Command{
		Use:   "set NAME",
		Short: "Change a tenant; what no flag names stays",
		Long: `Set changes what a tenant may have, at once: what its trials hold beyond a quota is taken back after they saved.
none takes a bound away. It takes an admin's token.`,
		Example: "  outbid tenant set vision --quota v100=4 --quota a100=none --device-hours none",
		Args:    exactly("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			defer c.close()
			got, err := c.GetTenant(cmd.Context(), &outbidv1.GetTenantRequest{Tenant: args[0]})
			if err != nil {
				return err
			}
			if err := o.onto(got.GetTenant().GetTenant(), cmd.Flags()); err != nil {
				return err
			}
			return a.setTenant(cmd, got.GetTenant().GetTenant(), false)
		},
	}
	o.add(cmd.Flags())
	return cmd
}

func (a *app) setTenant(cmd *cobra.Command, t *outbidv1.Tenant, add bool) error {
	c, err := a.connect()
	if err != nil {
		return err
	}
	defer c.close()
	got, err := c.SetTenant(cmd.Context(), &outbidv1.SetTenantRequest{Tenant: t, Add: add})
	if err != nil {
		return err
	}
	return a.printTenants(formatTable, got.GetTenant())
}

func (a *app) tenantListCommand() *cobra.Command {
	var out format
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List tenants with what they may have and what they have",
		Long: `List shows the tenants for which the caller may act: weights, sweeps that have not ended, devices held and their
quota by type, and device-hours of this calendar month (UTC), each with its limit.`,
		Example:           "  outbid tenant list -o json | jq '.[] | {name, held, device_hours}'",
		Args:              exactly(),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			defer c.close()
			got, err := c.ListTenants(cmd.Context(), &outbidv1.ListTenantsRequest{})
			if err != nil {
				return err
			}
			return a.printTenants(out, got.GetTenants()...)
		},
	}
	outputFlag(cmd, &out)
	return cmd
}

func (a *app) tenantShowCommand() *cobra.Command {
	var out format
	cmd := &cobra.Command{
		Use:     "show NAME",
		Short:   "Show one tenant",
		Long:    `Show prints what a tenant may have and what it has.`,
		Example: "  outbid tenant show vision",
		Args:    exactly("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			defer c.close()
			got, err := c.GetTenant(cmd.Context(), &outbidv1.GetTenantRequest{Tenant: args[0]})
			if err != nil {
				return err
			}
			return a.printTenants(out, got.GetTenant())
		},
	}
	outputFlag(cmd, &out)
	return cmd
}

func (a *app) tenantRemoveCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "remove NAME",
		Short: "Forget what was set for a tenant whose sweeps have all ended",
		Long: `Remove forgets a tenant's weight, quota, limits and members. Its sweeps stay, and must have ended. It takes an
admin's token.`,
		Example: "  outbid tenant remove vision",
		Args:    exactly("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			defer c.close()
			if _, err := c.RemoveTenant(cmd.Context(), &outbidv1.RemoveTenantRequest{Tenant: args[0]}); err != nil {
				return err
			}
			a.printf("%s has no settings any more\n", args[0])
			return nil
		},
	}
}

// tenantView is a tenant as commands print it.
type tenantView struct {
	Name        string           `json:"name"`
	Added       bool             `json:"added"`
	Weight      float64          `json:"weight"`
	Devices     *int32           `json:"quota_devices,omitempty"`
	Types       map[string]int32 `json:"quota_types,omitempty"`
	MaxSweeps   *int32           `json:"max_sweeps,omitempty"`
	MaxHours    *float64         `json:"max_device_hours,omitempty"`
	LogBytes    string           `json:"log_bytes,omitempty"`
	BlobBytes   string           `json:"blob_bytes,omitempty"`
	MaxWeight   *float64         `json:"max_weight,omitempty"`
	Members     []string         `json:"members,omitempty"`
	Held        map[string]int32 `json:"held"`
	Sweeps      int32            `json:"sweeps"`
	DeviceHours float64          `json:"device_hours"`
}

func viewTenant(s *outbidv1.TenantState) tenantView {
	t, u := s.GetTenant(), s.GetUse()
	v := tenantView{
		Name: t.GetName(), Added: s.GetAdded(), Weight: t.GetWeight(), Types: t.GetQuota().GetTypes(), LogBytes: t.GetLimits().GetLogBytes(),
		BlobBytes: t.GetLimits().GetBlobBytes(), Members: t.GetMembers(), Held: u.GetHeld(), Sweeps: u.GetSweeps(), DeviceHours: u.GetDeviceHours(),
	}
	if v.Weight == 0 {
		v.Weight = 1
	}
	if q := t.GetQuota(); q != nil {
		v.Devices = q.Devices
	}
	if l := t.GetLimits(); l != nil {
		v.MaxSweeps, v.MaxHours, v.MaxWeight = l.Sweeps, l.DeviceHours, l.MaxWeight
	}
	return v
}

func (a *app) printTenants(out format, tenants ...*outbidv1.TenantState) error {
	l := newLister(a.stdout, out, []string{"TENANT", "WEIGHT", "SWEEPS", "HELD", "QUOTA", "HOURS", "MEMBERS"}, func(v tenantView) []string {
		sweeps, hours := fmt.Sprint(v.Sweeps), fmt.Sprintf("%.1f", v.DeviceHours)
		if v.MaxSweeps != nil {
			sweeps += fmt.Sprintf("/%d", *v.MaxSweeps)
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
	l.table.width = a.columns()
	for _, t := range tenants {
		if err := l.add(viewTenant(t)); err != nil {
			return err
		}
	}
	return l.close("no tenants; add one with 'outbid tenant add NAME'")
}

// byType lists numbers of devices by type, such as "k80:2 v100:1".
func byType(counts map[string]int32) string {
	var parts []string
	for _, kind := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%s:%d", clean(kind), counts[kind]))
	}
	return strings.Join(parts, " ")
}
