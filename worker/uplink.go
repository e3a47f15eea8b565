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

// uplinkForks is the number of the field of an Uplink that lists the forks.
const uplinkForks = 5

// maxComplaints limits for how many causes the worker logs that an uplink could not be sent.
const maxComplaints = 100

// send sends what is due. With beat it sends an uplink even if nothing is due.
func (l *workerLoop) send(beat bool) {
	first, bytes := l.out.ready(time.Now())
	if first == 0 && !beat {
		return
	}
	up := &outbidv1.Uplink{Node: l.cfg.Node, Boot: l.boot, Health: l.health()}
	if l.introduce {
		up.Info = l.info()
	}
	l.fillUplink(up, first, bytes)
	if err := l.publish(up); err != nil {
		l.isolate(up, err)
	}
}

// fillUplink adds the next messages and the status of the forks to an uplink, as far as one message of the connection
// has room. first and bytes are the sequence number and size of the first message.
func (l *workerLoop) fillUplink(up *outbidv1.Uplink, first uint64, bytes int) {
	room := l.cfg.Bus.MaxUplink() - proto.Size(up) - countersBytes
	forks := l.status()
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
	if bytes > room && !l.introduce { // too large alone, even without the forks
		l.drop(first, fmt.Errorf("it %w", tooLarge(bytes, max(room, 0))))
		return
	}
	up.FirstSeq, up.Messages = l.out.next(time.Now(), room)
}

// countersBytes is the largest size of the numeric fields of an uplink that are filled in last.
const countersBytes = 64

// isolate finds the message that prevents an uplink from being sent: it halves the number of messages in an uplink
// until a single message cannot be sent, and drops that.
func (l *workerLoop) isolate(up *outbidv1.Uplink, err error) {
	switch n := len(up.GetMessages()); {
	case !errors.Is(err, bus.ErrRefused):
	case n > 1:
		l.out.limitWidth(n / 2)
	case n == 1:
		l.drop(up.GetFirstSeq(), err)
		l.out.resend()
	}
}

// drop gives up on a message that cannot be sent. Its trial fails, unless the message was a note.
func (l *workerLoop) drop(seq uint64, why error) {
	e, ok := l.out.drop(seq, why)
	switch {
	case !ok:
	case e.fork != nil:
		if e.message.GetEnded() == nil { // out.drop has replaced an end by a failure
			e.fork.failLostMessage(e.message, why)
		}
	default:
		l.cfg.Logger.Warn("cannot send the result of an average", "sweep", e.message.GetFork().GetSweep(), "error", why)
	}
}

// publish sends an uplink. It logs each cause of a failure once at WARN, except a lost connection, which the
// connection itself logs.
func (l *workerLoop) publish(up *outbidv1.Uplink) error {
	l.uplinkCount++
	up.Said = l.uplinkCount
	err := l.cfg.Bus.Publish(up)
	if err == nil {
		l.sent = time.Now()
		return nil
	}
	cause := root(err).Error()
	if errors.Is(err, bus.ErrNotConnected) || l.complained[cause] || len(l.complained) >= maxComplaints {
		l.cfg.Logger.Debug("cannot reach the orchestrator; retrying", "error", err)
		return err
	}
	l.complained[cause] = true
	l.cfg.Logger.Warn("cannot send an uplink to the orchestrator; retrying", "error", err)
	return err
}

func (l *workerLoop) info() *outbidv1.NodeInfo {
	hostname, _ := os.Hostname() // only for listings
	m := l.cfg.Machine
	return &outbidv1.NodeInfo{
		Name: l.cfg.Node, Boot: l.boot, Devices: m.Devices, Links: m.Links, Cpus: float64(m.CPUs), MemoryBytes: m.MemoryBytes,
		Version: sanitize.Line(l.cfg.Version, limits.Name), Hostname: sanitize.Line(hostname, limits.Name), Labels: l.cfg.Labels,
		Pid: int32(os.Getpid()), Warnings: l.cfg.warnings, SealKey: l.seal.Public(), Killed: l.killed, ReportsShards: true,
	}
}

// statusList is the status of every fork of a worker, in full and in a short form with only leases and versions, with
// the size of each form in an uplink.
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

// status lists the forks. A fork is listed until its end is in the ledger, because the orchestrator considers a fork
// that is not listed lost.
func (l *workerLoop) status() *statusList {
	if !l.changed.Swap(false) {
		return &l.statuses
	}
	l.statuses = statusList{}
	for _, leaseID := range l.leases() {
		if s := l.forks[leaseID].status(); s != nil {
			l.statuses.add(s)
		}
	}
	return &l.statuses
}

// leave tells the orchestrator that the node leaves, with the messages that are still to be delivered.
func (l *workerLoop) leave() {
	l.out.resend()
	up := &outbidv1.Uplink{Node: l.cfg.Node, Boot: l.boot, Leaving: true}
	up.FirstSeq, up.Messages = l.out.next(time.Now(), l.cfg.Bus.MaxUplink()-proto.Size(up)-countersBytes)
	_ = l.publish(up) // publish logs the error
}
