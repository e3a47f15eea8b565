package api

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/limits"
	"github.com/outbid-dev/outbid/orchestrator/state"
)

// throttle limits each tenant's open streams and its submissions per minute. A caller for every tenant is limited by
// its own name; an admin is not limited.
type throttle struct {
	limitOf func(tenant string) limits.Tenant
	now     func() time.Time

	mu      sync.Mutex
	tenants map[string]*tenantUsage
}

// tenantUsage is a tenant's use of the API.
type tenantUsage struct {
	streams int64
	// tokens is the number of sweeps that it could submit at once at the time at.
	tokens float64
	at     time.Time
}

func newThrottle(limitOf func(string) limits.Tenant) *throttle {
	return &throttle{limitOf: limitOf, now: time.Now, tenants: map[string]*tenantUsage{}}
}

// keptTenants limits how many tenants are remembered. Tenants without streams are removed first.
const keptTenants = 10_000

// entry returns the entry of a tenant. The caller holds the lock.
func (t *throttle) entry(name string, limit limits.Tenant) *tenantUsage {
	a := t.tenants[name]
	if a == nil {
		if len(t.tenants) >= keptTenants {
			for other, o := range t.tenants {
				if o.streams == 0 {
					delete(t.tenants, other)
				}
			}
		}
		a = &tenantUsage{tokens: float64(limit.Submits), at: t.now()}
		t.tenants[name] = a
	}
	return a
}

// payer returns the name whose limit a call counts against: the tenant, or the caller if it may act for every tenant.
func (p Principal) payer() string {
	if p.Tenant == AnyTenant {
		return "caller " + p.Name
	}
	return "tenant " + p.Tenant
}

// submit counts a sweep that is submitted for a tenant, or returns an error with the time until the next one is
// allowed.
func (t *throttle) submit(who Principal, tenant string) error {
	limit := t.limitOf(tenant)
	if limit.Submits == limits.Unlimited || who.Role == RoleAdmin {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	a, now, most := t.entry("tenant "+tenant, limit), t.now(), float64(limit.Submits)
	a.tokens, a.at = min(most, a.tokens+now.Sub(a.at).Minutes()*most), now
	if a.tokens >= 1 {
		a.tokens--
		return nil
	}
	wait := time.Duration((1 - a.tokens) / most * float64(time.Minute))
	return &state.LimitError{
		Limit: "submits_per_minute", Tenant: tenant, RetryAfter: wait,
		Text: fmt.Sprintf("tenant %s submits more than %d sweeps per minute; retry in %s", tenant, limit.Submits, wait.Round(time.Millisecond)),
	}
}

// stream counts an open stream until done is called.
func (t *throttle) stream(ctx context.Context) (done func(), err error) {
	who := caller(ctx)
	name := who.payer()
	limit := t.limitOf(who.Tenant)
	t.mu.Lock()
	defer t.mu.Unlock()
	a := t.entry(name, limit)
	if limit.Streams != limits.Unlimited && a.streams >= limit.Streams && who.Role != RoleAdmin {
		over := &state.LimitError{Limit: "streams", Text: fmt.Sprintf("%s has %d of at most %d streams open; close some, or let several "+
			"readers share one", name, a.streams, limit.Streams)}
		if who.Tenant != AnyTenant {
			over.Tenant = who.Tenant
		}
		return nil, over
	}
	a.streams++
	return sync.OnceFunc(func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		a.streams--
	}), nil
}

// use returns a tenant's open streams and the sweeps that it submitted in the last minute.
func (t *throttle) use(tenant string) (streams, submits int64) {
	limit := t.limitOf(tenant)
	t.mu.Lock()
	defer t.mu.Unlock()
	a := t.tenants["tenant "+tenant]
	if a == nil {
		return 0, 0
	}
	if most := float64(limit.Submits); limit.Submits != limits.Unlimited {
		submits = int64(most - min(most, a.tokens+t.now().Sub(a.at).Minutes()*most) + .5)
	}
	return a.streams, submits
}
