package control

import (
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// arrivals are the messages of nodes that the loop has not processed yet. It is safe for concurrent use.
type arrivals struct {
	queue *queue
	time  *timekeeper
	// nodes has an arrival for each node, by name.
	nodes sync.Map
	// bytes is the size of all messages in the queue.
	bytes atomic.Int64
}

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

// take records that a node was seen, and queues its message. It never waits: a message that finds no room is
// dropped, and the worker sends it again.
func (a *arrivals) take(up *outbidv1.Uplink) {
	node := a.of(up.GetNode())
	node.at.Store(a.time.now().UnixNano())
	in := arrived{Uplink{up}, proto.Size(up)}
	if !a.enter(node, in) {
		return
	}
	select {
	case a.queue.in <- in:
	default:
		a.left(in)
	}
}

// enter adds an uplink to the queue's counts, and reports whether there is room for it.
func (a *arrivals) enter(node *arrival, in arrived) bool {
	size := int64(in.bytes)
	waiting, bytes, all := node.waiting.Add(1), node.bytes.Add(size), a.bytes.Add(size)
	if waiting <= uplinksWaiting && (bytes <= uplinkBytesWaiting || waiting == 1) && all <= allUplinkBytesQueued || in.Message.GetLeaving() {
		return true
	}
	a.left(in)
	return false
}

// left removes an uplink from the queue's counts.
func (a *arrivals) left(in arrived) {
	node := a.of(in.Message.GetNode())
	node.waiting.Add(-1)
	node.bytes.Add(-int64(in.bytes))
	a.bytes.Add(-int64(in.bytes))
}

// dequeued accounts for an input that has left the queue.
func (a *arrivals) dequeued(in Input) Input {
	if up, ok := in.(arrived); ok {
		a.left(up)
	}
	return in
}

func (a *arrivals) of(node string) *arrival {
	known, ok := a.nodes.Load(node)
	if !ok {
		known, _ = a.nodes.LoadOrStore(node, new(arrival))
	}
	of, _ := known.(*arrival)
	return of
}

// lastSeen returns when a node was last seen, or zero if it was not.
func (a *arrivals) lastSeen(node string) time.Time {
	known, ok := a.nodes.Load(node)
	if !ok {
		return time.Time{}
	}
	of, _ := known.(*arrival)
	return time.Unix(0, of.at.Load())
}

// all returns when each node was last seen.
func (a *arrivals) all() NodesSeen {
	seen := NodesSeen{}
	a.nodes.Range(func(name, _ any) bool {
		node, _ := name.(string)
		seen[node] = a.lastSeen(node)
		return true
	})
	return seen
}
