package sim

import (
	"math/rand/v2"
	"time"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// A Transport carries messages between the workers and the orchestrator. It belongs to one run.
type Transport interface {
	// Open is called once, before anything is sent. after sets a timer of virtual time; rng is the run's own.
	Open(after func(d time.Duration, do func()), rng *rand.Rand)
	// Perfect says that every message arrives once, in order, and within the moment in which it is sent. Then workers send
	// no heartbeats, say nothing twice, and say that they crash: an undisturbed job costs a handful of messages.
	Perfect() bool
	// Up carries what a node's worker says, Down what it is ordered. arrive may be called at once, later, several times, or
	// never.
	Up(u *outbidv1.Uplink, arrive func(*outbidv1.Uplink))
	Down(o *outbidv1.Orders, arrive func(*outbidv1.Orders))
}

// Perfect returns the transport that loses nothing and takes no time.
func Perfect() Transport { return perfect{} }

type perfect struct{}

func (perfect) Open(func(time.Duration, func()), *rand.Rand)           {}
func (perfect) Perfect() bool                                          { return true }
func (perfect) Up(u *outbidv1.Uplink, arrive func(*outbidv1.Uplink))   { arrive(u) }
func (perfect) Down(o *outbidv1.Orders, arrive func(*outbidv1.Orders)) { arrive(o) }

// Faults are what goes wrong with messages. The zero value is a network that takes a millisecond.
type Faults struct {
	// Lose and Double are chances, from 0 to 1, that a message is lost, or arrives twice.
	Lose, Double float64
	// Late is the most that a message is late; what is late is overtaken by what is not.
	Late time.Duration
	// CutOff is the mean time until a node is cut off from the orchestrator, and CutFor the mean time for which; 0 for never.
	// One cut in three is in both directions, one loses only what the worker says, one only what it is ordered. With cuts
	// Late must stay below what leases allow for messages under way: control's lease margin less a heartbeat.
	CutOff, CutFor time.Duration
	// Cuts is how many times a node is cut off at most; 0 for no limit. Without one, a job that never saves and takes longer
	// than the time between cuts never ends.
	Cuts int
}

// Network returns a transport with faults: messages are lost, doubled, late, overtaken, and nodes cut off.
func Network(f Faults) Transport { return &network{faults: f, links: map[string]*link{}} }

type network struct {
	faults Faults
	after  func(time.Duration, func())
	rng    *rand.Rand
	links  map[string]*link
}

// link is the way to a node and back.
type link struct {
	upCut, downCut bool
	cuts           int
}

// transit is how long a message takes that is not late.
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

// link is that of a node. The first message begins to wait for its first cut.
func (n *network) link(node string) *link {
	l, ok := n.links[node]
	if !ok {
		l = &link{}
		n.links[node] = l
		n.cut(l)
	}
	return l
}

// cut lets a link be cut after a while, heal, and be cut again.
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

// carry lets a message arrive, unless it is lost.
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

// exponential is an exponentially distributed time, at least a second.
func exponential(rng *rand.Rand, mean time.Duration) time.Duration {
	return time.Second + time.Duration(rng.ExpFloat64()*float64(mean))
}
