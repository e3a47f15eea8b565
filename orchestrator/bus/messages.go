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

// These limits apply to a subscription whose handler is busy. Messages beyond them are dropped, and repeated by their
// senders.
const (
	pendingMessages = 1 << 20
	pendingBytes    = 256 << 20
)

// The field numbers of lists that most messages repeat: forks of an Uplink, assignments of Orders.
const (
	uplinkForks       = 5
	ordersAssignments = 6
)

// signatureHeader is the header with a message's signature.
const signatureHeader = "Outbid-Signature"

// Signer signs a message on a subject.
type Signer interface {
	Sign(subject string, data []byte) string
}

// Check returns an error unless the signature of a message on a subject is valid. It must be safe for concurrent use.
type Check func(subject string, data []byte, signature string) error

// PublishUplink sends a worker's message with its signature. It returns ErrNotConnected without a connection.
func PublishUplink(nc *nats.Conn, up *outbidv1.Uplink, by Signer) error {
	if err := CheckToken("node", up.GetNode()); err != nil {
		return err
	}
	return publish(nc, UplinkSubject(up.GetNode()), up, by)
}

// PublishOrders sends a node its orders with the server's signature. It returns ErrNotConnected without a connection.
func PublishOrders(nc *nats.Conn, orders *outbidv1.Orders, by Signer) error {
	if err := CheckToken("node", orders.GetNode()); err != nil {
		return err
	}
	return publish(nc, OrdersSubject(orders.GetNode()), orders, by)
}

func publish(nc *nats.Conn, subject string, m proto.Message, by Signer) error {
	if !nc.IsConnected() {
		return ErrNotConnected
	}
	message, err := signedMessage(subject, m, by)
	if err != nil {
		return err
	}
	if len(message.Data) > maxPieces {
		return fmt.Errorf("%w: it has %d bytes on %s; at most %d can be sent in pieces", ErrRefused, len(message.Data), subject, maxPieces)
	}
	for _, piece := range splitMessage(message, int(nc.MaxPayload())) {
		err := nc.PublishMsg(piece)
		switch {
		case err == nil:
		case errors.Is(err, nats.ErrMaxPayload):
			return fmt.Errorf("%w: it has %d bytes on %s, but NATS accepts %d (max_payload): %w", ErrRefused, len(piece.Data), subject, nc.MaxPayload(), err)
		case !nc.IsConnected():
			return fmt.Errorf("%w: %w", ErrNotConnected, err)
		default:
			return fmt.Errorf("publish %d bytes on %s: %w", len(message.Data), subject, err)
		}
	}
	return nil
}

// signatureBytes is an upper bound for the header with a signature.
const signatureBytes = 1 << 10

// MaxMessage returns the maximum size of an encoded message for the NATS server of nc, which also counts the signature.
func MaxMessage(nc *nats.Conn) int { return int(nc.MaxPayload()) - signatureBytes }

// signedMessage encodes and signs a message.
func signedMessage(subject string, m proto.Message, by Signer) (*nats.Msg, error) {
	data, err := proto.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("%w: encode %s: %w", ErrRefused, subject, err)
	}
	message := &nats.Msg{Subject: subject, Data: data}
	if by != nil {
		message.Header = nats.Header{signatureHeader: []string{by.Sign(subject, data)}}
	}
	return message, nil
}

// signed reports whether a message passes a check.
func (check Check) signed(m *nats.Msg) bool {
	return check == nil || check(m.Subject, m.Data, m.Header.Get(signatureHeader)) == nil
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

// bootsHeard limits the number of boots per node whose last uplink is remembered: up to two live ones, and earlier
// ones.
const bootsHeard = 16

// lastUplinks has the last uplink of each boot of a node, the newest boot last.
type lastUplinks []struct {
	boot string
	said uint64
}

// isNew reports whether the uplink is new.
func (h *lastUplinks) isNew(up *outbidv1.Uplink) bool {
	for i := range *h {
		if last := &(*h)[i]; last.boot == up.GetBoot() {
			newer := up.GetSaid() > last.said
			last.said = max(last.said, up.GetSaid())
			return newer
		}
	}
	*h = append(*h, struct {
		boot string
		said uint64
	}{up.GetBoot(), up.GetSaid()})
	*h = (*h)[max(0, len(*h)-bootsHeard):]
	return true
}

// SubscribeUplinks delivers the uplinks of all nodes. It drops uplinks that check rejects, that name another node than
// their subject, or that are repetitions: a recorded uplink must not make a worker seem alive.
func SubscribeUplinks(nc *nats.Conn, check Check, f func(*outbidv1.Uplink)) (*Subscription, error) {
	forks, nodes := newSame[*outbidv1.ForkStatus](uplinkForks), map[string]*lastUplinks{}
	return subscribe(nc, uplinkPrefix+"*", func(m *nats.Msg) {
		up := new(outbidv1.Uplink)
		if !check.signed(m) || forks.decode(m.Subject, m.Data, up, &up.Forks) != nil || strings.TrimPrefix(m.Subject, uplinkPrefix) != up.GetNode() {
			return
		}
		if nodes[up.GetNode()] == nil {
			nodes[up.GetNode()] = new(lastUplinks)
		}
		if nodes[up.GetNode()].isNew(up) {
			f(up)
		}
	})
}

// SubscribeOrders delivers the orders of one node. It drops orders that check rejects, or that are older than earlier
// ones: recorded orders must not make a worker continue with them.
func SubscribeOrders(nc *nats.Conn, node string, check Check, f func(*outbidv1.Orders)) (*Subscription, error) {
	if err := CheckToken("node", node); err != nil {
		return nil, err
	}
	var term, generation uint64
	began := false
	assignments := newSame[*outbidv1.Assignment](ordersAssignments)
	return subscribe(nc, OrdersSubject(node), func(m *nats.Msg) {
		orders := new(outbidv1.Orders)
		if !check.signed(m) || assignments.decode(node, m.Data, orders, &orders.Assignments) != nil || orders.GetNode() != node {
			return
		}
		if began && (orders.GetTerm() < term || orders.GetTerm() == term && orders.GetGeneration() <= generation) {
			return
		}
		began, term, generation = true, orders.GetTerm(), orders.GetGeneration()
		f(orders)
	})
}

// subscribe returns once NATS has the subscription, so that later messages are delivered. If NATS does not answer for some
// seconds, it gets the subscription once it is back.
func subscribe(nc *nats.Conn, subject string, f nats.MsgHandler) (*Subscription, error) {
	pieces := assembler{}
	sub, err := nc.Subscribe(subject, func(m *nats.Msg) {
		if whole := pieces.add(m); whole != nil {
			f(whole)
		}
	})
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
	if err := nc.FlushTimeout(connectTimeout); err != nil && nc.IsClosed() {
		return nil, errors.Join(fmt.Errorf("subscribe to %s: %w", subject, err), s.Stop())
	}
	return s, nil
}
