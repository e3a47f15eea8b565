package control

import (
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// arrival tracks a node's messages before the loop processes them.
type arrival struct {
	// at is when the newest message came, in nanoseconds of the ledger's time. waiting is the number of queued
	// messages, and bytes their size.
	at      atomic.Int64
	waiting atomic.Int32
	bytes   atomic.Int64
}

// The queue for the loop is limited by the number and size of one node's messages, and by the size of all messages. A
// message over a limit is dropped: the worker sends it again after a second without an acknowledgement, and it still
// counts as a sign of life.
const (
	uplinksWaiting       = 2048
	uplinkBytesWaiting   = 16 << 20
	allUplinkBytesQueued = 256 << 20
)

// arrived is an uplink in the queue.
type arrived struct {
	Uplink
	bytes int
}

// sizeOf returns the approximate size of an input in bytes.
func sizeOf(in Input) int {
	switch in := in.(type) {
	case arrived:
		return in.bytes
	case Submit:
		return proto.Size(in.Spec)
	case Tell:
		return proto.Size(in.Request)
	default:
		return 0
	}
}

// Uplink records that a node was seen, and queues its message. It never waits: a message that finds no room is
// dropped, and the worker sends it again.
func (l *Loop) Uplink(up *outbidv1.Uplink) {
	a := l.arrival(up.GetNode())
	a.at.Store(l.clock.now().UnixNano())
	in := arrived{Uplink{up}, proto.Size(up)}
	if !l.enterQueue(a, in) {
		return
	}
	select {
	case l.in <- in:
	default:
		l.leftQueue(in)
	}
}

// enterQueue adds an uplink to the queue's counts, and reports whether there is room for it.
func (l *Loop) enterQueue(a *arrival, in arrived) bool {
	size := int64(in.bytes)
	waiting, bytes, all := a.waiting.Add(1), a.bytes.Add(size), l.uplinkBytes.Add(size)
	if waiting <= uplinksWaiting && (bytes <= uplinkBytesWaiting || waiting == 1) && all <= allUplinkBytesQueued || in.Message.GetLeaving() {
		return true
	}
	l.leftQueue(in)
	return false
}

// leftQueue removes an uplink from the queue's counts.
func (l *Loop) leftQueue(in arrived) {
	a := l.arrival(in.Message.GetNode())
	a.waiting.Add(-1)
	a.bytes.Add(-int64(in.bytes))
	l.uplinkBytes.Add(-int64(in.bytes))
}

func (l *Loop) arrival(node string) *arrival {
	known, ok := l.heard.Load(node)
	if !ok {
		known, _ = l.heard.LoadOrStore(node, new(arrival))
	}
	a, _ := known.(*arrival)
	return a
}

// lastSeen returns when a node was last seen, or zero if it was not.
func (l *Loop) lastSeen(node string) time.Time {
	known, ok := l.heard.Load(node)
	if !ok {
		return time.Time{}
	}
	a, _ := known.(*arrival)
	return time.Unix(0, a.at.Load())
}

const (
	// stallAfter is how long an iteration of the loop may take before it counts as a stall.
	stallAfter = time.Second
	// stallTold is the shortest stall that is logged.
	stallTold = 3 * time.Second
)

// attend returns inputs that tell the core about a stall since the last iteration of the loop, or nil.
func (l *Loop) attend() []Input {
	now := time.Now()
	gap := now.Sub(l.attended)
	first := l.attended.IsZero()
	l.attended = now
	if first || gap < stallAfter {
		return nil
	}
	if gap >= stallTold {
		l.cfg.Logger.Warn("the control loop stalled; every worker is given that much more time before it counts as lost",
			"for", gap.Round(time.Millisecond), "in_decisions", l.took.Decide.Round(time.Millisecond),
			"in_the_ledger", l.took.Append.Round(time.Millisecond))
	}
	return []Input{l.allHeard(), LoopStalled{For: gap}}
}

// judge returns the inputs that make the core look for silent nodes. They come last, after everything that had
// arrived.
func (l *Loop) judge() []Input { return []Input{l.allHeard(), Tick{}} }

func (l *Loop) allHeard() NodesSeen {
	heard := NodesSeen{}
	l.heard.Range(func(name, known any) bool {
		node, _ := name.(string)
		heard[node] = l.lastSeen(node)
		return true
	})
	return heard
}
