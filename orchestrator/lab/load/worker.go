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

// worker is a simulated worker of a node.
type worker struct {
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
func (w *worker) start(nc *nats.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.nc = nc
	w.send(time.Now())
}

// leave tells the server that the node leaves, and returns the connection to close, or nil.
func (w *worker) leave() *nats.Conn {
	if w == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	nc := w.nc
	if nc == nil {
		return nil
	}
	w.nc = nil
	w.said++
	_ = bus.PublishUplink(nc, &outbidv1.Uplink{Node: w.info.GetName(), Boot: w.boot, Said: w.said, Leaving: true}, w.who.Key())
	for _, f := range w.forks {
		w.running.remove(f)
	}
	return nc
}

// visit does what is due.
func (w *worker) visit(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.nc == nil || w.refused {
		return
	}
	if !w.leaseEnd.IsZero() && now.After(w.leaseEnd) {
		w.leaseEnd = time.Time{}
		w.meter.expired.Add(1)
		for _, f := range w.forks {
			w.end(f, outbidv1.ForkOutcome_FORK_OUTCOME_EXPIRED, now)
		}
	}
	late := w.sent > 0 && now.Sub(w.sentAt) >= resendAfter
	if late {
		w.sent = 0
	}
	// As the real worker: nothing has changed, so every tick but those that are due is left out.
	quiet := w.beat > beatEvery && !w.introduce && !w.news && now.Sub(w.lastSaid) <= w.beat-beatEvery/2
	if late || !quiet || w.sent < len(w.queue) {
		w.meter.beats.Add(1)
		w.send(now)
	}
}

// send sends an uplink with the messages that were not sent yet.
func (w *worker) send(now time.Time) {
	if w.nc == nil || w.refused {
		return
	}
	w.said++
	up := &outbidv1.Uplink{Node: w.info.GetName(), Boot: w.boot, Said: w.said, Health: &outbidv1.NodeHealth{Check: 1}}
	if w.introduce {
		up.Info = w.info
	}
	for _, lease := range w.leases() {
		f := w.forks[lease]
		if !f.delivered {
			up.Forks = append(up.Forks, &outbidv1.ForkStatus{Fork: f.ref, Version: f.version, Phase: f.phase()})
		}
	}
	if fresh := w.queue[w.sent:min(len(w.queue), w.sent+mostMessages)]; len(fresh) > 0 {
		up.FirstSeq = w.first + uint64(w.sent)
		for _, m := range fresh {
			up.Messages = append(up.Messages, m.UplinkMessage)
		}
		if w.sent == 0 {
			w.sentAt = now
		}
		w.sent += len(fresh)
		w.urgent = false
	}
	if end := w.who.Expires(); !end.IsZero() {
		up.CredentialsExpireUnix = end.Unix()
	}
	if bus.PublishUplink(w.nc, up, w.who.Key()) != nil {
		w.meter.unsent.Add(1) // the messages are repeated
		return
	}
	w.meter.uplinks.Add(1)
	w.lastSaid, w.news = now, false
}

func (w *worker) leases() []uint64 {
	leases := make([]uint64, 0, len(w.forks))
	for lease := range w.forks {
		leases = append(leases, lease)
	}
	slices.Sort(leases)
	return leases
}

// say queues a message.
func (w *worker) say(f *fork, m *outbidv1.UplinkMessage, now time.Time) {
	m.Fork, w.urgent = f.ref, w.urgent || m.GetBegan() == nil
	w.queue = append(w.queue, message{m, now})
}

// take follows orders.
func (w *worker) take(o *outbidv1.Orders) {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	if o.GetBoot() != w.boot || w.nc == nil {
		return
	}
	w.meter.orders.Add(1)
	if token := o.GetCredentials(); token != "" {
		_ = w.who.Renew(token) // the server sends it again
	}
	switch {
	case o.GetRefused() != "":
		w.refused = true
		return
	case o.GetHello():
		w.forgotten(now)
		return
	}
	w.introduce = false
	w.beat = max(beatEvery, o.GetBeat().AsDuration())
	w.leaseEnd = now.Add(o.GetLease().AsDuration())
	w.acknowledge(o.GetAckedSeq(), now)
	wanted := make(map[uint64]bool, len(o.GetAssignments()))
	for _, as := range o.GetAssignments() {
		wanted[as.GetFork().GetLeaseId()] = true
		w.assign(as, now)
	}
	for lease, f := range w.forks {
		switch {
		case wanted[lease]:
		case f.delivered:
			delete(w.forks, lease)
		default:
			w.end(f, outbidv1.ForkOutcome_FORK_OUTCOME_ORDERED, now)
		}
	}
	if w.urgent {
		w.send(now)
	}
}

// forgotten starts a new boot, unless the server has never known this one, and introduces it.
func (w *worker) forgotten(now time.Time) {
	w.introduce = true
	if w.first > 1 || len(w.queue) > 0 || len(w.forks) > 0 {
		for lease, f := range w.forks {
			w.running.remove(f)
			delete(w.forks, lease)
		}
		w.queue, w.first, w.sent = nil, 1, 0
		w.boots++
		w.boot = w.base + "-" + strconv.Itoa(w.boots)
		w.info.Boot = w.boot
		w.meter.forgotten.Add(1)
	}
	w.send(now)
}

// acknowledge drops the messages up to a sequence number, whose reports are decided on.
func (w *worker) acknowledge(seq uint64, now time.Time) {
	n := 0
	for ; n < len(w.queue) && w.first+uint64(n) <= seq; n++ {
		m := w.queue[n]
		switch m.GetKind().(type) {
		case *outbidv1.UplinkMessage_Report:
			w.meter.decided(now.Sub(m.made))
		case *outbidv1.UplinkMessage_Ended:
			if f := w.forks[m.GetFork().GetLeaseId()]; f != nil {
				f.delivered = true
			}
		}
	}
	w.first += uint64(n)
	w.queue = slices.Delete(w.queue, 0, n)
	w.sent = max(0, w.sent-n)
	if n > 0 && w.sent > 0 {
		w.sentAt = now // a resend waits for the rest of the time
	}
}

// count adds the worker to a sample.
func (w *worker) count(s *Sample, now time.Time) {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.nc != nil && w.nc.IsConnected() {
		s.Connected++
	}
	if !w.introduce && now.Before(w.leaseEnd) {
		s.Leased++
	}
	if w.refused {
		s.Refused++
	}
	for _, f := range w.forks {
		if !f.ended {
			s.Running++
		}
	}
	for _, m := range w.queue {
		if m.GetReport() != nil {
			s.Waiting++
			s.Oldest = max(s.Oldest, now.Sub(m.made))
		}
	}
}
