package api

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outbid-dev/outbid/orchestrator/limits"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
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

// stopClock lets no time pass for limits per minute, which grow again while a slow test runs.
func (h *testServer) stopClock() {
	h.throttle.mu.Lock()
	defer h.throttle.mu.Unlock()
	now := time.Now()
	h.throttle.now = func() time.Time { return now }
}

// Every call that changes something counts against the changes that a tenant may make in a minute, and no call that reads.
func TestEveryChangeIsThrottled(t *testing.T) {
	t.Parallel()
	limits, _, err := loadLimits(t, "default: {submits_per_minute: 1}")
	if err != nil {
		t.Fatal(err)
	}
	h := serve(t, func(c *Config) { c.Tokens, c.Limits = testTokens(t), limits })
	h.stopClock()
	h.control.add("digits-1", "vision", 1)
	h.control.add("words-1", "speech", 1)
	control := func(who, sweep string) error {
		_, err := h.dial(t, token(who)).ControlSweep(t.Context(), &outbidv1.ControlSweepRequest{Sweep: sweep, Command: outbidv1.SweepCommand_SWEEP_COMMAND_PAUSE})
		return err
	}
	for range changesPerSubmit {
		if err := control("ann", "digits-1"); err != nil {
			t.Fatal(err)
		}
		for _, m := range everyMethod(t) {
			if m.Name() == "NewWorkerToken" {
				_ = callEmpty(t, h.connect(t, token("olga")), m) // counts, though its request is wrong
			}
		}
	}
	if err := control("ann", "digits-1"); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "20 times its submits_per_minute; retry in") {
		t.Errorf("ann's next change: %v", err)
	}
	for who, sweep := range map[string]string{"bob": "words-1", "root": "digits-1"} {
		if err := control(who, sweep); err != nil {
			t.Errorf("%s's change: %v", who, err)
		}
	}
	// report_rate limits external clients, only an admin removes a tenant, and a worker joins without a tenant.
	others := []string{"AskTrial", "TellTrial", "RemoveTenant", "JoinWorker"}
	for _, m := range everyMethod(t) {
		refused := 0
		for _, who := range []string{"ann", "tess", "olga"} {
			if status.Code(callEmpty(t, h.connect(t, token(who)), m)) == codes.ResourceExhausted {
				refused++
			}
		}
		r := ruleOf(fullName(m))
		if changes := !slices.Contains([]string{"get", "list", "watch"}, r.verb) && !slices.Contains(others, string(m.Name())); changes != (refused > 0) {
			t.Errorf("%s, which is to %s %s, was refused %d times", m.Name(), r.verb, r.resource, refused)
		}
	}
}

func TestExtensionsAreThrottledLikeSubmissions(t *testing.T) {
	t.Parallel()
	limits, _, err := loadLimits(t, "default: {submits_per_minute: 2}")
	if err != nil {
		t.Fatal(err)
	}
	h := serve(t, func(c *Config) { c.Tokens, c.Limits = testTokens(t), limits })
	h.stopClock()
	h.control.add("digits-1", "vision", 1)
	h.control.add("words-1", "speech", 1)
	extend := func(who, sweep string) codes.Code {
		_, err := h.dial(t, token(who)).ExtendSweep(t.Context(), &outbidv1.ExtendSweepRequest{Sweep: sweep, Trials: new(int32(5))})
		return status.Code(err)
	}
	for i, want := range []codes.Code{codes.OK, codes.OK, codes.ResourceExhausted} {
		if got := extend("ann", "digits-1"); got != want {
			t.Errorf("extension %d: %s, want %s", i, got, want)
		}
	}
	if bob, root := extend("bob", "words-1"), extend("root", "digits-1"); bob != codes.OK || root != codes.OK {
		t.Errorf("bob: %s, root: %s", bob, root)
	}
}
