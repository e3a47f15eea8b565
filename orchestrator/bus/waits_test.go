package bus

import (
	"context"
	"errors"
	"io"
	"net"
	"net/url"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// until waits for a condition.
func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	ctx, tick := testContext(t), time.NewTicker(10*time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("timed out waiting for %s", what)
		}
	}
}

// TestALeaderWaitsForNATS checks that a leader that waits neither acts nor confirms its lease while NATS is away, and leads
// on in the same term when it is back.
func TestALeaderWaitsForNATS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := StartServer(ServerConfig{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	at, err := url.Parse(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(at.Port())
	if err != nil {
		t.Fatal(err)
	}
	nc := connect(t, ConnConfig{URL: s.URL()})
	lead, err := Campaign(testContext(t), nc, Candidate{ID: "a", TTL: testTTL, Patience: time.Second, Waits: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := lead.Confirm(testContext(t)); err != nil || !lead.Acts() {
		t.Errorf("a new leader: %v, acts %t", err, lead.Acts())
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	until(t, "the lease to expire", func() bool {
		overdue, err := lead.Overdue()
		return !lead.Acts() && overdue > 0 && err != nil
	})
	if !isOpen(lead.Lost()) {
		t.Error("it does not lead any more")
	}
	short, cancel := context.WithCancel(testContext(t))
	cancel()
	if err := lead.Confirm(short); !errors.Is(err, context.Canceled) {
		t.Errorf("an expired lease is confirmed: %v", err)
	}
	startServer(t, ServerConfig{Dir: dir, Port: port})
	if err := lead.Confirm(testContext(t)); err != nil || !lead.Acts() || !isOpen(lead.Lost()) {
		t.Errorf("after NATS is back: %v, acts %t", err, lead.Acts())
	}
	until(t, "the lease to be renewed", func() bool { overdue, _ := lead.Overdue(); return overdue == 0 })
	if l, err := CurrentLeader(testContext(t), nc); err != nil || l.Term != lead.Term() {
		t.Errorf("leader %+v, %v", l, err)
	}
	if err := lead.Resign(testContext(t)); err != nil {
		t.Error(err)
	}
}

// TestWhatWaitingMends checks which failures to connect are not final.
func TestWhatWaitingMends(t *testing.T) {
	t.Parallel()
	mended := []error{
		nats.ErrNoServers, nats.ErrTimeout, io.EOF, &net.OpError{Op: "dial", Err: errors.New("no route to host")}, &net.DNSError{Err: "no such host"},
	}
	final := []error{
		nats.ErrAuthorization, nats.ErrAuthExpired, errors.New("x509: certificate signed by unknown authority"), nats.ErrSecureConnRequired,
		&net.OpError{Op: "remote error", Err: errors.New("tls: bad certificate")}, &url.Error{Op: "parse", Err: errors.New("invalid character")},
	}
	for i, err := range append(mended, final...) {
		if MayConnectLater(err) != (i < len(mended)) {
			t.Errorf("%v: waiting mends it: %t", err, MayConnectLater(err))
		}
	}
	for err, want := range map[error]bool{
		context.DeadlineExceeded: true, nats.ErrNoResponders: true, apiError(10008): true, jetstream.ErrNoStreamResponse: true,
		jetstream.ErrStreamNotFound: false, apiError(10023): false, context.Canceled: false,
	} {
		if IsAway(err) != want {
			t.Errorf("%v: away is not %t", err, want)
		}
	}
}
