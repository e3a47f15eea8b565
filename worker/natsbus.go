package worker

import (
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/outbid-dev/outbid/orchestrator/bus"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// NATS is the Bus over a NATS connection. The caller keeps connection and logs open for longer than the worker.
func NATS(nc *nats.Conn, logs *bus.Logs) Bus { return natsBus{nc, logs} }

type natsBus struct {
	nc   *nats.Conn
	logs *bus.Logs
}

// Publish implements Bus.
func (b natsBus) Publish(up *outbidv1.Uplink) error { return bus.PublishUplink(b.nc, up) }

// Log implements Bus.
func (b natsBus) Log(chunk *outbidv1.LogChunk) error { return b.logs.Append(chunk) }

// Subscribe implements Bus.
func (b natsBus) Subscribe(node string, f func(*outbidv1.Orders)) (func() error, error) {
	sub, err := bus.SubscribeOrders(b.nc, node, f)
	if err != nil {
		return nil, err
	}
	return sub.Stop, nil
}

// Reconnected implements Bus.
func (b natsBus) Reconnected(f func()) func() {
	changes := b.nc.StatusChanged(nats.CONNECTED)
	var watch sync.WaitGroup
	watch.Go(func() {
		for range changes {
			f()
		}
	})
	return func() {
		b.nc.RemoveStatusListener(changes)
		watch.Wait()
	}
}
