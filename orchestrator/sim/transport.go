package sim

import (
	"math/rand/v2"
	"time"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// A Transport carries messages between the workers and the orchestrator. It belongs to one run.
type Transport interface {
	// Open is called once, before any message. after sets a timer of virtual time; rng is the run's random generator.
	Open(after func(d time.Duration, do func()), rng *rand.Rand)
	// Perfect reports whether every message arrives once, in order and immediately. Workers then send no heartbeats, do
	// not repeat messages, and announce crashes, so an undisturbed job needs only a few messages.
	Perfect() bool
	// Up carries a worker's messages, Down its orders. arrive may be called at once, later, several times, or never.
	Up(u *outbidv1.Uplink, arrive func(*outbidv1.Uplink))
	Down(o *outbidv1.Orders, arrive func(*outbidv1.Orders))
}

// Perfect returns the transport without losses and delays.
func Perfect() Transport { return perfect{} }

type perfect struct{}

func (perfect) Open(func(time.Duration, func()), *rand.Rand)           {}
func (perfect) Perfect() bool                                          { return true }
func (perfect) Up(u *outbidv1.Uplink, arrive func(*outbidv1.Uplink))   { arrive(u) }
func (perfect) Down(o *outbidv1.Orders, arrive func(*outbidv1.Orders)) { arrive(o) }

// Faults configures a faulty network. The zero value is a network with a delay of one millisecond.
type Faults struct {
	// Lose and Double are the probabilities that a message is lost, or arrives twice.
	Lose, Double float64
	// Late is the maximum additional delay. Messages can overtake each other.
	Late time.Duration
	// CutOff is the mean time until a node is cut off from the orchestrator, and CutFor the mean duration; 0 for never.
	// One cut in three affects both directions, one only the worker's messages, and one only its orders. With cuts,
	// Late must be below the time that leases allow for messages under way: control's lease margin minus a heartbeat.
	CutOff, CutFor time.Duration
	// Cuts is the maximum number of cuts of a node; 0 for no limit. Without a limit, a job that never saves and takes
	// longer than the time between cuts never ends.
	Cuts int
}

// Network returns a transport with faults: messages are lost, duplicated, delayed and reordered, and nodes are cut off.
func Network(f Faults) Transport { return &network{faults: f, links: map[string]*link{}} }

type network struct {
	faults Faults
	after  func(time.Duration, func())
	rng    *rand.Rand
	links  map[string]*link
}

// link is the connection of a node in both directions.
type link struct {
	upCut, downCut bool
	cuts           int
}

// transit is the minimum delay of a message.
const transit = time.Millisecond

func (n *network) Open(after func(time.Duration, func()), rng *rand.Rand) {
	n.after, n.rng = after, rng
}

func (n *network) Perfect() bool { return false }

// Up implements Transport.
func (n *network) Up(u *outbidv1.Uplink, arrive func(*outbidv1.Uplink)) {
	if !n.link(u.GetNode()).upCut {
		n.carry(func() { arrive(u) })
	}
}

// Down implements Transport.
func (n *network) Down(o *outbidv1.Orders, arrive func(*outbidv1.Orders)) {
	if !n.link(o.GetNode()).downCut {
		n.carry(func() { arrive(o) })
	}
}

// link returns the link of a node. The first message schedules its first cut.
func (n *network) link(node string) *link {
	l, ok := n.links[node]
	if !ok {
		l = &link{}
		n.links[node] = l
		n.cut(l)
	}
	return l
}

// cut schedules a cut, its repair, and the next cut.
func (n *network) cut(l *link) {
	if n.faults.CutOff <= 0 || n.faults.Cuts > 0 && l.cuts == n.faults.Cuts {
		return
	}
	l.cuts++
	n.after(exponential(n.rng, n.faults.CutOff), func() {
		which := n.rng.IntN(3)
		l.upCut, l.downCut = which != 1, which != 2
		n.after(exponential(n.rng, n.faults.CutFor), func() {
			l.upCut, l.downCut = false, false
			n.cut(l)
		})
	})
}

// carry delivers a message, unless it is lost.
func (n *network) carry(arrive func()) {
	f := n.faults
	if f.Lose > 0 && n.rng.Float64() < f.Lose {
		return
	}
	times := 1
	if f.Double > 0 && n.rng.Float64() < f.Double {
		times = 2
	}
	for range times {
		late := transit
		if f.Late > 0 {
			late += time.Duration(n.rng.Int64N(int64(f.Late)))
		}
		n.after(late, arrive)
	}
}

// exponential returns an exponentially distributed time, at least a second.
func exponential(rng *rand.Rand, mean time.Duration) time.Duration {
	return time.Second + time.Duration(rng.ExpFloat64()*float64(mean))
}
