package state_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

func tenantChanged(t *outbidv1.Tenant) *event {
	return &event{Kind: &outbidv1.Event_TenantChanged{TenantChanged: &outbidv1.TenantChanged{Tenant: t, Actor: "root"}}}
}

// The settings and the use of tenants are the same when restored. Use counts in its own month only.
func TestTenantsAreFoldedMeteredAndRestored(t *testing.T) {
	t.Parallel()
	st := state.New()
	now := time.Date(2026, 1, 31, 23, 0, 0, 0, time.UTC)
	apply := func(events ...*event) {
		t.Helper()
		for _, e := range events {
			if err := st.Apply(now, e); err != nil {
				t.Fatal(err)
			}
		}
	}
	vision := &outbidv1.Tenant{Name: "default", Weight: 2, Quota: &outbidv1.TenantQuota{Types: map[string]int32{"cpu": 3}}}
	apply(tenantChanged(vision), submitted(spec(1)), joined(1), created(0), granted(0, 1, 0))
	if u := st.TenantUse("default", now.Add(30*time.Minute)); u.DeviceSeconds != 1800 || u.Sweeps != 1 || len(u.Held) != 1 {
		t.Errorf("it uses %+v", u)
	}
	now = now.Add(3 * time.Hour) // two of them in February
	if u := st.TenantUse("default", now); u.DeviceSeconds != 7200 {
		t.Errorf("%g device-seconds of a lease that runs, want those of this month", u.DeviceSeconds)
	}
	apply(leaseEnded(0, 1))
	restored, err := state.Restore(st.Snapshot())
	if err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]*state.State{"folded": st, "restored": restored} {
		if u := s.TenantUse("default", now.Add(time.Hour)); u.DeviceSeconds != 7200 || len(u.Held) != 0 {
			t.Errorf("%s: it has used %+v", name, u)
		}
		if u := s.TenantUse("default", now.AddDate(0, 1, 0)); u.DeviceSeconds != 0 {
			t.Errorf("%s: %g device-seconds in another month", name, u.DeviceSeconds)
		}
		if diff := cmp.Diff(vision, s.Tenant("default"), protocmp.Transform()); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", name, diff)
		}
	}
	apply(&event{Kind: &outbidv1.Event_TenantRemoved{TenantRemoved: &outbidv1.TenantRemoved{Tenant: "default"}}})
	if st.Tenant("default") != nil {
		t.Error("it is there though it was removed")
	}
	if err := st.Apply(now, &event{Kind: &outbidv1.Event_TenantRemoved{TenantRemoved: &outbidv1.TenantRemoved{Tenant: "default"}}}); err == nil {
		t.Error("it was removed twice")
	}
}

func TestAllows(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		quota *outbidv1.TenantQuota
		want  int
	}{
		{nil, -1},
		{&outbidv1.TenantQuota{}, -1},
		{&outbidv1.TenantQuota{Devices: new(int32(0))}, 0},
		{&outbidv1.TenantQuota{Devices: new(int32(5))}, 5},
		{&outbidv1.TenantQuota{Types: map[string]int32{"k80": 1}}, -1},
		{&outbidv1.TenantQuota{Types: map[string]int32{"v100": 0}}, 0},
		{&outbidv1.TenantQuota{Devices: new(int32(5)), Types: map[string]int32{"v100": 9}}, 5},
		{&outbidv1.TenantQuota{Devices: new(int32(5)), Types: map[string]int32{"v100": 3}}, 3},
	} {
		if got := state.Allows(tc.quota, "v100"); got != tc.want {
			t.Errorf("%v allows %d, want %d", tc.quota, got, tc.want)
		}
	}
}

// TenantFull names the reason: the devices, those of a type, or the device-hours of the month.
func TestTenantFull(t *testing.T) {
	t.Parallel()
	now := at().Add(30 * time.Minute)
	gpus := func(n int, types ...string) cluster.Demand { return cluster.Demand{Min: n, Max: n, Types: types} }
	for name, tc := range map[string]struct {
		tenant *outbidv1.Tenant
		demand cluster.Demand
		want   string
	}{
		"nobody added it":        {&outbidv1.Tenant{Name: "another"}, gpus(9), ""},
		"nothing bounds it":      {&outbidv1.Tenant{Name: "default"}, gpus(9), ""},
		"room for one more":      {&outbidv1.Tenant{Name: "default", Quota: &outbidv1.TenantQuota{Devices: new(int32(2))}}, gpus(1), ""},
		"none for two":           {&outbidv1.Tenant{Name: "default", Quota: &outbidv1.TenantQuota{Devices: new(int32(2))}}, gpus(2), "tenant default holds 1 of the 2 devices of its quota"},
		"room of the type":       {&outbidv1.Tenant{Name: "default", Quota: &outbidv1.TenantQuota{Types: map[string]int32{"gpu": 2}}}, gpus(1, "gpu"), ""},
		"none of the type":       {&outbidv1.Tenant{Name: "default", Quota: &outbidv1.TenantQuota{Types: map[string]int32{"gpu": 2}}}, gpus(2, "gpu"), "the quota of tenant default does not allow 2 more devices of type gpu"},
		"another type would do":  {&outbidv1.Tenant{Name: "default", Quota: &outbidv1.TenantQuota{Types: map[string]int32{"gpu": 1}}}, gpus(1, "gpu", "tpu"), ""},
		"any type would do":      {&outbidv1.Tenant{Name: "default", Quota: &outbidv1.TenantQuota{Types: map[string]int32{"tpu": 1}}}, gpus(1), ""},
		"no type of the cluster": {&outbidv1.Tenant{Name: "default", Quota: &outbidv1.TenantQuota{Types: map[string]int32{"gpu": 1}}}, gpus(1), "the quota of tenant default does not allow 1 more devices of type gpu"},
		"all types together":     {&outbidv1.Tenant{Name: "default", Quota: &outbidv1.TenantQuota{Types: map[string]int32{"gpu": 2, "tpu": 1}}}, cluster.Demand{Min: 2, Max: 2, Types: []string{"gpu", "tpu"}, Mixed: true}, ""},
		"neither of two":         {&outbidv1.Tenant{Name: "default", Quota: &outbidv1.TenantQuota{Types: map[string]int32{"gpu": 1, "tpu": 0}}}, gpus(1, "gpu", "tpu"), "the quota of tenant default does not allow 1 more devices of type gpu or tpu"},
		"hours left":             {&outbidv1.Tenant{Name: "default", Limits: &outbidv1.TenantLimits{DeviceHours: new(.75)}}, gpus(1), ""},
		"no hours left":          {&outbidv1.Tenant{Name: "default", Limits: &outbidv1.TenantLimits{DeviceHours: new(.5)}}, gpus(1), "tenant default has used 0.5 of its 0.5 device-hours of November 2023 (limits.device_hours); the next month begins on 2023-12-01"},
		"its sweeps are bounded": {&outbidv1.Tenant{Name: "default", Limits: &outbidv1.TenantLimits{Sweeps: new(int32(1))}}, gpus(1), ""},
	} {
		st := state.New()
		apply(t, st, tenantChanged(tc.tenant), submitted(spec(1)), joined(3), created(0), granted(0, 1, 0))
		if got := st.Publish().TenantFull("default", tc.demand, now); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
		wantSpent := ""
		if tc.tenant.GetLimits().GetDeviceHours() == .5 {
			wantSpent = tc.want
		}
		if got := st.SpentText("default", now); got != wantSpent {
			t.Errorf("%s: spent: %q", name, got)
		}
	}
}

// The devices that tenants hold by type, and the number of their running sweeps, are the same for the loop and for
// readers, and for one tenant as for all.
func TestTenantUse(t *testing.T) {
	t.Parallel()
	st := state.New()
	info := joined(3)
	info.GetNodeJoined().GetNode().Devices[1].Type = "tpu"
	hours := 1.0
	apply(t, st, tenantChanged(&outbidv1.Tenant{Name: "idle", Weight: 3}),
		tenantChanged(&outbidv1.Tenant{
			Name: "default", Quota: &outbidv1.TenantQuota{Devices: new(int32(4)), Types: map[string]int32{"gpu": 2}},
			Limits: &outbidv1.TenantLimits{DeviceHours: &hours},
		}),
		submitted(spec(1)), info, created(0), created(1), granted(0, 1, 0), granted(1, 2, 1))
	other := spec(1)
	other.Name, other.Tenant = "o", "vision"
	apply(t, st, submitted(other))
	later := at().Add(20 * time.Minute)
	if t0 := at(); state.MonthBegan(later) != state.MonthBegan(t0) {
		t.Fatal("the times of this test are of one month")
	}
	p := st.Publish()
	want := "map[gpu:1 tpu:1] 1 2400"
	for name, u := range map[string]state.TenantUse{
		"the loop": st.TenantUse("default", later), "readers": p.TenantUse("default", later),
		"several": st.TenantUses(later, &outbidv1.Tenant{Name: "vision"}, &outbidv1.Tenant{Name: "default"})[1],
	} {
		if got := fmt.Sprint(u.Held, u.Sweeps, u.DeviceSeconds); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	var lines []string
	for _, v := range p.TenantViews(later) {
		lines = append(lines, fmt.Sprint(v.GetTenant().GetName(), v.GetTenant().GetWeight(), v.GetAdded(), v.GetUse().GetHeld(),
			v.GetUse().GetSweeps(), fmt.Sprintf(" %.3f", v.GetUse().GetDeviceHours())))
	}
	if got, want := fmt.Sprint(lines), "[default0 true map[gpu:1 tpu:1] 1 0.667 idle3 true map[] 0 0.000 vision1 false map[] 1 0.000]"; got != want {
		t.Errorf("tenants are seen as\n%s, want\n%s", got, want)
	}
	apply(t, st, ended(0, outbidv1.TrialState_TRIAL_STATE_COMPLETED))
	if u := st.TenantUse("default", later); u.Held["gpu"] != 1 {
		t.Errorf("a lease holds its device until it ends: %v", u.Held)
	}
}
