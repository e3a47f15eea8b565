package server

import (
	"maps"
	"sync"
	"time"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// lateOutput is how long after the end of a lease its node may add to the trial's output, because a disconnected worker
// sends its buffered output when it is back.
const lateOutput = time.Hour

// printers records which nodes run which trials, or recently did, from the orders that are sent. Only these nodes may
// send the trial's output. It is safe for concurrent use.
type printers struct {
	mu     sync.Mutex
	leases map[printer]printing
	swept  time.Time
}

// printer is a node with a lease of a trial.
type printer struct {
	node, sweep string
	trial       int32
	lease       uint64
}

// printing has the trial's tenant, and when the node last ran the trial.
type printing struct {
	tenant string
	last   time.Time
}

func newPrinters() *printers { return &printers{leases: make(map[printer]printing)} }

func printerOf(node string, fork *outbidv1.ForkRef) printer {
	return printer{node, fork.GetSweep(), fork.GetTrial(), fork.GetLeaseId()}
}

// recordRun records that a node runs a tenant's trial.
func (p *printers) recordRun(node string, fork *outbidv1.ForkRef, tenant string, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leases[printerOf(node, fork)] = printing{tenant, now}
}

// recordOrders records the trials in an order. Orders name the tenant until the node has confirmed them.
func (p *printers) recordOrders(o *outbidv1.Orders, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range o.GetAssignments() {
		key := printerOf(o.GetNode(), a.GetFork())
		tenant := a.GetBody().GetTenant()
		if tenant == "" {
			tenant = p.leases[key].tenant
		}
		p.leases[key] = printing{tenant, now}
	}
	if now.Sub(p.swept) > lateOutput/10 {
		p.swept = now
		maps.DeleteFunc(p.leases, func(_ printer, l printing) bool { return now.Sub(l.last) > lateOutput })
	}
}

// may reports whether a node may add to the output of the trial in a chunk.
func (p *printers) may(c *outbidv1.LogChunk, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	l, ok := p.leases[printerOf(c.GetNode(), c.GetFork())]
	return ok && l.tenant == c.GetTenant() && now.Sub(l.last) <= lateOutput
}
