package server

import (
	"maps"
	"sync"
	"time"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// lateOutput is how long after the end of a lease its node may add to what the trial printed: a worker that was cut off
// sends what it kept when it is back.
const lateOutput = time.Hour

// printers knows which nodes run which trials, or did so a while ago: they alone may say what the trial prints. It hears of
// every order that is sent. It may be used by several goroutines.
type printers struct {
	mu     sync.Mutex
	leases map[printer]printing
	swept  time.Time
}

// printer is a node under one lease of a trial.
type printer struct {
	node, sweep string
	trial       int32
	lease       uint64
}

// printing says whose the trial is, and when the node was last to run it.
type printing struct {
	tenant string
	last   time.Time
}

func newPrinters() *printers { return &printers{leases: make(map[printer]printing)} }

func printerOf(node string, fork *outbidv1.ForkRef) printer {
	return printer{node, fork.GetSweep(), fork.GetTrial(), fork.GetLeaseId()}
}

// runs notes that a node runs a tenant's trial.
func (p *printers) runs(node string, fork *outbidv1.ForkRef, tenant string, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leases[printerOf(node, fork)] = printing{tenant, now}
}

// ordered notes what a node is told to run. Orders name the tenant until the node has taken them in.
func (p *printers) ordered(o *outbidv1.Orders, now time.Time) {
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

// may says whether a node may add to the output of the trial that a chunk names.
func (p *printers) may(c *outbidv1.LogChunk, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	l, ok := p.leases[printerOf(c.GetNode(), c.GetFork())]
	return ok && l.tenant == c.GetTenant() && now.Sub(l.last) <= lateOutput
}
