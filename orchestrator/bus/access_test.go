package bus

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/outbid-dev/outbid/orchestrator/identity"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// TestAWorkerSendsTheOrchestratorsAnswersNowhereElse checks that a worker's request cannot make the server publish to a
// subject that the worker may not use.
func TestAWorkerSendsTheOrchestratorsAnswersNowhereElse(t *testing.T) {
	t.Parallel()
	inBothRealms(t, func(t *testing.T, r *realm) {
		t.Helper()
		r.answersGoHome(t)
	})
}

func (r *realm) answersGoHome(t *testing.T) {
	t.Helper()
	js, err := jetstream.New(r.admin)
	if err != nil {
		t.Fatal(err)
	}
	ledger, err := js.CreateStream(testContext(t), jetstream.StreamConfig{Name: "OUTBID_LEDGER", Subjects: []string{"outbid.v1.ledger"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish(testContext(t), "outbid.v1.ledger", []byte("batch")); err != nil {
		t.Fatal(err)
	}
	var asked atomic.Int64
	answers, err := AnswerAccess(r.admin, r.workers.Check, r.keys.Orders(), func(*outbidv1.AccessRequest) *outbidv1.AccessAnswer {
		asked.Add(1)
		return &outbidv1.AccessAnswer{Store: "answer"}
	})
	if err != nil {
		t.Fatal(err)
	}
	heard, err := r.admin.SubscribeSync(">")
	if err != nil {
		t.Fatal(err)
	}
	nc := connect(t, ConnConfig{URL: r.url, User: r.who["n1"]})
	req := &outbidv1.AccessRequest{Node: "n1", Key: "checkpoints/s-1/0/1-1.ckpt"}
	places := []string{
		"", "_INBOX_n2.x", "_INBOX_n1", "_INBOX_n1x.y", "_INBOX_*.x", OrdersSubject("n1"), OrdersSubject("n2"), UplinkSubject("n2"),
		AccessSubject("n2"), "outbid.v1.ledger", "$KV." + WorkersBucket + ".node.n2", "$KV." + LeaderBucket + ".leader",
		"$JS.API.STREAM.PURGE.OUTBID_LEDGER", "$JS.API.STREAM.DELETE.OUTBID_LEDGER", "$SYS.REQ.ACCOUNT.PING.CONNZ",
	}
	for _, reply := range places {
		m, err := signedMessage(AccessSubject("n1"), req, r.who["n1"].Key())
		if err != nil {
			t.Fatal(err)
		}
		m.Reply = reply
		if err := nc.PublishMsg(m); err != nil {
			t.Fatal(err)
		}
	}
	// Requests are handled in order: once this one is answered, all of the above were handled.
	by, err := identity.NewVerifier(r.keys.Orders().Public())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if a, err := RequestAccess(ctx, nc, req, r.who["n1"].Key(), by.Message); err != nil || a.GetStore() != "answer" {
		t.Fatalf("who asks in order got %v: %v", a, err)
	}
	if err := answers.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := r.admin.Flush(); err != nil {
		t.Fatal(err)
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("%d of %d requests were answered elsewhere", n-1, len(places))
	}
	info, err := ledger.Info(testContext(t))
	if err != nil || info.State.Msgs != 1 {
		t.Errorf("the ledger has %d batches, want 1: %v", info.State.Msgs, err)
	}
	for {
		m, err := heard.NextMsg(50 * time.Millisecond)
		if err != nil {
			return
		}
		if strings.Contains(string(m.Data), "answer") && !strings.HasPrefix(m.Subject, "_INBOX_n1.") && !ownReply(m) {
			t.Errorf("an answer came to %s", m.Subject)
		}
	}
}

// ownReply reports whether a message belongs to this connection's own requests or answers.
func ownReply(m *nats.Msg) bool {
	return strings.HasPrefix(m.Subject, "_INBOX.") && m.Header.Get(signatureHeader) == ""
}
