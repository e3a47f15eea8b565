package worker

import (
	"errors"
	"fmt"
	"os"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/outbid-dev/outbid/orchestrator/bus"
	"github.com/outbid-dev/outbid/orchestrator/limits"
	"github.com/outbid-dev/outbid/orchestrator/sanitize"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// uplinkForks is the field of an Uplink that lists the forks.
const uplinkForks = 5

// maxComplaints bounds for how many causes the worker logs that an uplink could not be sent.
const maxComplaints = 100

// send sends what is due; with beat even if that is nothing.
func (a *agent) send(beat bool) {
	first, bytes := a.out.ready(time.Now())
	if first == 0 && !beat {
		return
	}
	up := &outbidv1.Uplink{Node: a.cfg.Node, Boot: a.boot, Health: a.checks.last}
	if a.introduce {
		up.Info = a.info()
	}
	a.fill(up, first, bytes)
	if err := a.publish(up); err != nil {
		a.isolate(up, err)
	}
}

// fill puts into an uplink what is to be said next, the first of which is a message of so many bytes, and the status of
// the forks, as far as the connection takes it in one message.
func (a *agent) fill(up *outbidv1.Uplink, first uint64, bytes int) {
	room := a.cfg.Bus.MaxUplink() - proto.Size(up) - countersBytes
	forks := a.status()
	switch {
	case forks.bytes+bytes <= room:
		up.Forks = forks.full
		room -= forks.bytes
	case forks.shortBytes+bytes <= room || first == 0:
		up.Forks = forks.short
		room -= forks.shortBytes
	default: // the next heartbeat lists them
		up.ForksLeftOut = true
	}
	if first == 0 {
		return
	}
	if bytes > room && !a.introduce { // alone it is too large, also without the forks
		a.drop(first, fmt.Errorf("it %w", tooLarge(bytes, max(room, 0))))
		return
	}
	up.FirstSeq, up.Messages = a.out.next(time.Now(), room)
}

// countersBytes are what the numbers of an uplink take at most that are filled in last.
const countersBytes = 64

// isolate looks for the message for which an uplink cannot be sent: it sends fewer and fewer messages at once, and gives
// the message up that cannot be sent alone.
func (a *agent) isolate(up *outbidv1.Uplink, err error) {
	switch n := len(up.GetMessages()); {
	case !errors.Is(err, bus.ErrRefused):
	case n > 1:
		a.out.narrow(n / 2)
	case n == 1:
		a.drop(up.GetFirstSeq(), err)
		a.out.again()
	}
}

// drop gives up a message that cannot be sent. Its trial fails, unless it was a note.
func (a *agent) drop(seq uint64, why error) {
	e, ok := a.out.drop(seq, why)
	switch {
	case !ok:
	case e.fork != nil:
		if e.message.GetEnded() == nil { // drop has put a failure in its place
			e.fork.lose(e.message, why)
		}
	default:
		a.cfg.Logger.Warn("what became of an average cannot be sent", "sweep", e.message.GetFork().GetSweep(), "error", why)
	}
}

// publish sends an uplink. Why it could not be sent it also logs: once for each cause at WARN, unless the connection is
// lost, which the connection itself logs.
func (a *agent) publish(up *outbidv1.Uplink) error {
	a.said++
	up.Said = a.said
	err := a.cfg.Bus.Publish(up)
	if err == nil {
		return nil
	}
	cause := root(err).Error()
	if errors.Is(err, bus.ErrNotConnected) || a.complained[cause] || len(a.complained) >= maxComplaints {
		a.cfg.Logger.Debug("could not reach the orchestrator; trying again", "error", err)
		return err
	}
	a.complained[cause] = true
	a.cfg.Logger.Warn("an uplink to the orchestrator could not be sent; trying again", "error", err)
	return err
}

func (a *agent) info() *outbidv1.NodeInfo {
	hostname, _ := os.Hostname() // only for listings
	m := a.cfg.Machine
	return &outbidv1.NodeInfo{
		Name: a.cfg.Node, Boot: a.boot, Devices: m.Devices, Links: m.Links, Cpus: float64(m.CPUs), MemoryBytes: m.MemoryBytes,
		Version: sanitize.Line(a.cfg.Version, limits.Name), Hostname: sanitize.Line(hostname, limits.Name), Labels: a.cfg.Labels,
		Pid: int32(os.Getpid()), Warnings: a.cfg.warnings, SealKey: a.seal.Public(), Killed: a.killed,
	}
}

// statusList is the status of every fork of a worker: in full, and in a short form that names leases and versions only,
// each with the bytes that it takes in an uplink.
type statusList struct {
	full, short       []*outbidv1.ForkStatus
	bytes, shortBytes int
}

func (l *statusList) add(s *outbidv1.ForkStatus) {
	short := &outbidv1.ForkStatus{Fork: &outbidv1.ForkRef{LeaseId: s.GetFork().GetLeaseId()}, Version: s.GetVersion()}
	size := func(m proto.Message) int { return protowire.SizeTag(uplinkForks) + protowire.SizeBytes(proto.Size(m)) }
	l.full, l.bytes = append(l.full, s), l.bytes+size(s)
	l.short, l.shortBytes = append(l.short, short), l.shortBytes+size(short)
}

// status lists the forks. One that has ended is listed until its end is in the ledger: a fork that is not listed is
// taken for lost.
func (a *agent) status() *statusList {
	if !a.changed.Swap(false) {
		return &a.statuses
	}
	a.statuses = statusList{}
	for _, leaseID := range a.leases() {
		if s := a.forks[leaseID].status(); s != nil {
			a.statuses.add(s)
		}
	}
	return &a.statuses
}

// leave says goodbye, with what is still to be delivered.
func (a *agent) leave() {
	a.out.again()
	up := &outbidv1.Uplink{Node: a.cfg.Node, Boot: a.boot, Leaving: true}
	up.FirstSeq, up.Messages = a.out.next(time.Now(), a.cfg.Bus.MaxUplink()-proto.Size(up)-countersBytes)
	_ = a.publish(up) // logged
}
