package control

import (
	"context"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

const (
	// renewAfter is how long a step may take until nodes' leases are renewed beside it, and renewEvery how often.
	renewAfter = 2 * time.Second
	renewEvery = time.Second
	// renewals is by how much the generation of orders grows: renewals of them take the numbers in between, so that workers
	// take none for newer than the next orders.
	renewals = 1 << 16
)

// startRenewing sends nodes the orders that they have once more while a step takes long, or a policy at the end: what takes
// its time must not end what workers train. Nothing is said that is not in the ledger. Only nodes that were heard
// just now are renewed: so none trains on for longer than it is waited for before it is taken for lost. What takes longer than
// AppendPatience will not end well, and is not covered. The function that it returns ends that and waits.
func (l *Loop) startRenewing() (stop func()) {
	ctx, cancel := context.WithCancel(l.leading)
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(renewEvery)
		defer tick.Stop()
		times := map[string]uint64{}
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			began := l.busy.Load()
			if took := time.Since(time.Unix(0, began)); began != 0 && took >= renewAfter && took < l.cfg.AppendPatience {
				l.renew(times)
			}
		}
	})
	return func() { cancel(); wg.Wait() }
}

// renew sends each node that was heard within leaseMargin its orders again. times counts the renewals since orders of the
// loop's went out, by node.
func (l *Loop) renew(times map[string]uint64) {
	now := l.clock.now()
	l.sent.Range(func(_, known any) bool {
		o, _ := known.(*outbidv1.Orders)
		if o.GetHello() || now.Sub(l.lastSeen(o.GetNode())) > leaseMargin {
			return true
		}
		again := proto.CloneOf(o)
		times[o.GetNode()]++
		again.Generation += 1 + times[o.GetNode()]%(renewals-1)
		if err := l.cfg.Send(again); err != nil {
			l.cfg.Logger.Warn("a lease could not be renewed", "node", o.GetNode(), "err", err)
		}
		return true
	})
}
