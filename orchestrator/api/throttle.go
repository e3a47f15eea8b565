package api

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/limits"
	"github.com/outbid-dev/outbid/orchestrator/state"
)

// throttle limits each tenant's open streams, and its submissions and other changes per minute. A caller for every tenant
// is limited by its own name; an admin is not limited.
type throttle struct {
	limitOf func(tenant string) limits.Tenant
	now     func() time.Time

	mu      sync.Mutex
	tenants map[string]*tenantUsage
}

// tenantUsage is a tenant's use of the API.
type tenantUsage struct {
	streams int64
	// submits counts sweeps that are submitted or extended, and changes all calls that change something.
	submits, changes bucket
}

// changesPerSubmit is how many calls that change something a tenant may make for each sweep that it may submit.
const changesPerSubmit = 20

// bucket limits calls per minute. A minute's calls may be made at once.
type bucket struct {
	// tokens is the number of calls that could be made at the time at.
	tokens float64
	at     time.Time
}

// left returns the number of calls that could be made at a time.
func (b bucket) left(now time.Time, perMinute float64) float64 {
	return min(perMinute, b.tokens+now.Sub(b.at).Minutes()*perMinute)
}

// take counts a call, or returns the time until the next one is allowed.
func (b *bucket) take(now time.Time, perMinute float64) (wait time.Duration) {
	b.tokens, b.at = b.left(now, perMinute), now
	if b.tokens >= 1 {
		b.tokens--
		return 0
	}
	return time.Duration((1 - b.tokens) / perMinute * float64(time.Minute))
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
		a = &tenantUsage{
			submits: bucket{float64(limit.Submits), t.now()}, changes: bucket{changesPerSubmit * float64(limit.Submits), t.now()},
		}
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

// submit counts a sweep that is submitted or extended for a tenant, or returns an error with the time until the next one is
// allowed.
func (t *throttle) submit(who Principal, tenant string) error {
	limit := t.limitOf(tenant)
	if limit.Submits == limits.Unlimited || who.Role == RoleAdmin {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if wait := t.entry("tenant "+tenant, limit).submits.take(t.now(), float64(limit.Submits)); wait > 0 {
		return tooMany(tenant, wait, "tenant %s submits or extends more than %d sweeps per minute", tenant, limit.Submits)
	}
	return nil
}

// change counts a call that changes something, or returns an error with the time until the next one is allowed.
func (t *throttle) change(who Principal, r rule) error {
	limit := t.limitOf(who.Tenant)
	if !r.isThrottled() || limit.Submits == limits.Unlimited || who.Role == RoleAdmin {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	name, most := who.payer(), changesPerSubmit*limit.Submits
	if wait := t.entry(name, limit).changes.take(t.now(), float64(most)); wait > 0 {
		tenant := who.Tenant
		if tenant == AnyTenant {
			tenant = ""
		}
		return tooMany(tenant, wait, "%s makes more than %d changes per minute, which are %d times its submits_per_minute", name, most, changesPerSubmit)
	}
	return nil
}

// tooMany returns the error for a call above submits_per_minute.
func tooMany(tenant string, wait time.Duration, format string, args ...any) error {
	return &state.LimitError{
		Limit: "submits_per_minute", Tenant: tenant, RetryAfter: wait,
		Text: fmt.Sprintf(format+"; retry in %s", append(args, wait.Round(time.Millisecond))...),
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

// use returns a tenant's open streams and the sweeps that it submitted or extended in the last minute.
func (t *throttle) use(tenant string) (streams, submits int64) {
	limit := t.limitOf(tenant)
	t.mu.Lock()
	defer t.mu.Unlock()
	a := t.tenants["tenant "+tenant]
	if a == nil {
		return 0, 0
	}
	if most := float64(limit.Submits); limit.Submits != limits.Unlimited {
		submits = int64(most - a.submits.left(t.now(), most) + .5)
	}
	return a.streams, submits
}
