package worker

import (
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/outbid-dev/outbid/orchestrator/bus"
	"github.com/outbid-dev/outbid/orchestrator/identity"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Link is what the Bus over NATS stands on. The caller keeps connection and logs open for longer than the worker.
type Link struct {
	NC   *nats.Conn
	Logs *bus.Logs
	// Who signs what the worker says, and takes over new credentials before the old ones run out.
	Who *identity.Credentials
	// Check says whether orders are signed by the server that the worker has joined.
	Check bus.Check
	// Renewed hears how the taking over of new credentials went.
	Renewed func(error)
}

// NATS is the Bus over a NATS connection.
func NATS(l Link) Bus { return natsBus{l} }

type natsBus struct{ Link }

// Publish implements Bus.
func (b natsBus) Publish(up *outbidv1.Uplink) error {
	if end := b.Who.Expires(); !end.IsZero() {
		up.CredentialsExpireUnix = end.Unix()
	}
	return bus.PublishUplink(b.NC, up, b.Who.Key())
}

// MaxUplink implements Bus.
func (b natsBus) MaxUplink() int { return bus.MaxMessage(b.NC) }

// Log implements Bus.
func (b natsBus) Log(chunk *outbidv1.LogChunk) error { return b.Logs.Append(chunk) }

// Subscribe implements Bus.
func (b natsBus) Subscribe(node string, f func(*outbidv1.Orders)) (func() error, error) {
	sub, err := bus.SubscribeOrders(b.NC, node, b.Check, func(o *outbidv1.Orders) {
		if token := o.GetCredentials(); token != "" {
			b.Renewed(b.Who.Renew(token))
		}
		f(o)
	})
	if err != nil {
		return nil, err
	}
	return sub.Stop, nil
}

// Reconnected implements Bus.
func (b natsBus) Reconnected(f func()) func() {
	changes := b.NC.StatusChanged(nats.CONNECTED)
	var watch sync.WaitGroup
	watch.Go(func() {
		for range changes {
			f()
		}
	})
	return func() {
		b.NC.RemoveStatusListener(changes)
		watch.Wait()
	}
}
