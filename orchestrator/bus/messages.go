package bus

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"
	"google.golang.org/protobuf/proto"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// What a subscription may hold while its handler is busy; beyond it messages are dropped, and sent again by their
// senders.
const (
	pendingMessages = 1 << 20
	pendingBytes    = 256 << 20
)

// PublishUplink sends what a worker says. ErrNotConnected if there is no connection now.
func PublishUplink(nc *nats.Conn, up *outbidv1.Uplink) error {
	if err := CheckToken("node", up.GetNode()); err != nil {
		return err
	}
	return publish(nc, UplinkSubject(up.GetNode()), up)
}

// PublishOrders sends a node what it should be doing. ErrNotConnected if there is no connection now.
func PublishOrders(nc *nats.Conn, orders *outbidv1.Orders) error {
	if err := CheckToken("node", orders.GetNode()); err != nil {
		return err
	}
	return publish(nc, OrdersSubject(orders.GetNode()), orders)
}

func publish(nc *nats.Conn, subject string, m proto.Message) error {
	if !nc.IsConnected() {
		return ErrNotConnected
	}
	data, err := proto.Marshal(m)
	if err != nil {
		return fmt.Errorf("encode %s: %w", subject, err)
	}
	if err := nc.Publish(subject, data); err != nil {
		return fmt.Errorf("publish %d bytes on %s: %w", len(data), subject, err)
	}
	return nil
}

// Subscription delivers messages, one at a time and in order, until Stop.
type Subscription struct {
	sub    *nats.Subscription
	closed chan struct{}
	once   sync.Once
}

func (s *Subscription) ended(string) { s.once.Do(func() { close(s.closed) }) }

// Stop ends the subscription and waits until its handler has returned. It must not be called from the handler.
func (s *Subscription) Stop() error {
	err := s.sub.Unsubscribe()
	if errors.Is(err, nats.ErrBadSubscription) || errors.Is(err, nats.ErrConnectionClosed) {
		err = nil
	}
	<-s.closed
	return err
}

// SubscribeUplinks delivers the uplinks of every node. An uplink that names another node than its subject is dropped.
func SubscribeUplinks(nc *nats.Conn, f func(*outbidv1.Uplink)) (*Subscription, error) {
	return subscribe(nc, uplinkPrefix+"*", func(m *nats.Msg) {
		up := new(outbidv1.Uplink)
		if proto.Unmarshal(m.Data, up) == nil && strings.TrimPrefix(m.Subject, uplinkPrefix) == up.GetNode() {
			f(up)
		}
	})
}

// SubscribeOrders delivers the orders of one node.
func SubscribeOrders(nc *nats.Conn, node string, f func(*outbidv1.Orders)) (*Subscription, error) {
	if err := CheckToken("node", node); err != nil {
		return nil, err
	}
	return subscribe(nc, OrdersSubject(node), func(m *nats.Msg) {
		orders := new(outbidv1.Orders)
		if proto.Unmarshal(m.Data, orders) == nil && orders.GetNode() == node {
			f(orders)
		}
	})
}

// subscribe returns once the server has the subscription, so that what is published afterwards is delivered.
func subscribe(nc *nats.Conn, subject string, f nats.MsgHandler) (*Subscription, error) {
	sub, err := nc.Subscribe(subject, f)
	if err != nil {
		return nil, fmt.Errorf("subscribe to %s: %w", subject, err)
	}
	s := &Subscription{sub: sub, closed: make(chan struct{})}
	sub.SetClosedHandler(s.ended)
	if !sub.IsValid() { // closed before the handler was set
		s.ended(subject)
	}
	if err := sub.SetPendingLimits(pendingMessages, pendingBytes); err != nil {
		return nil, errors.Join(fmt.Errorf("subscribe to %s: %w", subject, err), s.Stop())
	}
	if err := nc.FlushTimeout(connectTimeout); err != nil {
		return nil, errors.Join(fmt.Errorf("subscribe to %s: %w", subject, err), s.Stop())
	}
	return s, nil
}
