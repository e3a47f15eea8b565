package worker

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/outbid-dev/outbid/orchestrator/bus"
	"github.com/outbid-dev/outbid/orchestrator/identity"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Link holds the connections of a Bus over NATS. The caller closes NC and Logs after the worker has ended.
type Link struct {
	NC   *nats.Conn
	Logs *bus.Logs
	// The holder of the credentials that sign the worker's messages. It accepts new credentials before the old ones
	// expire.
	Who *identity.Credentials
	// Check verifies that orders are signed by the server that the worker has joined.
	Check bus.Check
	// Renewed is called with the result of each renewal of the credentials.
	Renewed func(error)
}

// NATS returns a Bus over a NATS connection.
func NATS(l Link) Bus {
	b := &natsBus{Link: l, move: bus.Mover{NC: l.NC}}
	b.heard.Store(new(time.Now()))
	return b
}

type natsBus struct {
	Link
	move bus.Mover
	// heard is when orders last came.
	heard atomic.Pointer[time.Time]
}

// silence is how long no orders may come before their absence counts as a failure of NATS. They answer each uplink.
const silence = 3 * time.Second

// Publish implements Bus.
func (b *natsBus) Publish(up *outbidv1.Uplink) error {
	if now := time.Now(); now.Sub(*b.heard.Load()) > silence {
		b.move.Failed(now)
	}
	if end := b.Who.Expires(); !end.IsZero() {
		up.CredentialsExpireUnix = end.Unix()
	}
	return bus.PublishUplink(b.NC, up, b.Who.Key())
}

// MaxUplink implements Bus.
func (b *natsBus) MaxUplink() int { return bus.MaxMessage(b.NC) }

// Log implements Bus.
func (b *natsBus) Log(chunk *outbidv1.LogChunk) error { return b.Logs.Append(chunk) }

// Subscribe implements Bus.
func (b *natsBus) Subscribe(node string, f func(*outbidv1.Orders)) (func() error, error) {
	sub, err := bus.SubscribeOrders(b.NC, node, b.Check, func(o *outbidv1.Orders) {
		b.heard.Store(new(time.Now()))
		b.move.Worked()
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
func (b *natsBus) Reconnected(f func()) func() {
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
