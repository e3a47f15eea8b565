package worker

import (
	"context"
	"sync"
	"time"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Bounds of the outbox. Bytes are estimates of the encoded size.
const (
	// maxBacklog is how much may wait; beyond it reports wait in the training processes.
	maxBacklog      = 200_000
	maxBacklogBytes = 64 << 20
	// maxUplink is how much goes into one uplink: NATS takes 1 MiB unless told otherwise.
	maxUplink      = 4096
	maxUplinkBytes = 512 << 10
	// maxReportBytes bounds a single report.
	maxReportBytes = 256 << 10
)

// outbox keeps what the worker says, in order, until the orchestrator has it in its ledger. One uplink is under way at
// a time; what comes meanwhile gathers for the next.
type outbox struct {
	wake chan struct{}

	mu      sync.Mutex
	entries []entry
	// first is the sequence of entries[0]; sequences count from 1.
	first uint64
	// flying counts the entries of the uplink under way, which was sent at sent.
	flying int
	sent   time.Time
	bytes  int
	room   chan struct{}
}

// entry is one message. What the acknowledgement is good for is kept with it.
type entry struct {
	message *outbidv1.UplinkMessage
	fork    *fork
	bytes   int
	// report is the number of a report within its fork; 0 for other messages.
	report uint64
}

func newOutbox() *outbox { return &outbox{wake: make(chan struct{}, 1), first: 1} }

// add takes messages that must not wait: there are few of them.
func (o *outbox) add(f *fork, messages ...*outbidv1.UplinkMessage) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, m := range messages {
		o.push(entry{message: m, fork: f, bytes: estimate(m)})
	}
	o.notify()
}

// addReports takes reports; it waits while the backlog is full, or until ctx ends.
func (o *outbox) addReports(ctx context.Context, f *fork, reports []*outbidv1.Report) {
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
		o.push(entry{message: &w.message, fork: f, bytes: reportBytes(r), report: r.GetSeq()})
	}
	o.notify()
}

// await releases the lock until there may be room; false if ctx ended.
func (o *outbox) await(ctx context.Context) bool {
	if o.room == nil {
		o.room = make(chan struct{})
	}
	room := o.room
	o.notify()
	o.mu.Unlock()
	defer o.mu.Lock()
	select {
	case <-room:
		return true
	case <-ctx.Done():
		return false
	}
}

func (o *outbox) push(e entry) {
	o.entries = append(o.entries, e)
	o.bytes += e.bytes
}

func (o *outbox) notify() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// next returns what to send now: new messages if nothing is under way, the same again (and more) if what is under way
// was not acknowledged in time.
func (o *outbox) next(now time.Time) (first uint64, messages []*outbidv1.UplinkMessage) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.entries) == 0 || o.flying > 0 && now.Sub(o.sent) < resendAfter {
		return 0, nil
	}
	bytes := 0
	for i := range o.entries {
		bytes += o.entries[i].bytes
		if i == maxUplink || i > 0 && bytes > maxUplinkBytes {
			break
		}
		messages = append(messages, o.entries[i].message)
	}
	o.flying, o.sent = len(messages), now
	return o.first, messages
}

// again forgets what is under way, so that it is sent with the next uplink.
func (o *outbox) again() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.flying = 0
	o.notify()
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
	o.flying = max(0, o.flying-n)
	if o.room != nil {
		close(o.room)
		o.room = nil
	}
	if len(o.entries) == 0 {
		o.entries = nil // the array may be large
	}
	if o.flying == 0 {
		o.notify()
	}
}

// reset drops everything: it was said in another boot.
func (o *outbox) reset() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.entries, o.first, o.flying, o.bytes = nil, 1, 0, 0
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
	if o.flying == 0 {
		return -1
	}
	return max(0, resendAfter-now.Sub(o.sent))
}

func estimate(m *outbidv1.UplinkMessage) int {
	switch k := m.GetKind().(type) {
	case *outbidv1.UplinkMessage_Ended:
		return 64 + len(k.Ended.GetDetail())
	case *outbidv1.UplinkMessage_Note:
		return 64 + len(k.Note.GetText())
	default:
		return 256
	}
}

func reportBytes(r *outbidv1.Report) int {
	n := 96
	for name := range r.GetMetrics() {
		n += len(name) + 16
	}
	return n
}
