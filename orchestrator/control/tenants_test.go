package control_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/control"
	"github.com/outbid-dev/outbid/orchestrator/lab"
	"github.com/outbid-dev/outbid/orchestrator/ledger"
	"github.com/outbid-dev/outbid/orchestrator/sim"
	"github.com/outbid-dev/outbid/orchestrator/spec"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// tenantCluster is a core with a node of four devices, which sweeps of several tenants share.
type tenantCluster struct {
	t    *testing.T
	core *control.Core
	led  *ledger.Memory
	now  time.Time
}

func newTenantCluster(t *testing.T, policy string) *tenantCluster {
	t.Helper()
	p, err := lab.Policies().New(policy, nil)
	if err != nil {
		t.Fatal(err)
	}
	c := &tenantCluster{t: t, led: ledger.NewMemory(), now: time.Date(2026, 3, 31, 20, 0, 0, 0, time.UTC)}
	set := settings()
	set.Lease = 24 * time.Hour // nodes send nothing, and none is lost
	c.core = control.NewCore(set, p, state.New())
	gpu := &outbidv1.Device{Type: "gpu"}
	c.step(control.Uplink{Message: &outbidv1.Uplink{Node: "a", Boot: "a1", Info: &outbidv1.NodeInfo{Devices: []*outbidv1.Device{gpu, gpu, gpu, gpu}}}})
	return c
}

func (c *tenantCluster) step(inputs ...control.Input) {
	c.t.Helper()
	c.now = c.now.Add(100 * time.Millisecond)
	out, err := c.core.Step(c.now, inputs...)
	if err != nil {
		c.t.Fatal(err)
	}
	if len(out.Events) > 0 {
		batch, err := c.led.Append(c.t.Context(), c.now, out.Events)
		if err != nil {
			c.t.Fatal(err)
		}
		c.core.Appended(batch)
	}
	for _, r := range out.Replies {
		r()
	}
	if err := sim.Check(c.core.State()); err != nil {
		c.t.Fatal(err)
	}
}

func (c *tenantCluster) set(t *outbidv1.Tenant) {
	c.t.Helper()
	c.step(control.SetTenant{Tenant: t, Actor: "root", Done: func(err error) {
		if err != nil {
			c.t.Error(err)
		}
	}})
}

func (c *tenantCluster) submit(tenant string, trials, devices int32) (id string, err error) {
	c.t.Helper()
	s := sim.Sweep("s", "min", trials, sim.Tuner("random", map[string]int64{"max_steps": 9}))
	s.Tenant, s.Resources = tenant, &outbidv1.Resources{Devices: &outbidv1.DeviceCount{Min: devices, Max: devices}}
	spec.Default(s)
	c.step(control.Submit{Spec: s, Done: func(done string, failed error) { id, err = done, failed }})
	return id, err
}

// holds returns how many devices a tenant's trials hold, without leases that are being revoked.
func (c *tenantCluster) holds(tenant string) (n int) {
	for _, s := range c.core.State().Live {
		for _, t := range s.Trials {
			for _, l := range t.Leases {
				if s.Spec.GetTenant() == tenant && l.Revoking == 0 {
					n += l.Size()
				}
			}
		}
	}
	return n
}

func (c *tenantCluster) expect(when string, one, two int) {
	c.t.Helper()
	if a, b := c.holds("one"), c.holds("two"); a != one || b != two {
		c.t.Errorf("%s the tenants hold %d and %d devices, want %d and %d", when, a, b, one, two)
	}
}

// tenant returns a tenant with a quota of devices and limits of sweeps and device-hours; a value below 0 means none.
func tenant(name string, devices, sweeps int32, hours float64) *outbidv1.Tenant {
	t := &outbidv1.Tenant{Name: name, Quota: &outbidv1.TenantQuota{}, Limits: &outbidv1.TenantLimits{}}
	if devices >= 0 {
		t.Quota.Devices = &devices
	}
	if sweeps >= 0 {
		t.Limits.Sweeps = &sweeps
	}
	if hours >= 0 {
		t.Limits.DeviceHours = &hours
	}
	return t
}

// A quota holds under every policy: devices beyond it go to other tenants, and leases beyond a lowered quota are
// revoked. A replay makes the same decisions.
func TestAQuotaHoldsUnderEveryPolicy(t *testing.T) {
	t.Parallel()
	for _, name := range lab.Policies().Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newTenantCluster(t, name)
			c.set(&outbidv1.Tenant{Name: "one", Quota: &outbidv1.TenantQuota{Types: map[string]int32{"gpu": 3}}})
			if _, err := c.submit("one", 4, 1); err != nil {
				t.Fatal(err)
			}
			for range 20 { // some policies need several rounds
				c.now = c.now.Add(time.Minute)
				c.step()
				if n := c.holds("one"); n > 3 {
					t.Fatalf("it holds %d devices, its quota is 3", n)
				}
			}
			held := c.holds("one")
			if held == 0 {
				t.Error("it holds nothing, its quota is 3")
			}
			c.set(&outbidv1.Tenant{Name: "one", Quota: &outbidv1.TenantQuota{Types: map[string]int32{"gpu": 1}}})
			if n := c.holds("one"); n > 1 {
				t.Errorf("%d devices are left to it, its quota is 1 now", n)
			}
			again, err := lab.Policies().New(name, nil)
			if err != nil {
				t.Fatal(err)
			}
			if audit, _, err := control.Replay(t.Context(), settings(), again, c.led.Another()); err != nil || audit.Differing > 0 {
				t.Errorf("replay: %v, %+v", err, audit)
			}
		})
	}
}

func TestDevicesBeyondAQuotaGoToOtherTenants(t *testing.T) {
	t.Parallel()
	c := newTenantCluster(t, "drf")
	c.set(tenant("one", 1, -1, -1))
	for _, who := range []string{"one", "two"} {
		if _, err := c.submit(who, 9, 1); err != nil {
			t.Fatal(err)
		}
	}
	c.expect("with a quota of 1", 1, 3)
	c.set(tenant("two", 2, -1, -1))
	c.expect("with another of 2", 1, 2)
}

// A sweep is refused if it could never run, exceeds the limit of sweeps, or comes after the device-hours are used up.
// The error names the field, the value and the limit.
func TestSubmissionsBeyondTenantLimitsAreRefused(t *testing.T) {
	t.Parallel()
	c := newTenantCluster(t, "drf")
	c.set(tenant("one", 2, 1, -1))
	if _, err := c.submit("one", 1, 3); !errors.Is(err, state.ErrInvalid) ||
		!strings.Contains(err.Error(), "resources.devices.min: 3 is more than tenant one may hold at once by its quota: 2 of type gpu") {
		t.Errorf("three devices, of two: %v", err)
	}
	if _, err := c.submit("one", 1, 2); err != nil {
		t.Fatal(err)
	}
	if _, err := c.submit("one", 1, 1); !errors.Is(err, state.ErrLimit) ||
		!strings.Contains(err.Error(), "sweeps: tenant one has 1 sweeps that have not ended; the limit is 1") {
		t.Errorf("a second sweep, of one: %v", err)
	}
	var removed error
	c.step(control.RemoveTenant{Tenant: "one", Done: func(err error) { removed = err }})
	if !errors.Is(removed, state.ErrConflict) {
		t.Errorf("a tenant with sweeps was removed: %v", removed)
	}
	late := sim.Sweep("late", "min", 1, sim.Tuner("random", map[string]int64{"max_steps": 9}))
	late.Deadline = "2026-03-31T19:00:00Z"
	c.step(control.Submit{Spec: late, Done: func(_ string, err error) {
		if !errors.Is(err, state.ErrInvalid) || !strings.Contains(err.Error(), "deadline: 2026-03-31T19:00:00Z has passed") {
			t.Errorf("a deadline in the past: %v", err)
		}
	}})
}

// When the device-hours are used up, leases end at that moment and not at the next event. The next month has new
// ones.
func TestDeviceHoursAreUsedUp(t *testing.T) {
	t.Parallel()
	c := newTenantCluster(t, "drf")
	c.set(tenant("one", -1, -1, 2)) // four devices for half an hour
	if _, err := c.submit("one", 4, 1); err != nil {
		t.Fatal(err)
	}
	c.expect("at first", 4, 0)
	next := c.core.Next()
	if left := next.Sub(c.now); left < 29*time.Minute || left > 31*time.Minute {
		t.Fatalf("it looks again in %s", left)
	}
	c.now = next
	c.step()
	c.expect("after two device-hours", 0, 0)
	if _, err := c.submit("one", 1, 1); !errors.Is(err, state.ErrConflict) || !strings.Contains(err.Error(), "of its 2 device-hours of March 2026") {
		t.Errorf("it submits all the same: %v", err)
	}
	if next := c.core.Next(); !next.Equal(time.Date(2026, 4, 1, 0, 0, 0, 0, time.UTC)) {
		t.Errorf("it looks again at %s", next)
	}
	c.now = c.core.Next()
	c.step()
	if _, err := c.submit("one", 1, 1); err != nil {
		t.Errorf("in April: %v", err)
	}
}
