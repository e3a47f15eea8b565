package bus

import (
	"errors"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

func uplink(node string, seq uint64) *outbidv1.Uplink {
	return &outbidv1.Uplink{Node: node, Boot: "b", FirstSeq: seq}
}

func receive[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatal("nothing came")
		panic("unreachable")
	}
}

func TestUplinks(t *testing.T) {
	t.Parallel()
	s := startServer(t, ServerConfig{})
	here, there := connect(t, ConnConfig{Server: s}), connect(t, ConnConfig{URL: s.URL()})
	got := make(chan *outbidv1.Uplink, 10)
	sub, err := SubscribeUplinks(here, nil, func(up *outbidv1.Uplink) { got <- up })
	if err != nil {
		t.Fatal(err)
	}
	liar, err := proto.Marshal(uplink("n2", 7))
	if err != nil {
		t.Fatal(err)
	}
	for _, data := range [][]byte{liar, []byte("\xff\xff")} {
		if err := there.Publish(UplinkSubject("n1"), data); err != nil {
			t.Fatal(err)
		}
	}
	for _, node := range []string{"n1", "gpu-07_b"} {
		if err := PublishUplink(there, uplink(node, 3), nil); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(uplink(node, 3), receive(t, got), protocmp.Transform()); diff != "" {
			t.Error(diff)
		}
	}
	for range 2 {
		if err := sub.Stop(); err != nil {
			t.Error(err)
		}
	}
}

func TestOrders(t *testing.T) {
	t.Parallel()
	s := startServer(t, ServerConfig{})
	nc := connect(t, ConnConfig{Server: s})
	got := make(chan *outbidv1.Orders, 10)
	sub, err := SubscribeOrders(nc, "n1", nil, func(o *outbidv1.Orders) { got <- o })
	if err != nil {
		t.Fatal(err)
	}
	for _, node := range []string{"n2", "n1"} {
		if err := PublishOrders(nc, &outbidv1.Orders{Node: node, Generation: 5}, nil); err != nil {
			t.Fatal(err)
		}
	}
	if o := receive(t, got); o.GetNode() != "n1" || o.GetGeneration() != 5 {
		t.Errorf("got %v", o)
	}
	if err := sub.Stop(); err != nil {
		t.Error(err)
	}
}

func TestStopWaitsAfterClose(t *testing.T) {
	t.Parallel()
	s := startServer(t, ServerConfig{})
	nc := connect(t, ConnConfig{Server: s})
	sub, err := SubscribeUplinks(nc, nil, func(*outbidv1.Uplink) {})
	if err != nil {
		t.Fatal(err)
	}
	nc.Close()
	if err := sub.Stop(); err != nil {
		t.Error(err)
	}
}

func TestCheckToken(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", "a.b", "a b", "*", ">", "-a", "a\n", "ä", strings.Repeat("x", 129)} {
		if err := CheckToken("node", name); err == nil || !strings.Contains(err.Error(), "node") {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range []string{"a", "A-1_b", "digits-12", strings.Repeat("x", 128)} {
		if err := CheckToken("node", name); err != nil {
			t.Error(err)
		}
	}
	s := startServer(t, ServerConfig{})
	nc := connect(t, ConnConfig{Server: s})
	if PublishUplink(nc, uplink("a.b", 1), nil) == nil || PublishOrders(nc, &outbidv1.Orders{Node: ">"}, nil) == nil {
		t.Error("published under an invalid name")
	}
	if _, err := SubscribeOrders(nc, "*", nil, nil); err == nil {
		t.Error("subscribed with an invalid name")
	}
}

// TestASubscriptionWaitsForNATS subscribes while NATS is away: the messages arrive once it is back.
func TestASubscriptionWaitsForNATS(t *testing.T) {
	t.Parallel()
	first := startServer(t, ServerConfig{})
	at, err := url.Parse(first.URL())
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(at.Port())
	if err != nil {
		t.Fatal(err)
	}
	nc := connect(t, ConnConfig{URL: first.URL()})
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	got := make(chan *outbidv1.Uplink, 10)
	if _, err := SubscribeUplinks(nc, nil, func(up *outbidv1.Uplink) { got <- up }); err != nil {
		t.Fatalf("while NATS is away: %v", err)
	}
	there := connect(t, ConnConfig{Server: startServer(t, ServerConfig{Port: port})})
	for seq := uint64(1); len(got) == 0; seq++ { // the subscription is there once the connection is
		if err := PublishUplink(there, uplink("n1", seq), nil); err != nil {
			t.Fatal(err)
		}
		if err := nc.FlushTimeout(patience); err != nil {
			t.Fatal(err)
		}
	}
	nc.Close()
	if _, err := SubscribeUplinks(nc, nil, func(*outbidv1.Uplink) {}); !errors.Is(err, nats.ErrConnectionClosed) {
		t.Errorf("on a closed connection: %v", err)
	}
}
