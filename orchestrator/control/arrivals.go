package control

import (
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// arrival is what is known of a node's messages before the loop takes them in.
type arrival struct {
	// at is when the newest came, in nanoseconds of the ledger's time; waiting counts those in the queue, and bytes what
	// they take.
	at      atomic.Int64
	waiting atomic.Int32
	bytes   atomic.Int64
}

// What waits for the loop is bounded: the messages of one node, and what the messages of all nodes take. A worker says what
// is not acknowledged again after a second, so what is beyond is dropped: that the node was heard counts all the same.
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

// sizeOf returns how many bytes an input takes, as far as that matters.
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

// Uplink notes that a worker was heard, and queues what it said. It never waits: what finds no room is dropped, and the
// worker says it again.
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

// enterQueue counts an uplink into the queue, and reports whether there is room for it.
func (l *Loop) enterQueue(a *arrival, in arrived) bool {
	size := int64(in.bytes)
	waiting, bytes, all := a.waiting.Add(1), a.bytes.Add(size), l.uplinkBytes.Add(size)
	if waiting <= uplinksWaiting && (bytes <= uplinkBytesWaiting || waiting == 1) && all <= allUplinkBytesQueued || in.Message.GetLeaving() {
		return true
	}
	l.leftQueue(in)
	return false
}

// leftQueue counts an uplink out of the queue.
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

// lastSeen is when a node was last heard of; zero if it was not.
func (l *Loop) lastSeen(node string) time.Time {
	known, ok := l.heard.Load(node)
	if !ok {
		return time.Time{}
	}
	a, _ := known.(*arrival)
	return time.Unix(0, a.at.Load())
}

// Heard says when nodes were last heard of, be it that what they said waits to be taken in.
type Heard map[string]time.Time

func (in Heard) apply(c *Core) {
	for name, at := range in {
		if l, known := c.nodes[name]; known && at.After(l.seen) {
			l.seen = at
		}
	}
}

// Stalled says that nobody was listened to for a while: a disk, a decision or the whole machine stood still. Whoever was
// silent meanwhile is not to blame, and orders that were to go out may have gone out so much later: every node is given
// that time.
type Stalled struct{ For time.Duration }

func (in Stalled) apply(c *Core) {
	later := func(t time.Time) time.Time {
		if t = t.Add(in.For); t.After(c.now) {
			return c.now
		}
		return t
	}
	c.started = later(c.started)
	for _, l := range c.nodes {
		l.seen = later(l.seen)
		if !l.own.IsZero() {
			l.own = later(l.own)
		}
		for id, since := range l.missing {
			l.missing[id] = later(since)
		}
	}
}

const (
	// stallAfter is how long the loop may take to come round until that counts as a stall.
	stallAfter = time.Second
	// stallTold is the stall that the log names.
	stallTold = 3 * time.Second
)

// attend returns what has the core know of a stall since the loop last came round; nil if there was none.
func (l *Loop) attend() []Input {
	now := time.Now()
	gap := now.Sub(l.attended)
	first := l.attended.IsZero()
	l.attended = now
	if first || gap < stallAfter {
		return nil
	}
	if gap >= stallTold {
		l.cfg.Logger.Warn("the control loop stood still; every worker is given that time before it is taken for lost",
			"for", gap.Round(time.Millisecond), "in_decisions", l.took.Decide.Round(time.Millisecond),
			"in_the_ledger", l.took.Append.Round(time.Millisecond))
	}
	return []Input{l.allHeard(), Stalled{For: gap}}
}

// judge returns what has the core look who is silent. It comes last, after all that had arrived.
func (l *Loop) judge() []Input { return []Input{l.allHeard(), Tick{}} }

func (l *Loop) allHeard() Heard {
	heard := Heard{}
	l.heard.Range(func(name, known any) bool {
		node, _ := name.(string)
		heard[node] = l.lastSeen(node)
		return true
	})
	return heard
}
