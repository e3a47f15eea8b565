package control

import (
	"context"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/outbid-dev/outbid/orchestrator/control/nodes"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

const (
	// renewAfter is the duration of a step after which leases are renewed during it, and renewEvery how often they
	// are.
	renewAfter = 2 * time.Second
	renewEvery = time.Second
)

// startRenewing sends nodes their last orders again during a long step, or while the loop's end waits for a policy,
// so that a slow decision does not end training. Renewals contain only what is in the ledger. Only nodes that were
// just seen are renewed, so none trains for longer than the core waits before it counts as lost. A step longer than
// AppendPatience will fail, and is not covered. The returned function ends the renewals and waits.
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

// renew sends each node that was seen within nodes.LeaseMargin its orders again. times counts the renewals since the loop
// last sent orders, by node.
func (l *Loop) renew(times map[string]uint64) {
	now := l.clock.now()
	l.sent.Range(func(_, known any) bool {
		o, _ := known.(*outbidv1.Orders)
		if o.GetHello() || now.Sub(l.lastSeen(o.GetNode())) > nodes.LeaseMargin {
			return true
		}
		again := proto.CloneOf(o)
		times[o.GetNode()]++
		again.Generation += 1 + times[o.GetNode()]%(nodes.Renewals-1)
		if err := l.cfg.Send(again); err != nil {
			l.cfg.Logger.Warn("could not renew a lease", "node", o.GetNode(), "err", err)
		}
		return true
	})
}
