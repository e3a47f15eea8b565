package worker

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/outbid-dev/outbid/orchestrator/bus"
	"github.com/outbid-dev/outbid/orchestrator/identity"
	"github.com/outbid-dev/outbid/orchestrator/objects"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

func TestReachable(t *testing.T) {
	t.Parallel()
	const tail = ":7700/objects/a/b?bytes=0&signature=00"
	for _, c := range []struct{ url, nats, want, fail string }{
		{"", "nats://10.0.0.5:4222", "", ""},
		{"http://10.0.0.5" + tail, "nats://10.0.0.6:4222", "http://10.0.0.5" + tail, ""},
		{"https://tuner.example" + tail, "tls://10.0.0.6:4222", "https://tuner.example" + tail, ""},
		{"https://0.0.0.0" + tail, "tls://tuner.example:4222", "https://tuner.example" + tail, ""},
		{"https://[::]" + tail, "tls://10.0.0.6:4222", "https://10.0.0.6" + tail, ""},
		{"http://127.0.0.1" + tail, "nats://127.0.0.1:4222", "http://127.0.0.1" + tail, ""},
		{"http://127.0.0.1" + tail, "nats://localhost:4222", "http://127.0.0.1" + tail, ""},
		{"http://127.0.0.1" + tail, "nats://10.0.0.6:4222", "", "start it with --api"},
		// S3 signs the host, so it must not be replaced.
		{"http://127.0.0.1:9000/bucket/a?X-Amz-Signature=00", "nats://10.0.0.6:4222", "http://127.0.0.1:9000/bucket/a?X-Amz-Signature=00", ""},
	} {
		got, err := reachable(c.url, c.nats)
		if got != c.want || (err != nil) != (c.fail != "") || err != nil && !strings.Contains(err.Error(), c.fail) {
			t.Errorf("%s from %s: %q, %v", c.url, c.nats, got, err)
		}
	}
}

// A worker with only a connection to NATS stores and reads through the URLs that the orchestrator signs.
func TestAsking(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	keys, err := identity.MakeKeys(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	ns, err := bus.StartServer(bus.ServerConfig{Dir: t.TempDir(), Keys: keys})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ns.Close() })
	dial := func(who *identity.Credentials, err error) (*nats.Conn, *identity.Credentials) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		nc, err := bus.Connect(ctx, bus.ConnConfig{Server: ns, User: who})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		return nc, who
	}
	admin, _ := dial(keys.Orchestrator())
	nc, who := dial(keys.Worker("n1", time.Now()))
	by, err := identity.NewVerifier(who.Public())
	if err != nil {
		t.Fatal(err)
	}
	dir, err := objects.OpenDir(filepath.Join(t.TempDir(), "store"))
	if err != nil {
		t.Fatal(err)
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	handler := objects.NewHandler(dir, "http://"+l.Addr().String())
	server := httptest.NewUnstartedServer(handler)
	server.Listener = l
	server.Start()
	t.Cleanup(server.Close)

	fork := &outbidv1.ForkRef{Sweep: "s-1", Trial: 2, LeaseId: 7}
	asking, err := Asking(Link{NC: nc, Who: who, Check: orders(keys).Message}, nil)
	if err != nil {
		t.Fatal(err)
	}
	access := asking(fork)
	if err := access.Put(ctx, "a/b", strings.NewReader("x"), 1); !errors.Is(err, objects.ErrUnavailable) {
		t.Errorf("no answer: %v", err)
	}
	var refuse string
	answers, err := bus.AnswerAccess(admin, by.Message, keys.Orders(), func(req *outbidv1.AccessRequest) *outbidv1.AccessAnswer {
		a := &outbidv1.AccessAnswer{Store: dir.String()}
		if req.GetNode() != "n1" || req.GetFork().GetLeaseId() != 7 {
			refuse = "asked for another"
		}
		if a.Refused = refuse; refuse != "" {
			return a
		}
		signed, err := handler.SignGet(context.Background(), req.GetKey())
		if req.GetWrite() {
			signed, err = handler.SignPut(context.Background(), req.GetKey(), req.GetBytes())
		}
		if err != nil {
			a.Unavailable = err.Error()
			return a
		}
		a.Object = &outbidv1.SignedObject{Url: signed.URL}
		return a
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := access.Put(ctx, "a/b", strings.NewReader("weights"), 7); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "start")
	if n, _, err := objects.GetFile(ctx, access, "a/b", path); err != nil || n != 7 {
		t.Errorf("%d bytes, %v", n, err)
	}
	if access.String() != dir.String() {
		t.Errorf("the store's name is %s", access)
	}
	if _, _, err := objects.GetFile(ctx, access, "a/none", path); !errors.Is(err, objects.ErrNotFound) {
		t.Errorf("a missing object: %v", err)
	}
	refuse = "not yours"
	if err := access.Put(ctx, "a/b", strings.NewReader("x"), 1); !errors.Is(err, objects.ErrRefused) || !strings.Contains(err.Error(), "not yours") {
		t.Errorf("refused: %v", err)
	}
	// A server that still believes it has a subscriber would leave the request without an answer.
	if err := errors.Join(answers.Stop(), admin.FlushTimeout(10*time.Second)); err != nil {
		t.Error(err)
	}
	short, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if _, err := access.Get(short, "a/b"); !errors.Is(err, objects.ErrUnavailable) {
		t.Errorf("without a responder: %v", err)
	}
	if status := func() int {
		resp, err := http.Get(server.URL + objects.HandlerPath + "a/b") //nolint:noctx // the request of a thief
		if err != nil {
			return 0
		}
		defer resp.Body.Close()
		return resp.StatusCode
	}(); status != http.StatusForbidden {
		t.Errorf("without a signature: %d", status)
	}
}
