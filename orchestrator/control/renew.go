package control

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
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

// renewer renews leases while the loop cannot. It is safe for concurrent use.
type renewer struct {
	queue    *queue
	arrivals *arrivals
	time     *timekeeper
	deliver  func(*outbidv1.Orders) error
	patience time.Duration
	logger   *slog.Logger
	// busy is when the current step began in nanoseconds, or 0 between steps.
	busy atomic.Int64
	// sent holds the latest orders of each node, by name.
	sent sync.Map
}

// start sends nodes their last orders again during a long step, or while the loop's end waits for a policy,
// so that a slow decision does not end training. Renewals contain only what is in the ledger. Only nodes that were
// just seen are renewed, so none trains for longer than the core waits before it counts as lost. A step longer than
// AppendPatience will fail, and is not covered. The returned function ends the renewals and waits.
func (r *renewer) start() (stop func()) {
	ctx, cancel := context.WithCancel(r.queue.leading)
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
			began := r.busy.Load()
			if took := time.Since(time.Unix(0, began)); began != 0 && took >= renewAfter && took < r.patience {
				r.renew(times)
			}
		}
	})
	return func() { cancel(); wg.Wait() }
}

// renew sends each node that was seen within nodes.LeaseMargin its orders again. times counts the renewals since the loop
// last sent orders, by node. A renewal that is overtaken by new orders has a lower generation than those, and workers
// ignore it.
func (r *renewer) renew(times map[string]uint64) {
	now := r.time.now()
	r.sent.Range(func(_, known any) bool {
		o, _ := known.(*outbidv1.Orders)
		if o.GetHello() || now.Sub(r.arrivals.lastSeen(o.GetNode())) > nodes.LeaseMargin {
			return true
		}
		again := proto.CloneOf(o)
		times[o.GetNode()]++
		again.Generation += 1 + times[o.GetNode()]%(nodes.Renewals-1)
		if err := r.deliver(again); err != nil {
			r.logger.Warn("could not renew a lease", "node", o.GetNode(), "err", err)
		}
		return true
	})
}
