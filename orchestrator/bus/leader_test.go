package bus

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// testTTL is long enough for a busy machine to renew in time.
const testTTL = 3 * time.Second

type result struct {
	lead *Leadership
	err  error
}

func campaigning(ctx context.Context, nc *nats.Conn, id string) <-chan result {
	c := make(chan result, 1)
	go func() {
		lead, err := Campaign(ctx, nc, Candidate{ID: id, TTL: testTTL})
		c <- result{lead, err}
	}()
	return c
}

func isOpen(c <-chan struct{}) bool {
	select {
	case <-c:
		return false
	default:
		return true
	}
}

func TestExactlyOneLeads(t *testing.T) {
	t.Parallel()
	s := startServer(t, ServerConfig{})
	ctx := testContext(t)
	results := make(chan result)
	const n = 3
	for i := range n {
		nc := connect(t, ConnConfig{Server: s})
		go func() {
			lead, err := Campaign(ctx, nc, Candidate{ID: string(rune('a' + i)), TTL: testTTL})
			results <- result{lead, err}
		}()
	}
	term := uint64(0)
	for i := range n { // each leads in turn, after the previous one has resigned
		r := receive(t, results)
		if r.err != nil {
			t.Fatal(r.err)
		}
		if r.lead.Term() <= term {
			t.Errorf("term %d after %d", r.lead.Term(), term)
		}
		term = r.lead.Term()
		watched := time.Duration(0)
		if i == 0 {
			watched = testTTL * 5 / 4 // longer than a lease: it is being renewed
		}
		select {
		case other := <-results:
			t.Fatalf("%v leads too", other)
		case <-r.lead.Lost():
			t.Fatal("lost without a reason")
		case <-time.After(watched):
		}
		if err := r.lead.Resign(ctx); err != nil || isOpen(r.lead.Lost()) {
			t.Errorf("resign: %v", err)
		}
	}
	if _, err := CurrentLeader(ctx, connect(t, ConnConfig{Server: s})); !errors.Is(err, ErrNoLeader) {
		t.Errorf("after the last has resigned: %v", err)
	}
}

func TestDeadLeaderIsReplaced(t *testing.T) {
	t.Parallel()
	s := startServer(t, ServerConfig{})
	ctx := testContext(t)
	first, second := connect(t, ConnConfig{Server: s}), connect(t, ConnConfig{Server: s})
	if _, err := CurrentLeader(ctx, second); !errors.Is(err, ErrNoLeader) {
		t.Errorf("before anybody campaigned: %v", err)
	}
	a := receive(t, campaigning(ctx, first, "a"))
	if a.err != nil {
		t.Fatal(a.err)
	}
	b := campaigning(ctx, second, "b")
	if l, err := CurrentLeader(ctx, second); err != nil || l.ID != "a" || l.Term != a.lead.Term() {
		t.Errorf("leader %+v, %v", l, err)
	}
	cut := time.Now()
	first.Close() // like a killed process: it can neither renew nor resign
	r := receive(t, b)
	if r.err != nil || r.lead.Term() <= a.lead.Term() {
		t.Fatalf("second leader: %+v", r)
	}
	wait(t, "the first to know that it leads no more", a.lead.Lost())
	t.Logf("replaced after %s with a TTL of %s", time.Since(cut), testTTL)
	if l, err := CurrentLeader(ctx, second); err != nil || l.ID != "b" || l.Term != r.lead.Term() {
		t.Errorf("leader %+v, %v", l, err)
	}
	if err := r.lead.Resign(ctx); err != nil {
		t.Error(err)
	}
}

func TestForceDeposes(t *testing.T) {
	t.Parallel()
	s := startServer(t, ServerConfig{})
	ctx := testContext(t)
	nc := connect(t, ConnConfig{Server: s})
	old, err := Campaign(ctx, nc, Candidate{ID: "old", TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	lead, err := Campaign(ctx, nc, Candidate{ID: "new", TTL: testTTL, Force: true})
	if err != nil || lead.Term() <= old.Term() {
		t.Fatalf("%v, %v", lead, err)
	}
	if err := old.renew(ctx); !errors.Is(err, errDeposed) {
		t.Errorf("the deposed one renews: %v", err)
	}
	if err := errors.Join(old.Resign(ctx), lead.Resign(ctx)); err != nil {
		t.Error(err)
	}
}

func TestCampaignEndsWithContext(t *testing.T) {
	t.Parallel()
	s := startServer(t, ServerConfig{})
	nc := connect(t, ConnConfig{Server: s})
	ctx, cancel := context.WithCancel(testContext(t))
	lead := receive(t, campaigning(ctx, nc, "a"))
	b := campaigning(ctx, nc, "b")
	cancel()
	if r := receive(t, b); !errors.Is(r.err, context.Canceled) {
		t.Errorf("campaign after its context: %+v", r)
	}
	wait(t, "the leadership to end with its context", lead.lead.Lost())
	for _, c := range []Candidate{{}, {ID: "x", TTL: time.Millisecond}, {ID: "x", TTL: time.Hour}} {
		if _, err := Campaign(testContext(t), nc, c); err == nil {
			t.Errorf("took %+v", c)
		}
	}
}
