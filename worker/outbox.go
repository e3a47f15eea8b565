package worker

import (
	"context"
	"slices"
	"sync"
	"time"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Limits of the outbox. Bytes are those of encoded messages.
const (
	// maxBacklog and maxBacklogBytes limit what may be queued. Beyond them, reports wait in the training processes. The
	// reports of a fork also wait while the queue has less room left than the fork uses, so that a fork that reports much
	// fills half of the queue at most, and leaves room for others.
	maxBacklog      = 400_000
	maxBacklogBytes = 64 << 20
	// maxUplink and maxUplinkBytes limit what goes into one uplink. The connection may allow less.
	maxUplink      = 4096
	maxUplinkBytes = 512 << 10
)

// sendDelay is how long a message that is not urgent waits, so that a short trial sends all its messages in one
// uplink.
const sendDelay = 5 * time.Millisecond

// maxFlights is how many uplinks may be in flight at once: enough that a report need not wait for the previous
// acknowledgement, few enough that reports are batched while the orchestrator is busy.
const maxFlights = 4

// outbox queues the worker's messages in order until the orchestrator has them in its ledger. A few uplinks are in
// flight at a time; messages that come meanwhile are sent with the next one.
type outbox struct {
	wake chan struct{}

	mu      sync.Mutex
	entries []entry
	// first is the sequence number of entries[0]; sequence numbers start at 1.
	first uint64
	// flights are the uplinks in flight, oldest first; flying counts their entries.
	flights []flight
	flying  int
	bytes   int
	// held is what each fork has in the queue.
	held map[*forkMessages]backlog
	room chan struct{}
	// due is set if messages that are not in flight have to be sent now. The delay timer sets it when messages that
	// are not urgent have waited long enough.
	due   bool
	delay *time.Timer
	// width limits the messages in one uplink while the outbox looks for one that cannot be sent; 0 means no limit.
	width int
	// scratch is a buffer for encoding messages to learn their sizes.
	scratch []byte
}

// backlog is a number of queued messages and their size.
type backlog struct{ messages, bytes int }

// flight is an uplink in flight: how many entries it carries, and when it was sent.
type flight struct {
	size int
	sent time.Time
}

// entry is one message, with the data needed when it is acknowledged.
type entry struct {
	message *outbidv1.UplinkMessage
	// fork may be nil.
	fork *forkMessages
	// bytes is how much the message takes in an uplink.
	bytes int
	// report is the sequence number of a report within its fork; 0 for other messages.
	report uint64
	// acked is closed once the message is in the ledger or dropped, unless it is nil.
	acked chan struct{}
}

func (e entry) release() {
	if e.acked != nil {
		close(e.acked)
	}
}

func newOutbox() *outbox {
	return &outbox{wake: make(chan struct{}, 1), first: 1, held: map[*forkMessages]backlog{}}
}

// add queues a message without waiting for room, because there are few such messages. It returns why the message
// cannot be sent, or nil.
func (o *outbox) add(f *forkMessages, m *outbidv1.UplinkMessage) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	err := o.push(entry{message: m, fork: f})
	o.flush()
	return err
}

// addAwaited queues a message like add. The channel is closed once the message is in the ledger, or was dropped for a
// new boot.
func (o *outbox) addAwaited(f *forkMessages, m *outbidv1.UplinkMessage) (<-chan struct{}, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	e := entry{message: m, fork: f, acked: make(chan struct{})}
	err := o.push(e)
	o.flush()
	return e.acked, err
}

// addDelayed queues a message that is sent with the next one, or alone after sendDelay. It returns why the message
// cannot be sent, or nil.
func (o *outbox) addDelayed(f *forkMessages, m *outbidv1.UplinkMessage) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	err := o.push(entry{message: m, fork: f})
	o.scheduleFlush()
	return err
}

// scheduleFlush schedules a flush after sendDelay. The caller holds the lock.
func (o *outbox) scheduleFlush() {
	if o.delay == nil {
		o.delay = time.AfterFunc(sendDelay, o.flushDelayed)
	}
}

// flushDelayed flushes the outbox after sendDelay.
func (o *outbox) flushDelayed() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.delay != nil {
		o.flush()
	}
}

// flush sends all queued messages now. The caller holds the lock.
func (o *outbox) flush() {
	o.due = true
	if o.delay != nil {
		o.delay.Stop()
		o.delay = nil
	}
	o.notify()
}

// addReports queues reports that checkReport has accepted, to be sent now or delayed. It waits while the backlog is
// full, or until ctx ends; then it returns false.
func (o *outbox) addReports(ctx context.Context, f *forkMessages, reports []*outbidv1.Report, delayed bool) (all bool) {
	type wrapped struct {
		message outbidv1.UplinkMessage
		kind    outbidv1.UplinkMessage_Report
	}
	wraps := make([]wrapped, len(reports)) // one allocation for all
	o.mu.Lock()
	defer o.mu.Unlock()
	for i, r := range reports {
		for !o.hasRoom(f) {
			if !o.awaitRoom(ctx) {
				return false
			}
		}
		w := &wraps[i]
		w.kind.Report = r
		w.message.Fork, w.message.Kind = f.ref, &w.kind
		e := entry{message: &w.message, fork: f, report: r.GetSeq(), bytes: admitReport(f, r)}
		o.append(e)
	}
	if delayed {
		o.scheduleFlush()
	} else {
		o.flush()
	}
	return true
}

// awaitRoom releases the lock until there may be room. It returns false if ctx ended.
func (o *outbox) awaitRoom(ctx context.Context) bool {
	if o.room == nil {
		o.room = make(chan struct{})
	}
	room := o.room
	o.flush()
	o.mu.Unlock()
	defer o.mu.Lock()
	select {
	case <-room:
		return true
	case <-ctx.Done():
		return false
	}
}

// push queues a message, or returns why it cannot be sent. The caller holds the lock.
func (o *outbox) push(e entry) error {
	var err error
	if e.bytes, err = o.admit(e.message); err != nil {
		return err
	}
	o.append(e)
	return nil
}

// append adds a message to the queue. The caller holds the lock.
func (o *outbox) append(e entry) {
	o.entries = append(o.entries, e)
	o.count(e.fork, 1, e.bytes)
}

// count adds queued messages of a fork and their bytes. The caller holds the lock.
func (o *outbox) count(f *forkMessages, messages, bytes int) {
	o.bytes += bytes
	h := o.held[f]
	h.messages, h.bytes = h.messages+messages, h.bytes+bytes
	if h.messages == 0 {
		delete(o.held, f)
	} else {
		o.held[f] = h
	}
}

// hasRoom reports whether another report of a fork may be queued. The caller holds the lock.
func (o *outbox) hasRoom(f *forkMessages) bool {
	h := o.held[f]
	return len(o.entries)+h.messages < maxBacklog && o.bytes+h.bytes < maxBacklogBytes
}

func (o *outbox) notify() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// ready returns the sequence number and the size in bytes of the first message to send now, or 0 and 0 if no message
// is due. That is a new message, or the oldest in flight if it was not acknowledged in time.
func (o *outbox) ready(now time.Time) (first uint64, bytes int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.flights) > 0 && now.Sub(o.flights[0].sent) >= resendAfter {
		o.flights, o.flying, o.due = o.flights[:0], 0, true
	}
	if len(o.entries) == o.flying || len(o.flights) == maxFlights || !o.due {
		return 0, 0
	}
	return o.first + uint64(o.flying), o.entries[o.flying].bytes
}

// next returns the messages to send now, as many as fit into room bytes, and the first one's sequence number.
func (o *outbox) next(now time.Time, room int) (first uint64, messages []*outbidv1.UplinkMessage) {
	if first, _ = o.ready(now); first == 0 {
		return 0, nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	waiting := o.entries[o.flying:]
	most, bytes := maxUplink, 0
	if o.width > 0 {
		most = min(most, o.width)
	}
	room = min(room, maxUplinkBytes)
	for i := range waiting {
		if bytes += waiting[i].bytes; i == most || bytes > room {
			break
		}
		messages = append(messages, waiting[i].message)
	}
	if len(messages) == 0 {
		return 0, nil
	}
	o.flights = append(o.flights, flight{len(messages), now})
	o.flying += len(messages)
	o.due = len(messages) < len(waiting)
	return first, messages
}

// resend puts messages in flight back into the queue, so that the next uplink sends them again.
func (o *outbox) resend() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.flights, o.flying = o.flights[:0], 0
	o.flush()
}

// acked drops messages up to a sequence number and calls f for each.
func (o *outbox) acked(seq uint64, f func(e entry)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if seq < o.first {
		return
	}
	n := int(min(seq-o.first+1, uint64(len(o.entries))))
	for i := range n {
		o.count(o.entries[i].fork, -1, -o.entries[i].bytes)
		f(o.entries[i])
		o.entries[i].release()
		o.entries[i] = entry{}
	}
	o.entries = o.entries[n:]
	o.first += uint64(n)
	o.removeAcked(n)
	if o.room != nil {
		close(o.room)
		o.room = nil
	}
	if len(o.entries) == 0 {
		o.entries = nil // the array may be large
	}
	if o.due && len(o.entries) > o.flying && len(o.flights) < maxFlights {
		o.notify()
	}
}

// removeAcked removes n acknowledged entries from the flights that carried them.
func (o *outbox) removeAcked(n int) {
	o.flying = max(0, o.flying-n)
	landed := 0
	for landed < len(o.flights) && n >= o.flights[landed].size {
		n -= o.flights[landed].size
		landed++
	}
	o.flights = slices.Delete(o.flights, 0, landed)
	if len(o.flights) > 0 {
		o.flights[0].size -= n
	}
}

// reset drops everything for a new boot.
func (o *outbox) reset() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, e := range o.entries {
		e.release()
	}
	o.entries, o.first, o.bytes = nil, 1, 0
	clear(o.held)
	o.flights, o.flying = nil, 0
	if o.room != nil {
		close(o.room)
		o.room = nil
	}
}

// empty reports whether all messages were acknowledged; begun whether any ever was.
func (o *outbox) empty() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.entries) == 0
}

func (o *outbox) begun() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.first > 1
}

// resendIn returns how long to wait until the oldest flight is sent again, or a negative duration if nothing is in
// flight.
func (o *outbox) resendIn(now time.Time) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.flights) == 0 {
		return -1
	}
	return max(0, resendAfter-now.Sub(o.flights[0].sent))
}
