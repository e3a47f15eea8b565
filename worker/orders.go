package worker

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/limits"
	"github.com/outbid-dev/outbid/orchestrator/sanitize"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// inbox holds the newest orders. Each message has the complete orders, so older ones are dropped.
type inbox struct {
	wake chan struct{}

	mu     sync.Mutex
	boot   string
	orders *outbidv1.Orders
	came   time.Time
	// term and generation are those of the newest orders.
	term, generation uint64
	// renew passes the end of the lease to the watchdog, because the loop may be late; nil without one.
	renew func(until time.Time)
	// stranger is another boot of the node that received orders. strange is when such orders began without any for
	// this boot, and again is when the last of them came.
	stranger       string
	strange, again time.Time
}

func (b *inbox) put(o *outbidv1.Orders) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if o.GetBoot() != b.boot {
		b.stranger, b.again = o.GetBoot(), time.Now()
		if b.strange.IsZero() {
			b.strange = time.Now()
		}
		return
	}
	b.strange = time.Time{}
	if older(o, b.term, b.generation) {
		return
	}
	b.orders, b.came, b.term, b.generation = o, time.Now(), o.GetTerm(), o.GetGeneration()
	if b.renew != nil && grants(o) {
		b.renew(b.came.Add(leaseOf(o)))
	}
	poke(b.wake)
}

func (b *inbox) get() (*outbidv1.Orders, time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	o := b.orders
	b.orders = nil
	return o, b.came
}

// setBoot changes the boot and drops all orders for the previous boot.
func (b *inbox) setBoot(boot string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.boot, b.orders, b.stranger, b.strange = boot, nil, "", time.Time{}
}

// takeRival returns another boot of the node that has received orders, once.
func (b *inbox) takeRival() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	boot := b.stranger
	b.stranger = ""
	return boot
}

// isOutranked reports whether all orders have gone to another worker of the same name for longer than rivalPatience.
func (b *inbox) isOutranked() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.strange.IsZero() && b.again.Sub(b.strange) >= rivalPatience
}

// grants reports whether orders grant a lease.
func grants(o *outbidv1.Orders) bool { return !o.GetHello() && o.GetRefused() == "" }

// leaseOf returns the lease that orders grant.
func leaseOf(o *outbidv1.Orders) time.Duration {
	if o.GetLease() == nil {
		return defaultLease
	}
	return o.GetLease().AsDuration()
}

func older(o *outbidv1.Orders, term, generation uint64) bool {
	return o.GetTerm() < term || o.GetTerm() == term && o.GetGeneration() < generation
}

// applyOrders brings the forks in line with orders.
func (l *workerLoop) applyOrders(o *outbidv1.Orders, came time.Time) {
	if o == nil {
		return
	}
	if older(o, l.term, l.generation) {
		return
	}
	l.term, l.generation = o.GetTerm(), o.GetGeneration()
	if o.GetTenants() && !l.cfg.closed && !l.cfg.TrustTrials {
		l.refused = ErrTenants
		return
	}
	if o.GetRefused() != "" {
		l.refused = fmt.Errorf("the server refuses this worker: %s", sanitize.Line(o.GetRefused(), limits.Detail))
		return
	}
	if o.GetHello() {
		l.handleHello()
		return
	}
	l.introduce, l.beat = false, o.GetBeat().AsDuration()
	l.leaseEnd = came.Add(leaseOf(o))
	clear(l.wanted)
	for _, as := range o.GetAssignments() {
		l.wanted[as.GetFork().GetLeaseId()] = true
		l.assign(as)
	}
	for _, leaseID := range l.leases() {
		if f := l.forks[leaseID]; !l.wanted[leaseID] && !f.hasEnded() {
			f.orders.direct(outbidv1.Verdict_VERDICT_STOP, 0, "ended by order", 0)
			if !f.started {
				l.runFork(f)
			}
		}
	}
	l.updateAverages(o.GetConsolidations())
	l.acknowledge(o.GetAckedSeq())
	l.dropDelivered()
	l.startWaiting()
}

// handleHello handles that the orchestrator does not know this boot. If it did know the boot before, it has lost its
// state, and these forks have no owner: the worker ends all forks and starts with a new boot.
func (l *workerLoop) handleHello() {
	l.introduce = true
	if l.out.begun() || len(l.forks) > 0 {
		l.cfg.Logger.Warn("the orchestrator does not know this worker any more; starting with a new boot")
		if rival := l.inbox.takeRival(); rival != "" {
			l.cfg.Logger.Warn("another worker may use the name of this node; give each worker its own name",
				"node", l.cfg.Node, "boot", rival)
		}
		l.cancelAll(errUnknown)
		l.run.Wait()
		clear(l.forks)
		l.out.reset()
		l.boots++
		l.boot = l.cfg.Boot + "-" + strconv.Itoa(l.boots)
		l.inbox.setBoot(l.boot)
		l.changed.Store(true)
	}
	l.send(true)
}

// assign starts or updates a fork as an assignment says.
func (l *workerLoop) assign(as *outbidv1.Assignment) {
	leaseID := as.GetFork().GetLeaseId()
	f := l.forks[leaseID]
	if f == nil {
		if as.GetBody() == nil || l.draining {
			return // the assignment is sent with its body once the orchestrator sees that the fork is not here
		}
		f = newFork(l, as)
		l.forks[leaseID] = f
		l.changed.Store(true)
	}
	f.messages.pace.setRate(as.GetReportRate())
	f.orders.direct(as.GetVerdict(), as.GetUntilStep(), as.GetReason(), as.GetVersion())
	if !f.started && as.GetVerdict() != outbidv1.Verdict_VERDICT_TRAIN {
		l.runFork(f) // ends without having started
	}
}

// acknowledge drops messages that are in the ledger, and tells training code which reports were decided on.
func (l *workerLoop) acknowledge(seq uint64) {
	var heard []*forkMessages
	l.out.acked(seq, func(e entry) {
		if e.report > 0 {
			if e.fork.acked == 0 {
				heard = append(heard, e.fork)
			}
			e.fork.acked = e.report
		}
		if e.message.GetEnded() != nil {
			e.fork.delivered = true
			l.changed.Store(true)
		}
	})
	for _, of := range heard {
		of.decided(of.acked)
		of.acked = 0
	}
}

// dropDelivered drops forks whose end is in the ledger and that the orders no longer list.
func (l *workerLoop) dropDelivered() {
	for leaseID, f := range l.forks {
		if f.messages.delivered && !l.wanted[leaseID] {
			delete(l.forks, leaseID)
		}
	}
}

// startWaiting starts the forks whose devices are free. A fork that ends uses its devices until it is gone.
func (l *workerLoop) startWaiting() {
	for _, leaseID := range l.leases() {
		if f := l.forks[leaseID]; !f.started && !l.hasBusyDevice(f) {
			l.runFork(f)
		}
	}
}

func (l *workerLoop) runFork(f *fork) {
	f.started = true
	l.run.Go(func() {
		f.run()
		l.changed.Store(true)
		poke(l.ended)
	})
}

// hasBusyDevice reports whether a running fork uses a device of this one.
func (l *workerLoop) hasBusyDevice(f *fork) bool {
	for _, o := range l.forks {
		if o == f || !o.started || o.hasEnded() {
			continue
		}
		for _, d := range o.body.GetDevices() {
			if slices.Contains(f.body.GetDevices(), d) {
				return true
			}
		}
	}
	return false
}

func (l *workerLoop) leases() []uint64 { return slices.Sorted(maps.Keys(l.forks)) }
