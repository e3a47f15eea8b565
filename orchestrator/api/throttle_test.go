package api

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/limits"
	"github.com/outbid-dev/outbid/orchestrator/state"
)

func TestSubmitsAreThrottledByTenant(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	th := newThrottle(func(tenant string) limits.Tenant {
		l := limits.Default()
		if l.Submits = 3; tenant == "free" {
			l.Submits = limits.Unlimited
		}
		return l
	})
	th.now = func() time.Time { return now }
	submit := func(tenant string, n int) (refused int, last error) {
		for range n {
			if err := th.submit(Principal{Tenant: tenant, Role: RoleUser}, tenant); err != nil {
				refused, last = refused+1, err
			}
		}
		return refused, last
	}
	if refused, _ := submit("a", 3); refused != 0 {
		t.Errorf("%d of three were refused", refused)
	}
	refused, err := submit("a", 2)
	limit := (*state.LimitError)(nil)
	if refused != 2 || !errors.As(err, &limit) || limit.Limit != "submits_per_minute" || limit.RetryAfter != 20*time.Second {
		t.Errorf("%d of two more were refused: %v", refused, err)
	}
	if refused, _ := submit("b", 3); refused != 0 {
		t.Errorf("%d of another tenant's were refused", refused)
	}
	if refused, _ := submit("free", 1000); refused != 0 {
		t.Errorf("%d of an unlimited tenant's were refused", refused)
	}
	now = now.Add(20 * time.Second)
	if refused, _ := submit("a", 2); refused != 1 {
		t.Errorf("%d of two were refused after a third of a minute", refused)
	}
	if _, submits := th.use("a"); submits != 3 {
		t.Errorf("%d were submitted in the last minute", submits)
	}
}

func TestStreamsAreCountedByTenant(t *testing.T) {
	t.Parallel()
	th := newThrottle(func(string) limits.Tenant { l := limits.Default(); l.Streams = 2; return l })
	as := func(tenant, name string) context.Context {
		return context.WithValue(t.Context(), principalKey{}, Principal{Name: name, Tenant: tenant, Role: RoleViewer})
	}
	one, err1 := th.stream(as("a", "ada"))
	_, err2 := th.stream(as("a", "bob"))
	_, err3 := th.stream(as("a", "ada"))
	if err1 != nil || err2 != nil || !errors.Is(err3, state.ErrLimit) {
		t.Fatal(err1, err2, err3)
	}
	if _, err := th.stream(as("b", "eve")); err != nil {
		t.Errorf("another tenant: %v", err)
	}
	if _, err := th.stream(as(AnyTenant, "ada")); err != nil {
		t.Errorf("a caller for every tenant: %v", err)
	}
	one()
	one()
	if _, err := th.stream(as("a", "ada")); err != nil {
		t.Errorf("after one was closed: %v", err)
	}
	if streams, _ := th.use("a"); streams != 2 {
		t.Errorf("%d streams", streams)
	}
}
