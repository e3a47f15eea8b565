package worker

import (
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// inbox holds the newest orders. Each message has the complete orders, so older ones are dropped.
type inbox struct {
	wake chan struct{}

	mu     sync.Mutex
	boot   string
	orders *outbidv1.Orders
	came   time.Time
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
	if b.orders != nil && older(o, b.orders.GetTerm(), b.orders.GetGeneration()) {
		return
	}
	b.orders, b.came = o, time.Now()
	poke(b.wake)
}

func (b *inbox) get() (*outbidv1.Orders, time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	o := b.orders
	b.orders = nil
	return o, b.came
}

// become changes the boot and drops all orders for the previous boot.
func (b *inbox) become(boot string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.boot, b.orders, b.stranger, b.strange = boot, nil, "", time.Time{}
}

// rival returns another boot of the node that has received orders, once.
func (b *inbox) rival() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	boot := b.stranger
	b.stranger = ""
	return boot
}

// outranked reports whether all orders have gone to another worker of the same name for longer than rivalPatience.
func (b *inbox) outranked() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.strange.IsZero() && b.again.Sub(b.strange) >= rivalPatience
}

func older(o *outbidv1.Orders, term, generation uint64) bool {
	return o.GetTerm() < term || o.GetTerm() == term && o.GetGeneration() < generation
}

// take brings the forks in line with orders.
func (a *agent) take(o *outbidv1.Orders, came time.Time) {
	if o == nil {
		return
	}
	if older(o, a.term, a.generation) {
		return
	}
	a.term, a.generation = o.GetTerm(), o.GetGeneration()
	if o.GetTenants() && !a.cfg.closed && !a.cfg.TrustTrials {
		a.refused = ErrTenants
		return
	}
	if o.GetHello() {
		a.hello()
		return
	}
	a.introduce = false
	lease := defaultLease
	if o.GetLease() != nil {
		lease = o.GetLease().AsDuration()
	}
	a.leaseEnd = came.Add(lease)
	clear(a.wanted)
	for _, as := range o.GetAssignments() {
		a.wanted[as.GetFork().GetLeaseId()] = true
		a.assign(as)
	}
	for _, leaseID := range a.leases() {
		if f := a.forks[leaseID]; !a.wanted[leaseID] && !f.over() {
			f.direct(outbidv1.Verdict_VERDICT_STOP, 0, "ended by order", 0)
			if !f.started {
				a.begin(f)
			}
		}
	}
	a.consolidate(o.GetConsolidations())
	a.acknowledge(o.GetAckedSeq())
	a.forget()
	a.startWaiting()
}

// hello handles that the orchestrator does not know this boot. If it did know the boot before, it has lost its state,
// and these forks have no owner: the worker ends all forks and starts with a new boot.
func (a *agent) hello() {
	a.introduce = true
	if a.out.begun() || len(a.forks) > 0 {
		a.cfg.Logger.Warn("the orchestrator does not know this worker any more; starting with a new boot")
		if rival := a.inbox.rival(); rival != "" {
			a.cfg.Logger.Warn("another worker may use the name of this node; give each worker its own name",
				"node", a.cfg.Node, "boot", rival)
		}
		a.cancelAll(errUnknown)
		a.run.Wait()
		clear(a.forks)
		a.out.reset()
		a.boots++
		a.boot = a.cfg.Boot + "-" + strconv.Itoa(a.boots)
		a.inbox.become(a.boot)
		a.changed.Store(true)
	}
	a.send(true)
}

// assign starts or updates a fork as an assignment says.
func (a *agent) assign(as *outbidv1.Assignment) {
	leaseID := as.GetFork().GetLeaseId()
	f := a.forks[leaseID]
	if f == nil {
		if as.GetBody() == nil || a.draining {
			return // the assignment is sent with its body once the orchestrator sees that the fork is not here
		}
		f = newFork(a, as)
		a.forks[leaseID] = f
		a.changed.Store(true)
	}
	f.pace.setRate(as.GetReportRate())
	f.direct(as.GetVerdict(), as.GetUntilStep(), as.GetReason(), as.GetVersion())
	if !f.started && as.GetVerdict() != outbidv1.Verdict_VERDICT_TRAIN {
		a.begin(f) // ends without having started
	}
}

// acknowledge drops messages that are in the ledger, and tells training code which reports were decided on.
func (a *agent) acknowledge(seq uint64) {
	var heard []*fork
	a.out.acked(seq, func(e entry) {
		if e.report > 0 {
			if e.fork.acked == 0 {
				heard = append(heard, e.fork)
			}
			e.fork.acked = e.report
		}
		if e.message.GetEnded() != nil {
			e.fork.delivered = true
			a.changed.Store(true)
		}
	})
	for _, f := range heard {
		f.tellAcked(f.acked)
		f.acked = 0
	}
}

// forget drops forks whose end is in the ledger and that the orders no longer list.
func (a *agent) forget() {
	for leaseID, f := range a.forks {
		if f.delivered && !a.wanted[leaseID] {
			delete(a.forks, leaseID)
		}
	}
}

// startWaiting starts the forks whose devices are free. A fork that ends uses its devices until it is gone.
func (a *agent) startWaiting() {
	for _, leaseID := range a.leases() {
		if f := a.forks[leaseID]; !f.started && !a.busy(f) {
			a.begin(f)
		}
	}
}

func (a *agent) begin(f *fork) {
	f.started = true
	a.run.Go(func() {
		f.run()
		a.changed.Store(true)
		poke(a.ended)
	})
}

// busy reports whether a running fork uses a device of this one.
func (a *agent) busy(f *fork) bool {
	for _, o := range a.forks {
		if o == f || !o.started || o.over() {
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

func (a *agent) leases() []uint64 { return slices.Sorted(maps.Keys(a.forks)) }
