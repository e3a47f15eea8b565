package load

import (
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/outbid-dev/outbid/orchestrator/bus"
	"github.com/outbid-dev/outbid/orchestrator/identity"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Timing of the protocol, as in package worker.
const (
	beatEvery   = time.Second
	resendAfter = time.Second
	// mostMessages is the most messages in one uplink.
	mostMessages = 1000
)

// agent is a simulated worker.
type agent struct {
	who     *identity.Credentials
	info    *outbidv1.NodeInfo
	check   bus.Check
	steps   int64
	running *ring
	meter   *meter

	mu sync.Mutex
	nc *nats.Conn
	// boot is the current boot, first said as base, boots the number of those that the server has forgotten, and said
	// counts its uplinks.
	base, boot string
	boots      int
	said       uint64
	// introduce is set until the server knows this boot.
	introduce bool
	// queue has the messages that are not acknowledged. first is the number of the first one, and sent how many of them
	// are on their way, since sentAt.
	// urgent is set if an unsent message must not wait for the next visit.
	queue  []message
	first  uint64
	sent   int
	sentAt time.Time
	urgent bool
	// beat is the time between heartbeats, and said last at lastSaid. news is set if the forks have changed since then.
	beat     time.Duration
	lastSaid time.Time
	news     bool
	leaseEnd time.Time
	refused  bool
	forks    map[uint64]*fork
}

// message is a message to the server, and when it was made.
type message struct {
	*outbidv1.UplinkMessage
	made time.Time
}

// start introduces the worker over a new connection.
func (a *agent) start(nc *nats.Conn) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.nc = nc
	a.send(time.Now())
}

// leave tells the server that the node leaves, and returns the connection to close, or nil.
func (a *agent) leave() *nats.Conn {
	if a == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	nc := a.nc
	if nc == nil {
		return nil
	}
	a.nc = nil
	a.said++
	_ = bus.PublishUplink(nc, &outbidv1.Uplink{Node: a.info.GetName(), Boot: a.boot, Said: a.said, Leaving: true}, a.who.Key())
	for _, f := range a.forks {
		a.running.remove(f)
	}
	return nc
}

// visit does what is due.
func (a *agent) visit(now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.nc == nil || a.refused {
		return
	}
	if !a.leaseEnd.IsZero() && now.After(a.leaseEnd) {
		a.leaseEnd = time.Time{}
		a.meter.expired.Add(1)
		for _, f := range a.forks {
			a.end(f, outbidv1.ForkOutcome_FORK_OUTCOME_EXPIRED, now)
		}
	}
	late := a.sent > 0 && now.Sub(a.sentAt) >= resendAfter
	if late {
		a.sent = 0
	}
	// As the real worker: nothing has changed, so every tick but those that are due is left out.
	quiet := a.beat > beatEvery && !a.introduce && !a.news && now.Sub(a.lastSaid) <= a.beat-beatEvery/2
	if late || !quiet || a.sent < len(a.queue) {
		a.meter.beats.Add(1)
		a.send(now)
	}
}

// send sends an uplink with the messages that were not sent yet.
func (a *agent) send(now time.Time) {
	if a.nc == nil || a.refused {
		return
	}
	a.said++
	up := &outbidv1.Uplink{Node: a.info.GetName(), Boot: a.boot, Said: a.said, Health: &outbidv1.NodeHealth{Check: 1}}
	if a.introduce {
		up.Info = a.info
	}
	for _, lease := range a.leases() {
		f := a.forks[lease]
		if !f.delivered {
			up.Forks = append(up.Forks, &outbidv1.ForkStatus{Fork: f.ref, Version: f.version, Phase: f.phase()})
		}
	}
	if fresh := a.queue[a.sent:min(len(a.queue), a.sent+mostMessages)]; len(fresh) > 0 {
		up.FirstSeq = a.first + uint64(a.sent)
		for _, m := range fresh {
			up.Messages = append(up.Messages, m.UplinkMessage)
		}
		if a.sent == 0 {
			a.sentAt = now
		}
		a.sent += len(fresh)
		a.urgent = false
	}
	if end := a.who.Expires(); !end.IsZero() {
		up.CredentialsExpireUnix = end.Unix()
	}
	if bus.PublishUplink(a.nc, up, a.who.Key()) != nil {
		a.meter.unsent.Add(1) // the messages are repeated
		return
	}
	a.meter.uplinks.Add(1)
	a.lastSaid, a.news = now, false
}

func (a *agent) leases() []uint64 {
	leases := make([]uint64, 0, len(a.forks))
	for lease := range a.forks {
		leases = append(leases, lease)
	}
	slices.Sort(leases)
	return leases
}

// say queues a message.
func (a *agent) say(f *fork, m *outbidv1.UplinkMessage, now time.Time) {
	m.Fork, a.urgent = f.ref, a.urgent || m.GetBegan() == nil
	a.queue = append(a.queue, message{m, now})
}

// take follows orders.
func (a *agent) take(o *outbidv1.Orders) {
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	if o.GetBoot() != a.boot || a.nc == nil {
		return
	}
	a.meter.orders.Add(1)
	if token := o.GetCredentials(); token != "" {
		_ = a.who.Renew(token) // the server sends it again
	}
	switch {
	case o.GetRefused() != "":
		a.refused = true
		return
	case o.GetHello():
		a.forgotten(now)
		return
	}
	a.introduce = false
	a.beat = max(beatEvery, o.GetBeat().AsDuration())
	a.leaseEnd = now.Add(o.GetLease().AsDuration())
	a.acknowledge(o.GetAckedSeq(), now)
	wanted := make(map[uint64]bool, len(o.GetAssignments()))
	for _, as := range o.GetAssignments() {
		wanted[as.GetFork().GetLeaseId()] = true
		a.assign(as, now)
	}
	for lease, f := range a.forks {
		switch {
		case wanted[lease]:
		case f.delivered:
			delete(a.forks, lease)
		default:
			a.end(f, outbidv1.ForkOutcome_FORK_OUTCOME_ORDERED, now)
		}
	}
	if a.urgent {
		a.send(now)
	}
}

// forgotten starts a new boot, unless the server has never known this one, and introduces it.
func (a *agent) forgotten(now time.Time) {
	a.introduce = true
	if a.first > 1 || len(a.queue) > 0 || len(a.forks) > 0 {
		for lease, f := range a.forks {
			a.running.remove(f)
			delete(a.forks, lease)
		}
		a.queue, a.first, a.sent = nil, 1, 0
		a.boots++
		a.boot = a.base + "-" + strconv.Itoa(a.boots)
		a.info.Boot = a.boot
		a.meter.forgotten.Add(1)
	}
	a.send(now)
}

// acknowledge drops the messages up to a sequence number, whose reports are decided on.
func (a *agent) acknowledge(seq uint64, now time.Time) {
	n := 0
	for ; n < len(a.queue) && a.first+uint64(n) <= seq; n++ {
		m := a.queue[n]
		switch m.GetKind().(type) {
		case *outbidv1.UplinkMessage_Report:
			a.meter.decided(now.Sub(m.made))
		case *outbidv1.UplinkMessage_Ended:
			if f := a.forks[m.GetFork().GetLeaseId()]; f != nil {
				f.delivered = true
			}
		}
	}
	a.first += uint64(n)
	a.queue = slices.Delete(a.queue, 0, n)
	a.sent = max(0, a.sent-n)
	if n > 0 && a.sent > 0 {
		a.sentAt = now // a resend waits for the rest of the time
	}
}

// count adds the worker to a sample.
func (a *agent) count(s *Sample, now time.Time) {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.nc != nil && a.nc.IsConnected() {
		s.Connected++
	}
	if !a.introduce && now.Before(a.leaseEnd) {
		s.Leased++
	}
	if a.refused {
		s.Refused++
	}
	for _, f := range a.forks {
		if !f.ended {
			s.Running++
		}
	}
	for _, m := range a.queue {
		if m.GetReport() != nil {
			s.Waiting++
			s.Oldest = max(s.Oldest, now.Sub(m.made))
		}
	}
}
