package worker

import (
	"context"
	"slices"
	"sync"
	"time"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Bounds of the outbox. Bytes are of the encoded messages.
const (
	// maxBacklog is how much may wait; beyond it reports wait in the training processes.
	maxBacklog      = 200_000
	maxBacklogBytes = 64 << 20
	// maxUplink and maxUplinkBytes are how much goes into one uplink at most; the connection may take less.
	maxUplink      = 4096
	maxUplinkBytes = 512 << 10
)

// sendDelay is how long a message waits that nobody waits for: in a short trial all that it has to say goes in one uplink.
const sendDelay = 5 * time.Millisecond

// maxFlights is how many uplinks may be under way at once: enough that a report need not wait for the answer to the one
// before it, few enough that reports gather while the orchestrator is busy.
const maxFlights = 4

// outbox keeps what the worker says, in order, until the orchestrator has it in its ledger. A few uplinks are under way
// at a time; what comes meanwhile gathers for the next.
type outbox struct {
	wake chan struct{}

	mu      sync.Mutex
	entries []entry
	// first is the sequence of entries[0]; sequences count from 1.
	first uint64
	// flights are the uplinks under way, oldest first; flying counts their entries.
	flights []flight
	flying  int
	bytes   int
	room    chan struct{}
	// due says that something which is not under way is to be sent now; delay makes it so when what may wait has waited enough.
	due   bool
	delay *time.Timer
	// width bounds how many messages go into one uplink while a message that cannot be sent is looked for; 0 for no bound.
	width int
	// scratch is where messages are encoded to learn their sizes.
	scratch []byte
}

// flight is an uplink under way: how many entries it carries, and when it was sent.
type flight struct {
	size int
	sent time.Time
}

// entry is one message. What the acknowledgement is good for is kept with it.
type entry struct {
	message *outbidv1.UplinkMessage
	// fork may be nil.
	fork *fork
	// bytes are what the message takes in an uplink.
	bytes int
	// report is the number of a report within its fork; 0 for other messages.
	report uint64
}

func newOutbox() *outbox { return &outbox{wake: make(chan struct{}, 1), first: 1} }

// add takes a message that must not wait for room: there are few of them. It returns why the message cannot be sent, or
// nil.
func (o *outbox) add(f *fork, m *outbidv1.UplinkMessage) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	err := o.push(entry{message: m, fork: f})
	o.flush()
	return err
}

// addDelayed takes a message that may wait for the next one, and that is sent soon if there is none. It returns why the
// message cannot be sent, or nil.
func (o *outbox) addDelayed(f *fork, m *outbidv1.UplinkMessage) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	err := o.push(entry{message: m, fork: f})
	o.whisper()
	return err
}

// whisper has what waits sent soon. The caller holds the lock.
func (o *outbox) whisper() {
	if o.delay == nil {
		o.delay = time.AfterFunc(sendDelay, o.delayOver)
	}
}

// delayOver has sent what could wait.
func (o *outbox) delayOver() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.delay != nil {
		o.flush()
	}
}

// flush has all that waits sent now. The caller holds the lock.
func (o *outbox) flush() {
	o.due = true
	if o.delay != nil {
		o.delay.Stop()
		o.delay = nil
	}
	o.notify()
}

// addReports takes reports that checkReport has accepted, which may be delayed or not; it waits while the backlog is full, or
// until ctx ends.
func (o *outbox) addReports(ctx context.Context, f *fork, reports []*outbidv1.Report, delayed bool) {
	type wrapped struct {
		message outbidv1.UplinkMessage
		kind    outbidv1.UplinkMessage_Report
	}
	wraps := make([]wrapped, len(reports)) // one allocation for all
	o.mu.Lock()
	defer o.mu.Unlock()
	for i, r := range reports {
		for len(o.entries) >= maxBacklog || o.bytes >= maxBacklogBytes {
			if !o.await(ctx) {
				return
			}
		}
		w := &wraps[i]
		w.kind.Report = r
		w.message.Fork, w.message.Kind = f.ref, &w.kind
		e := entry{message: &w.message, fork: f, report: r.GetSeq(), bytes: admitReport(f, r)}
		o.entries, o.bytes = append(o.entries, e), o.bytes+e.bytes
	}
	if delayed {
		o.whisper()
	} else {
		o.flush()
	}
}

// await releases the lock until there may be room; false if ctx ended.
func (o *outbox) await(ctx context.Context) bool {
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

// push queues a message that can be sent, and returns why if it cannot. The caller holds the lock.
func (o *outbox) push(e entry) error {
	var err error
	if e.bytes, err = o.admit(e.message); err != nil {
		return err
	}
	o.entries = append(o.entries, e)
	o.bytes += e.bytes
	return nil
}

func (o *outbox) notify() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// ready returns the sequence and the size in bytes of the first message to send now, or 0 and 0 if there is none: a new
// one if few uplinks are under way, the oldest again if an uplink was not acknowledged in time.
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

// next returns what to send now: as much of what is ready as fits into room bytes, and its first sequence.
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

// again forgets what is under way, so that it is sent with the next uplink.
func (o *outbox) again() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.flights, o.flying = o.flights[:0], 0
	o.flush()
}

// acked drops messages up to a sequence and calls f for each.
func (o *outbox) acked(seq uint64, f func(e entry)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if seq < o.first {
		return
	}
	n := int(min(seq-o.first+1, uint64(len(o.entries))))
	for i := range n {
		o.bytes -= o.entries[i].bytes
		f(o.entries[i])
		o.entries[i] = entry{}
	}
	o.entries = o.entries[n:]
	o.first += uint64(n)
	o.land(n)
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

// land takes n acknowledged entries off the flights that carried them.
func (o *outbox) land(n int) {
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

// reset drops everything: it was said in another boot.
func (o *outbox) reset() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.entries, o.first, o.bytes = nil, 1, 0
	o.flights, o.flying = nil, 0
	if o.room != nil {
		close(o.room)
		o.room = nil
	}
}

// empty says whether everything was acknowledged; begun whether anything ever was.
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

// resendIn is how long to wait until what is under way is to be sent again; negative for nothing under way.
func (o *outbox) resendIn(now time.Time) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.flights) == 0 {
		return -1
	}
	return max(0, resendAfter-now.Sub(o.flights[0].sent))
}
