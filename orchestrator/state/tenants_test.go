package state_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

func tenantChanged(t *outbidv1.Tenant) *event {
	return &event{Kind: &outbidv1.Event_TenantChanged{TenantChanged: &outbidv1.TenantChanged{Tenant: t, Actor: "root"}}}
}

// What tenants may have and have used is the same when restored, in the month that it was used in and in no other.
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

func TestWhatAQuotaAllows(t *testing.T) {
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
